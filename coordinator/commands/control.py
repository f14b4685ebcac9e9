"""`treadle cancel`, `retry`, `requeue`, `parked`: what people have the store do with items."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from treadle.shared.errors import Misuse, Refused
from treadle.shared.facts import StuckFacts
from treadle.shared.model import GroupId, ItemId
from treadle.shared.names import name_of, not_here, token
from treadle.shared.store import Store, commands, stuck

from ..core.addresses import readings
from ..core.missions import check_ends
from ..core.readable import cut, safe, span, times
from ..core.where import EXAMPLE, Where, parse_where
from ..core.wording import quoted
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url, Yes, whole
from .output import Column, ask, document, note, say, table

PAGE = 100
"""More items than this are not acted upon without asking."""
REQUEUED_MAX = 1_000_000
SHOWN = 10
Targets = Annotated[
    list[str], typer.Argument(metavar="MISSION[/ITEM]...", help="Missions, or items of them.", show_default=False)
]
Items = Annotated[list[str], typer.Argument(metavar="MISSION/ITEM...", help="The items.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Target:
    """What was named: a Mission, or an item of one."""

    group: GroupId
    item: ItemId | None

    def __str__(self) -> str:
        mission = name_of(self.group)
        return mission if self.item is None else f"{mission}/{name_of(self.item)}"


def cancel(
    target: Targets,
    reason: Annotated[str, typer.Option(help="Recorded with it.", metavar="TEXT")] = "asked",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Cancel Missions, or single items of them.

    What runs is told to stop and loses its lease; nothing of it is saved any more. Exit status 1 where one of them cannot be
    cancelled, because it is not there or has ended otherwise; the others are.

    --json: {"results": [{"target", "state", "error"}]}; error is null where it is cancelled now
    """
    why = token(reason, field="--reason")

    async def one(store: Store, found: Target) -> str:
        if found.item is None:
            check_ends(name_of(found.group))
        return await persist(
            store,
            lambda: commands.cancel(
                store, found.group, found.item, actor=token(default_actor(), field="actor"), reason=why
            ),
        )

    each(target, one, missions_too=True, url=url, prefix=prefix, as_json=as_json)


