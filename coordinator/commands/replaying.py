"""`treadle snapshot`, `replay`: what a Group's log folds to, now or at any sequence, and what stands for its beginning."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from treadle.shared.errors import Corrupt, Refused
from treadle.shared.model import GroupId, ItemState
from treadle.shared.names import name_of, token
from treadle.shared.projection import Item, Projection
from treadle.shared.settings import Settings
from treadle.shared.store import Store, snapshots

from ..core.readable import safe
from ..core.wording import quoted
from .opening import default_actor, with_store
from .options import AsJson, Prefix, Url, whole
from .output import Column, document, note, say, table
from .results import MissionId

SEQUENCE_MAX = 10**13
_MEND = "`treadle verify {0}` says all of it, `treadle repair {0}` makes the log anew"
At = Annotated[
    int | None,
    typer.Option("--at", help="As of this sequence; else the log's end.", parser=whole(1, SEQUENCE_MAX), metavar="SEQ"),
]


Keep = Annotated[
    int | None,
    typer.Option(
        "--keep",
        help="Events below the Snapshot that stay. TREADLE_LOG_KEEP, else 10,000.",
        parser=whole(0, 10_000_000),
        metavar="N",
    ),
]


def snapshot(
    mission: MissionId, keep: Keep = None, url: Url = None, prefix: Prefix = None, as_json: AsJson = False
) -> None:
    """Make a Snapshot of a Mission's state, and trim its log below it.

    Snapshots are made by themselves each 4,096 Events; this makes one now. Exit status 1 where the Mission is not there or
    has ended.

    --json: {"mission", "through", "digest", "size", "first"}: the sequence it is of, and the first one its log has
    """
    log_keep = Settings(url=url, prefix=prefix, log_keep=keep).log_keep

    async def work(store: Store) -> snapshots.Installed:
        actor = token(default_actor(), field="actor")
        try:
            return await snapshots.create(store, _group(mission), actor=actor, keep=log_keep)
        except Refused as error:
            if error.code != "INVALID_STATE_TRANSITION":
                raise
            text = f"mission {quoted(mission)} has ended: its log grows no more and goes whole when its time is over"
            raise Refused(text, code=error.code, details=error.details) from None

    made = with_store(url, prefix, work)
    if as_json:
        fields = {"through": made.through, "digest": made.digest, "size": made.size, "first": made.first}
        document({"mission": mission} | fields)
        return
    begins = "its log is whole" if made.first == 1 else f"its log begins at {made.first:,}"
    say(f"{safe(mission)}: Snapshot at {made.through:,}, {made.size:,} bytes; {begins}")


def replay(mission: MissionId, at: At = None, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show a Mission as its Events tell it, at any sequence.

    From its Snapshot, or its first Event, and what follows: the store's other keys are not looked at. What was trimmed
    cannot be shown any more: then it says from where on it can, with exit status 1.

    --json: {"mission", "at", "digest", "state", "total", "verified", "failed", "cancelled", "items": [{"item", "state",
    "capability", "owner", "ownership_epoch", "runs", "checkpoint", "failures", "held"}]}; of verified and cancelled items
    the last 4,096
    """
    found = with_store(url, prefix, lambda store: _fold(store, mission, at))
    if as_json:
        document(
            {
                "mission": mission,
                "at": found.through,
                "digest": found.digest(),
                "state": found.mission,
                "total": found.total,
                "verified": found.verified,
                "failed": found.failed,
                "cancelled": found.cancelled,
                "items": [*_rows(found)],
            }
        )
        return
    say(
        f"{safe(mission)} at {found.through:,}: {found.mission}, {found.total:,} items, {found.verified:,} verified, "
        f"{found.failed:,} failed, {found.cancelled:,} cancelled"
    )
    columns = [
        *(Column("ITEM"), Column("STATE"), Column("CAPABILITY", is_extra=True), Column("OWNER", is_extra=True)),
        *(Column("EPOCH", right=True), Column("RUNS", right=True), Column("CHECKPOINT", right=True)),
        *(Column("FAILURES", right=True, is_extra=True), Column("HELD", is_extra=True)),
    ]
    if found.items or found.finished:
        table(columns, ([*row.values()] for row in _rows(found)))
    missing = found.verified + found.cancelled - len(found.finished)
    if missing > 0:
        note(f"{missing:,} that were verified or cancelled before these are counted and not named any more")


async def _fold(store: Store, mission: str, at: int | None) -> Projection:
    group = _group(mission)
    try:
        found = await snapshots.fold(store, group, at=at)
    except Corrupt as error:
        raise Corrupt(f"{error}; {_MEND.format(safe(mission))}") from None
    if at is not None and found.through < at:
        note(f"the log of {quoted(mission)} ends at {found.through:,}: this is its end")
    return found


def _group(mission: str) -> GroupId:
    return GroupId(token(mission, field="mission"))


def _rows(found: Projection) -> list[dict[str, Any]]:
    """A row an item: what moves first, by state and name, then what is over in the order in which it ended."""
    order = {state.value: number for number, state in enumerate(ItemState)}
    moving = sorted(found.items.items(), key=lambda named: (order[named[1].state], named[0]))
    rows = [_row(name, item) for name, item in moving]
    for name, done in found.finished.items():
        ended = Item(done.state, "", 1, ownership_epoch=done.ownership_epoch, number=done.number)
        rows.append(_row(name, ended))
    return rows


def _row(name: str, item: Item) -> dict[str, Any]:
    return {
        "item": name_of(name),
        "state": item.state,
        "capability": item.capability,
        "owner": name_of(item.owner) if item.owner else "",
        "ownership_epoch": item.ownership_epoch,
        "runs": item.number,
        "checkpoint": item.checkpoint,
        "failures": item.failures,
        "held": item.held,
    }
