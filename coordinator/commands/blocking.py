"""`treadle blocked`, `unblock`: what waits for what somebody decides, and the answer to it."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any

import typer
from treadle.shared import codec
from treadle.shared.errors import Misuse, Refused
from treadle.shared.facts import BlockedFacts, ItemFacts
from treadle.shared.model import GroupId, ItemId
from treadle.shared.names import name_of, shown, token
from treadle.shared.store import Store, commands, stuck

from ..core.gates import needs_of
from ..core.readable import cut, safe, span
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url, whole
from .output import Column, document, note, plain, say, table
from .why import Address, find


def unblock(
    address: Address,
    resolution: Annotated[
        str, typer.Option(help="The answer, which its handler finds as context.resolution.", metavar="JSON")
    ] = "null",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Let a blocked WorkItem go on, with an answer.

    While it still belongs to its Worker it is queued there, else offered to all. Exit status 1 where it is not blocked.

    --json: {"mission", "item", "state", "worker"}; worker is null where it is offered
    """
    raw = codec.pack(_parsed(resolution), field="--resolution", limit=codec.RESULT_MAX)
    facts, state = with_store(url, prefix, lambda store: _unblock(store, address, raw))
    worker = facts.owner if state == "queued" else None
    if as_json:
        named = None if worker is None else name_of(worker)
        document({"mission": facts.mission, "item": facts.item, "state": state, "worker": named})
        return
    where = f"{state}, for Worker {shown(worker)}" if worker else f"{state} to every Worker" * (state == "offered")
    say(f"{safe(facts.mission)}/{safe(facts.item)}: {where or state}")


async def _unblock(store: Store, address: str, raw: bytes) -> tuple[ItemFacts, str]:
    facts = await find(store, address)
    group, item = GroupId(token(facts.mission, field="mission")), ItemId(token(facts.item, field="item"))
    action, actor, digest = secrets.token_hex(8), token(default_actor(), field="actor"), codec.digest(raw)
    try:
        state = await persist(
            store,
            lambda: commands.unblock(store, group, item, actor=actor, action=action, digest=digest, resolution=raw),
        )
    except Refused as refused:
        now = refused.details.get("state")
        if now is None:
            raise
        text = f"{safe(facts.mission)}/{safe(facts.item)} is {now}, not blocked"
        raise Refused(text, code=refused.code, details=refused.details) from None
    return facts, state


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Misuse(
            f"--resolution: {text[:60]!r} is no JSON; write a text with its quotes, as --resolution '\"yes\"', or an "
            "object, as --resolution '{\"approved\": true}'"
        ) from None


def blocked(
    most: Annotated[int, typer.Option(help="Show at most so many.", parser=whole(1, 100_000), metavar="N")] = 100,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """List blocked items, which wait for an answer.

    `treadle unblock MISSION/ITEM --resolution JSON` gives it. UNTIL is how long an item still belongs to the Worker that
    blocked; later, answered, it goes on anywhere.

    --json: {"now_ms", "items": [{"mission", "item", "account", "capability", "worker", "reason", "needs", "since_ms",
    "until_ms"}]}; worker and until_ms are null where it belongs to nobody
    """

    async def read(store: Store) -> tuple[int, list[BlockedFacts]]:
        return await store.now_ms(), await stuck.blocked(store, most=most)

    now_ms, found = with_store(url, prefix, read)
    if as_json:
        document({"now_ms": now_ms, "items": [_fields(one) for one in found]})
        return
    if not found:
        note("nothing is blocked")
        return
    columns = [
        *(Column("ITEM"), Column("CAPABILITY", is_extra=True), Column("ACCOUNT", is_extra=True)),
        *(Column("SINCE", right=True), Column("UNTIL", right=True, is_extra=True)),
        *(Column("REASON", may_shorten=True), Column("NEEDS", may_shorten=True, is_extra=True)),
    ]
    rows = (
        (
            *(f"{one.mission}/{one.item}", one.capability, one.account, f"{span(now_ms - one.block.since_ms)} ago"),
            f"in {span(one.block.until_ms - now_ms)}" if one.owner else "-",
            *(cut(one.block.reason, 200), cut(needs_of(one.block), 200)),
        )
        for one in found
    )
    table(columns, tuple(rows))


def _fields(one: BlockedFacts) -> dict[str, Any]:
    return {
        "mission": one.mission,
        "item": one.item,
        "account": one.account,
        "capability": one.capability,
        "worker": name_of(one.owner) if one.owner else None,
        "reason": one.block.reason,
        "needs": plain(one.block.needs),
        "since_ms": one.block.since_ms,
        "until_ms": one.block.until_ms or None,
    }