def retry(target: Items, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Offer failed or parked items again, now.

    All their attempts are before them again; one that is parked as CHECKPOINT is done from its beginning. Only while
    their Mission has not ended: an ended one is final, submit its work in another one. Exit status 1 where one of them
    cannot be retried; the others are.

    --json: {"results": [{"target", "state", "error"}]}; error is null where it is offered now
    """

    async def one(store: Store, found: Target) -> str:
        assert found.item is not None
        await _retry(store, found.group, found.item)
        return "offered"

    each(target, one, missions_too=False, url=url, prefix=prefix, as_json=as_json)


async def _retry(store: Store, group: GroupId, item: ItemId) -> None:
    action = secrets.token_hex(8)
    await persist(
        store, lambda: commands.retry(store, group, item, actor=token(default_actor(), field="actor"), action=action)
    )


def each(
    given: Sequence[str],
    act: Callable[[Store, Target], Awaitable[str]],
    *,
    missions_too: bool,
    url: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """Act on each of what is given, and tell of each what came of it; exit status 1 where one was refused."""

    async def work(store: Store) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for address in dict.fromkeys(given):
            try:
                found = await _target(store, address, missions_too=missions_too)
                state = await act(store, found)
                results.append({"target": str(found), "state": state, "error": None})
                if not as_json:
                    say(f"{safe(str(found))}: {state}")
            except Refused as refused:
                now = refused.details.get("state")
                text = _why(refused)
                results.append({"target": address, "state": now, "error": text})
                if not as_json:
                    note(f"treadle: {safe(address)}: {text}")
        return results

    results = with_store(url, prefix, work)
    if as_json:
        document({"results": results})
    if any(one["error"] for one in results):
        raise typer.Exit(1)


def _why(refused: Refused) -> str:
    now = refused.details.get("state")
    if refused.code == "WORK_ALREADY_OWNED":
        owner = quoted(name_of(refused.details.get("owner", "-")))
        return f"Worker {owner} has it ({now}); cancel it, or offer it once its lease or start-by time is over"
    if refused.details.get("dependencies", "0") != "0":
        return "it waits for others, which must be verified first; `treadle why` names them"
    if refused.code == "APPROVAL_REQUIRED":
        return "it waits for Approval: `treadle approve` lets it be started, `treadle cancel` ends it"
    if refused.details.get("approval") == "none" and now not in ("verified", "cancelled", "ended"):
        return f"it is {now} and needs no Approval"
    if not now:
        return str(refused)
    return {"ended": "it has ended", "failed": "it has failed already"}.get(now, f"it is {now} already")


async def _target(store: Store, address: str, *, missions_too: bool) -> Target:
    """What is meant: a Mission of exactly that name, or an item of one; Misuse where both are there."""
    found: list[Target] = []
    if missions_too:
        group = GroupId(token(address, field="MISSION"))
        if await store.mission(group) is not None:
            found.append(Target(group, None))
    if "/" in address or not missions_too:
        for group, item in readings(address):
            if await store.item(group, item) is not None:
                found.append(Target(group, item))
    if len(found) > 1:
        raise Misuse(f"{quoted(address)} may be a Mission or an item of another one: rename one of them")
    if not found:
        raise Refused(not_here(quoted(address)))
    return found[0]


def requeue(
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Which: state=, mission=, item=, account=, capability=, type= (of the failure), with patterns; all must hold.",
            metavar="FIELD=VALUE[,...]",
        ),
    ] = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Offer all failed or parked items again that match.

    Of Missions that have not ended. States: failed (for good), parked, waiting (for another attempt; only where named). A
    value may be several, state=a|b, and hold * and ?; a comma of a name itself is written \\,. It asks first where nothing
    narrows them, or more than 100 match.

    --json: {"matched", "requeued", "refused": [{"target", "error"}], "items": [{"mission", "item", "account",
    "capability", "state"}]}
    """
    wanted = parse_where(where or [])

    async def work(store: Store) -> int:
        found = await _matching(store, wanted)
        if not found:
            if as_json:
                document({"matched": 0, "requeued": 0, "refused": [], "items": []})
            else:
                states = " or ".join(sorted(wanted.states))
                note(f"nothing matches: no {states} item of a Mission that has not ended" + _hint(wanted))
            return 0
        if not as_json or not (yes or dry_run):
            for one in found[:SHOWN]:
                note(f"  {safe(one.mission)}/{safe(one.item)}  {one.state}  {one.capability}  {cut(one.type, 60)}")
            if len(found) > SHOWN:
                note(f"  and {len(found) - SHOWN:,} more")
        if dry_run:
            return _told(found, [], 0, as_json=as_json, done="would be requeued")
        if not yes and (wanted.is_everything or len(found) > PAGE):
            everything = "everything: " if wanted.is_everything else ""
            ask(f"requeue {everything}{times(len(found), 'item')}?", "say so with --yes, or look first with --dry-run")
        refused: list[tuple[StuckFacts, str]] = []
        for one in found:
            try:
                await _retry(store, one.group, one.token)
            except Refused as refusal:
                refused.append((one, str(refusal)))
        return _told(found, refused, len(found) - len(refused), as_json=as_json, done="requeued")

    raise typer.Exit(with_store(url, prefix, work))


async def _matching(store: Store, wanted: Where) -> list[StuckFacts]:
    found: list[StuckFacts] = []
    async for page in stuck.stuck(store, states=wanted.states, with_type=wanted.needs_type):
        found += [one for one in page if wanted.matches(one)]
        if len(found) > REQUEUED_MAX:
            raise Misuse(f"--where: matches more than {REQUEUED_MAX:,} items; narrow it, as {EXAMPLE}")
    return found


def _hint(wanted: Where) -> str:
    return (
        "" if wanted.is_everything else f" and is {', '.join(f'{k}={chr(124).join(v)}' for k, v in wanted.conditions)}"
    )


def _told(
    found: Sequence[StuckFacts], refused: Sequence[tuple[StuckFacts, str]], done_count: int, *, as_json: bool, done: str
) -> int:
    if as_json:
        rows = [
            {
                "mission": one.mission,
                "item": one.item,
                "account": one.account,
                "capability": one.capability,
                "state": one.state,
            }
            for one in found
        ]
        errors = [{"target": f"{one.mission}/{one.item}", "error": error} for one, error in refused]
        document({"matched": len(found), "requeued": done_count, "refused": errors, "items": rows})
    else:
        for one, error in refused[:SHOWN]:
            note(f"treadle: {safe(one.mission)}/{safe(one.item)}: {error}")
        say(f"{times(len(found) - len(refused), 'item')} {done}" + (f", {len(refused)} refused" if refused else ""))
    return 1 if refused else 0


def parked(
    most: Annotated[int, typer.Option(help="Show at most so many.", parser=whole(1, 100_000), metavar="N")] = 100,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """List parked items, which only a person brings back.

    They seem to kill their Workers (POISON), or none of their Checkpoints can be trusted (CHECKPOINT): `treadle retry
    MISSION/ITEM` offers one again. Or a person has to approve them (APPROVAL): `treadle approve MISSION/ITEM`. `treadle
    cancel MISSION/ITEM` ends one.

    --json: {"now_ms", "items": [{"mission", "item", "account", "capability", "held", "lost_runs", "since_ms",
    "digest", "damage"}]}; digest: of its inputs; damage: what of it its Worker could not read, null or {"what", "size",
    "digest", "of"}
    """

    async def read(store: Store) -> tuple[int, list[StuckFacts]]:
        return await store.now_ms(), await stuck.parked(store, most=most)

    now_ms, found = with_store(url, prefix, read)
    if as_json:
        names = ("mission", "item", "account", "capability", "held", "lost_runs", "since_ms", "digest")
        items = [
            {name: getattr(one, name) for name in names} | {"damage": one.damage and asdict(one.damage)}
            for one in found
        ]
        document({"now_ms": now_ms, "items": items})
        return
    if not found:
        note("nothing is parked")
        return
    columns = [
        *(Column("ITEM"), Column("CAPABILITY"), Column("ACCOUNT"), Column("HELD")),
        *(Column("LOST RUNS", right=True), Column("SINCE", right=True), Column("INPUTS", is_extra=True)),
        Column("DAMAGED", is_extra=True),
    ]
    rows = (
        *(
            (
                *(f"{one.mission}/{one.item}", one.capability, one.account, one.held, one.lost_runs),
                *(f"{span(now_ms - one.since_ms)} ago", one.digest[:12], one.damage.words() if one.damage else ""),
            )
            for one in found
        ),
    )
    table(columns, rows)
