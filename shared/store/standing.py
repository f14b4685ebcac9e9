"""The state of a Group as the store's own keys have it, in the form that its log folds to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Unavailable
from ..model import GroupId, ItemState
from ..names import unknown_mission
from ..projection import Finished, Item, Projection
from . import keys, views
from .log import incarnation_of

_FIELDS = ("st", "cap", "w", "own", "ses", "oe", "lid", "ln", "sby", "ckn", "ckd", "fc", "nb", "hold", "dg")
_OWNED = (ItemState.QUEUED, ItemState.ACTIVE, ItemState.BLOCKED)
_PAGE = 500
_ATTEMPTS = 3


async def state_of(client: Any, base: str, group: GroupId) -> Projection:
    """What stands in the items' hashes and in the Mission's, as a projection at the Group's stored sequence.

    Refused (GROUP_NOT_FOUND) where there is no such Group; Unavailable where it changes faster than it is read.
    """
    for _ in range(_ATTEMPTS):
        before = await client.hget(keys.seqs(base), group)
        found = await _read(client, base, group, int(before) if (before or b"").isdigit() else 0)
        if before == await client.hget(keys.seqs(base), group):
            return found
    raise Unavailable(
        f"group {group} changes faster than it can be read: pause it first (`treadle pause mission:ID`), then ask again"
    )


async def _read(client: Any, base: str, group: GroupId, through: int) -> Projection:
    record = await client.hget(keys.groups(base), group)
    names = ("state", "digest", "account", "weight", "class", "total", "verified", "failed", "cancelled")
    values = await client.hmget(keys.mission(base, group), *names)
    if record is None or None in values:
        raise unknown_mission(group)
    state, *terms = (value.decode() for value in values[:5])
    found = Projection(group, incarnation_of(record))
    found.through = through
    found.mission = "active" if state == "loading" else state
    found.terms = tuple(terms)
    found.total, found.verified, found.failed, found.cancelled = map(int, values[5:])
    ids = await views.item_ids(client, base, group)
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        for item, fields in zip(page, await views.fields_of(client, base, group, page, _FIELDS), strict=True):
            if fields["st"]:
                _add(found, item, fields)
    return found


def _add(found: Projection, name: str, raw: Mapping[str, str]) -> None:
    state = raw["st"]
    number, epoch = int(raw["ln"] or 0), int(raw["oe"] or 0)
    if state in (ItemState.VERIFIED, ItemState.CANCELLED):
        digest = raw["dg"] if state == ItemState.VERIFIED else ""
        found.finished[name] = Finished(state, epoch, number, digest)
        return
    owned = state in _OWNED and raw["own"]
    found.items[name] = Item(
        state=state,
        capability=raw["cap"],
        width=int(raw["w"] or 1),
        owner=raw["own"] if owned else "",
        session=int(raw["ses"] or 0) if owned else 0,
        ownership_epoch=epoch,
        lease_id=raw["lid"] if state == ItemState.ACTIVE else "",
        number=number,
        latest=number if state == ItemState.ACTIVE else 0,
        start_by_ms=int(raw["sby"] or 0) if state == ItemState.QUEUED else 0,
        checkpoint=int(raw["ckn"] or 0),
        checkpoint_digest=raw["ckd"],
        failures=int(raw["fc"] or 0),
        retry_ms=int(raw["nb"] or 0) if state == ItemState.FAILED else 0,
        held=raw["hold"],
    )
