"""`treadle new-incarnation`: a person says that the store's data, as it is now, is to go on."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer
from treadle.shared.errors import Misuse, Unavailable
from treadle.shared.facts import ServerFacts
from treadle.shared.lifecycle import TERMINAL_MISSIONS
from treadle.shared.settings import Settings
from treadle.shared.store import Store, health, lineage

from ..core.health import judge
from ..core.readable import span, times
from .opening import default_actor, finish, opened, persist
from .options import AsJson, Prefix, Url, Yes
from .output import ask, document, note, say

_SHOWN = ("store", "lineage", "groups", "workers")
"""What of `treadle doctor` a person needs to know first."""


def new_incarnation(
    reason: Annotated[str, typer.Option(help="Recorded with it.", metavar="TEXT")] = "asked",
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Go on with the store's data as it is now, after a backup was restored.

    It shows what is there and asks. Then every token of before is lower than all that come after it, and no Session Epoch
    comes twice. Nothing is accepted or started for as long as the longest lease lasts; what was found gone back in time is
    trusted again. Who did it, when and why is kept; `treadle doctor` shows it.

    --json: {"incarnation", "quarantine_ms", "now_ms"}
    """
    settings = Settings(url=url, prefix=prefix)
    action = secrets.token_hex(8)

    async def work() -> tuple[int, int, int]:
        _refuse_what_is_not_there(facts := await health.examine(settings.url, prefix=settings.prefix))
        if not yes:
            _tell(facts)
        async with opened(settings) as store:
            if not yes:
                note(f"  {await _missions(store)}")
                ask(f"go on with this data of {store.endpoint.shown}, prefix {settings.prefix}?", "say so with --yes")
            number = await persist(
                store, lambda: lineage.new_incarnation(store, actor=default_actor(), action=action, reason=reason)
            )
            return number, (await lineage.read(store)).quarantine_ms, await store.now_ms()

    number, quarantine_ms, now_ms = finish(work)
    if as_json:
        document({"incarnation": number, "quarantine_ms": quarantine_ms, "now_ms": now_ms})
    elif quarantine_ms > now_ms:
        say(f"incarnation {number}; nothing is accepted or started for the next {span(quarantine_ms - now_ms)}")
    else:
        say(f"incarnation {number}")


def _refuse_what_is_not_there(facts: ServerFacts) -> None:
    if facts.unreachable:
        raise Unavailable(f"--url or TREADLE_URL: {facts.unreachable}; start that server or name another")
    if facts.format_version is None:
        raise Misuse(
            f"store {facts.address}, prefix {facts.prefix!r}: there is none, so nothing of it can go on; restore its data "
            "(docs/operations.md), name another --url or --prefix, or start any program there: it makes an empty store"
        )


def _tell(facts: ServerFacts) -> None:
    for one in judge(facts):
        if one.check in _SHOWN:
            note(f"  {one.check}: {one.found}")


async def _missions(store: Store) -> str:
    found = await store.missions()
    if not found:
        return "missions: none"
    live = sum(one.state not in TERMINAL_MISSIONS for one in found)
    newest = max(one.created_ms for one in found)
    ago = span(await store.now_ms() - newest)
    return f"missions: {times(len(found), 'Mission')}, {live} of them live; the newest was created {ago} ago"
