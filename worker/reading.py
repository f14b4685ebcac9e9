"""What a Worker reads of a Group's log: from its Cursor to the end, over the Group's Snapshot where that is gone (R66)."""

from __future__ import annotations

import logging

from treadle.shared.errors import Corrupt, CursorTooOld
from treadle.shared.model import GroupId
from treadle.shared.names import shown
from treadle.shared.projection import Projection
from treadle.shared.store import Store, snapshots

from .tenure import Tenure

READ_PAGE = 1000
_log = logging.getLogger("treadle.worker")


async def read_on(store: Store, tenure: Tenure, group: GroupId) -> None:
    """Reads and folds until nothing is left; a Group whose log or Snapshot cannot be trusted is halted in this Worker."""
    partition = store.partition_of(group)
    while group not in tenure.halted:
        try:
            events = await store.read_log(group, after=tenure.inbox.cursor(group), count=READ_PAGE)
            received = tenure.inbox.replay(group, events)
        except CursorTooOld as old:
            await _resume(store, tenure, group, old)
        except Corrupt as error:
            tenure.halt(group, error)
        else:
            tenure.fold(partition, group, received.fresh)
            if received.read_after is None and len(events) < READ_PAGE:
                break


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
