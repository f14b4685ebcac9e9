"""A Group's log as one of its members reads it: from the Cursor to the end, over the Snapshot where that is gone (R66)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from treadle.shared.errors import Corrupt, CursorTooOld, Refused, Stale, StoreChanged
from treadle.shared.model import GroupId
from treadle.shared.names import shown
from treadle.shared.projection import Projection
from treadle.shared.store import Authority, Store, snapshots

from .tenure import Tenure

READ_PAGE = 1000
_log = logging.getLogger("treadle.worker")


async def read_on(
    authority: Authority, tenure: Tenure, group: GroupId, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Folds what is new in a Group's log; one that cannot be trusted is halted here, one that keeps us out is left.

    However long it is, no page is read once `is_over`.
    """
    partition = authority.store.partition_of(group)
    while group not in tenure.halted and not is_over():
        try:
            after = tenure.inbox.cursor(group)
            tail = await authority.tail(tenure.session, group, after=after, most=READ_PAGE)
            received = tenure.inbox.replay(group, tail.events, start=tail.start)
        except Corrupt as error:
            tenure.halt(group, error)
            return
        except CursorTooOld as old:
            await _resume(authority.store, tenure, group, old)
            continue
        except Refused as refused:
            _kept_from(tenure, partition, group, refused)
            return
        tenure.fold(partition, group, received.fresh)
        if received.read_after is None and len(tail.events) < READ_PAGE:
            return


def _kept_from(tenure: Tenure, partition: int, group: GroupId, refused: Refused) -> None:
    """What it means that a log may not be read; raised again where it is about more than that Group."""
    if refused.code == "MEMBERSHIP_STALE":
        _log.warning("group %s: this Agent's Membership was ended; nothing of it runs here any more", shown(group))
        tenure.expel(partition, group)
    elif refused.code in ("MEMBERSHIP_REQUIRED", "GROUP_NOT_FOUND") and not tenure.queues.owns(group):
        tenure.leave(group)  # a late doorbell
    elif isinstance(refused, Stale | StoreChanged):
        raise refused
    else:
        tenure.halt(group, Corrupt(str(refused)))


async def _resume(store: Store, tenure: Tenure, group: GroupId, old: CursorTooOld) -> None:
    """Goes on from the Group's Snapshot, since what this Worker would read next was trimmed."""
    try:
        snapshot = await snapshots.newest(store, group)
        if snapshot is None:
            raise Corrupt(f"{old}, and there is none")
        _take_up(tenure, store.partition_of(group), snapshot)
    except Corrupt as error:
        tenure.halt(group, error)
    else:
        _log.info("group %s: taken up from its Snapshot at %d", shown(group), snapshot.through)


def _take_up(tenure: Tenure, partition: int, snapshot: Projection) -> None:
    """Takes the Snapshot in place of Events that are not there any more; runs that are over by it, end here."""
    group, through = snapshot.group, snapshot.through
    if through <= tenure.inbox.cursor(group):
        raise Corrupt(f"group {group}: its Snapshot at {through} leads no further than the Cursor here")
    received = tenure.inbox.resume(group, through)
    tenure.queues.resume(snapshot)
    for run in list(tenure.runs.values()):
        held = tenure.queues.get(group, run.grant.item)
        is_held = held is not None and held.lease_id == run.lease.lease_id
        if run.grant.group == group and run.grant.seq <= through and not is_held:
            tenure.lose(run.lease, "ended below the Snapshot")
    tenure.fold(partition, group, received.fresh)
