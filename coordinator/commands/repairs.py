"""`treadle verify`, `repair`: whether a Mission's keys tell one story, and what to do where they do not."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from treadle.shared.errors import Misuse, Refused, Unavailable
from treadle.shared.model import GroupId
from treadle.shared.names import name_of, token
from treadle.shared.store import Store, repairing, verifying

from ..core.readable import cut, safe, times
from ..core.wording import quoted
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url, Yes
from .output import ask, document, note, say

MISSIONS_MAX = 100_000
SHOWN = 20
TELLS_EACH = 20_000
"""Events between two lines of progress."""


def verify(
    missions: Annotated[
        list[str] | None, typer.Argument(metavar="[MISSION]...", help="Which.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every Mission of the store.")] = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Compare Missions' logs, items and index entries.

    Tells each log again from its first Event, and reports where its items, its counts, or what its partition lists of it
    say something else. Reads only; a Mission that changes faster than it can be read is said, pause it for the moment.
    Exit status 1 where something differs.

    An Event that cannot be read and on which no state hangs is no difference: it is left out, and listed.

    --json: {"missions": [{"mission", "events", "items", "halted", "error", "more", "differences": [{"where", "what",
    "expected", "found"}], "quarantined": [{"seq", "kind", "why"}]}]}; halted: why it was halted, else null; more: not all
    differences are listed; quarantined: what was left out, with its size and digest
    """
    if bool(missions) == every:
        raise Misuse("MISSION: name at least one, or --all for every Mission of the store, not both")

    async def work(store: Store) -> list[dict[str, Any]]:
        names = missions or [view.mission for view in await store.missions(most=MISSIONS_MAX)]
        return [await _verified(store, name, as_json=as_json) for name in dict.fromkeys(names)]

    found = with_store(url, prefix, work)
    if as_json:
        document({"missions": found})
    bad = sum(bool(one["differences"] or one["error"] or one["halted"]) for one in found)
    if not as_json and len(found) > 1:
        say(f"{times(len(found), 'Mission')} compared, {bad or 'none'} with differences")
    if bad:
        raise typer.Exit(1)


async def _verified(store: Store, name: str, *, as_json: bool) -> dict[str, Any]:
    told = 0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if done - told >= TELLS_EACH and sys.stderr.isatty():
            told = done
            note(f"  {safe(name)}: {done:,} of {total:,} Events")

    try:
        found = await verifying.verify(store, GroupId(token(name, field="MISSION")), progress=progress)
    except (Refused, Unavailable) as error:
        if not as_json:
            note(f"treadle: {error}")
        return {"mission": name, "error": str(error), "halted": None, "differences": [], "quarantined": []}
    if not as_json:
        _say_verified(name, found)
    return {
        "mission": name,
        "events": found.events,
        "items": found.items,
        "halted": found.halted or None,
        "error": None,
        "more": found.has_more,
        "differences": [
            {"where": one.where, "what": one.what, "expected": one.expected, "found": one.found}
            for one in found.differences
        ],
        "quarantined": [{"seq": one.seq, "kind": one.kind, "why": one.quarantined} for one in found.quarantined],
    }


def _say_verified(name: str, found: verifying.Verified) -> None:
    halted = f", HALTED ({found.halted}): `treadle repair {safe(name)}` makes its log anew" if found.halted else ""
    what = f"{times(found.events, 'Event')}, {times(found.items, 'item')}"
    if found.quarantined:
        what += f", {len(found.quarantined):,} left out"
    for event in found.quarantined[:SHOWN]:
        note(f"  {safe(name)}: Event {event.seq} ({event.kind}) is left out: {event.quarantined}")
    if not found.differences:
        say(f"{safe(name)}: {what}, no difference{halted}")
        return
    say(f"{safe(name)}: {what}, {times(len(found.differences), 'difference')}{' and more' * found.has_more}{halted}")
    for one in found.differences[:SHOWN]:
        say(f"  {safe(one.where)}  {safe(one.what)}: expected {cut(one.expected, 60)}, found {cut(one.found, 200)}")
    if len(found.differences) > SHOWN:
        say(f"  and {len(found.differences) - SHOWN:,} more; --json shows them")
    if not found.halted and any(one.where == "log" for one in found.differences):
        say(f"  `treadle repair {safe(name)}` makes its log anew")


def repair(
    mission: Annotated[str, typer.Argument(metavar="MISSION", help="Which.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Recorded with it.", metavar="TEXT")] = "asked",
    drop_damaged: Annotated[
        bool, typer.Option("--drop-damaged", help="Fail the items that cannot be read, and repair the rest.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Make a damaged Mission's log anew and let it go on.

    For one that was halted, or whose log `verify` found damaged. Its items stay as they are, with results, Checkpoints and
    attempts; the log that is damaged goes, and a new one begins behind it, in the next incarnation, with who repaired it
    and why. Says what it would do and asks first. Safe to repeat, whatever it was killed at. Find out before who else
    writes to these keys. Exit status 1 where it cannot be repaired, with what is damaged.

    --json: {"mission", "halted", "incarnation", "through", "items", "damaged": [{"item", "what"}], "takeable",
    "repaired"}; as it was before, repaired false where nothing was to be done
    """
    group = GroupId(token(mission, field="MISSION"))
    why, actor = token(reason, field="--reason"), token(default_actor(), field="actor")

    async def work(store: Store) -> tuple[repairing.Plan, bool]:
        plan = await repairing.examine(store, group)
        is_damaged = bool(plan.halted) or await _has_damage(store, group)
        if not is_damaged and not plan.aside:
            return plan, False
        if not as_json or not yes:
            _say_plan(mission, plan)
        if not yes:
            ask(f"repair {quoted(mission)}?", "say so with --yes")
        if is_damaged and not plan.halted:
            await persist(store, lambda: repairing.halt(store, group))
            plan = await repairing.examine(store, group)
        await persist(store, lambda: repairing.repair(store, group, actor=actor, reason=why, drop_damaged=drop_damaged))
        return plan, True

    plan, done = with_store(url, prefix, work)
    if as_json:
        _document(mission, plan, done)
    elif done:
        say(f"{safe(mission)}: repaired, its log goes on at {plan.through + 1:,} in incarnation {plan.incarnation + 1}")
    else:
        say(f"{safe(mission)}: nothing to repair")


async def _has_damage(store: Store, group: GroupId) -> bool:
    return bool((await verifying.verify(store, group)).differences)


def _say_plan(mission: str, plan: repairing.Plan) -> None:
    note(f"{safe(mission)} is {plan.state}, {f'halted ({plan.halted})' if plan.halted else 'damaged'}:")
    note(f"  the log of incarnation {plan.incarnation} goes; a new one begins behind sequence {plan.through:,}")
    note(f"  {times(plan.items, 'item')} stay as they are, {plan.takeable:,} of them to be taken")
    for item, what in plan.damaged[:SHOWN]:
        note(f"  {safe(name_of(item))}: {what}; --drop-damaged fails it")
    if len(plan.damaged) > SHOWN:
        note(f"  and {len(plan.damaged) - SHOWN:,} more that cannot be read")


def _document(mission: str, plan: repairing.Plan, done: bool) -> None:
    document(
        {
            "mission": mission,
            "halted": plan.halted or None,
            "incarnation": plan.incarnation,
            "through": plan.through,
            "items": plan.items,
            "damaged": [{"item": name_of(item), "what": what} for item, what in plan.damaged],
            "takeable": plan.takeable,
            "repaired": done,
        }
    )
