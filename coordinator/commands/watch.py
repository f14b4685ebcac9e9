"""`treadle watch`: how far Missions are, live."""

from __future__ import annotations

from typing import Annotated

import typer
from treadle.shared.errors import Misuse
from treadle.shared.model import GroupId
from treadle.shared.names import token, unknown_mission
from treadle.shared.store import Store

from ..core.figures import is_well
from .displays import display, snapshot
from .following import End, follow, glance
from .opening import with_store
from .options import AsJsonLines, Prefix, Timeout, Url
from .output import note

Named = Annotated[
    list[str] | None, typer.Argument(metavar="[MISSION]...", help="Their ids; without one, all that are active.")
]


def watch(
    mission: Named = None,
    timeout: Timeout = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, write it as lines, and end.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Go on when none is active, for those that come.")] = False,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show how far Missions are, and what runs, until they have ended.

    Bars on a terminal, lines elsewhere: one for each change of a Mission, and for each run that says how far it is or has
    lasted a second. A server that goes away is waited for. Exit status 0: all of them were approved; 1: one was not, is not
    in the store, or --timeout passed first.

    With --once, exit status 0: none has ended otherwise than approved; 1: one has, or is not in the store.

    --json, a line each: {"kind": "progress", "at_ms", "mission", "state", "total", "verified", "running", "waiting",
    "failed", "cancelled", "open", "rate"} | {"kind": "run", "at_ms", "mission", "item", "attempt", "worker", "started_ms",
    "done", "total", "phase", "note", "milestones"} | {"kind": "store", "answers", ...} | {"kind": "gone", "at_ms", "mission"}
    """
    named = [GroupId(token(name, field="MISSION")) for name in dict.fromkeys(mission)] if mission else None

    if once and (stay or timeout is not None):
        raise Misuse("--once: looks once and waits for nothing; leave --stay and --timeout out")

    async def work(store: Store) -> End:
        if named is not None:
            for group in named:
                if await store.mission(group) is None:
                    raise unknown_mission(group)
        if once:
            frame = await glance(store, named)
            snapshot(frame, as_json=as_json)
            return End(frame)
        with display(as_json=as_json) as shown:
            return await follow(store, named, shown, timeout_s=timeout, stay=stay)

    end = with_store(url, prefix, work)
    frame = end.frame
    if end.timed_out:
        note(f"treadle: not ended within {timeout:g} s; it goes on")
        raise typer.Exit(1)
    if frame is not None and not frame.missions and not frame.gone and not as_json:
        note("no Mission is active" + ("" if once else "; --stay waits for one"))
    if frame is None or frame.gone or not is_well(frame.missions):
        raise typer.Exit(1)
