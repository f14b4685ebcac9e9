"""Schedules in the store: made, listed, deleted, and fired, exactly once a tick over any number of processes (design.md 5).

A schedule stands in the partition of its Mission, with a due entry. Whoever ticks that partition is told which schedules are
due, reckons what comes after (`shared.schedules`), and fires them: a compare-and-set on the tick. No clock but the store's
says that a tick is due.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from .. import codec
from ..errors import Backpressure, Corrupt, Misuse, Refused, StoreChanged, TreadleError
from ..model import UNBOUNDED, Capability, GroupId, ItemId
from ..names import name_of, shown
from ..policy import DEFAULT_POLICY, Policy
from ..schedules import (
    ID_BYTES_MAX,
    Due,
    Interval,
    Missed,
    NewSchedule,
    ScheduleId,
    ScheduleView,
    next_due,
    parse_spec,
    spec_text,
    what_follows,
)
from . import keys, policies
from .replies import Envelope
from .store import FencedCall, Store

FIRED_AT_ONCE_MAX = 256
"""Ticks that one call of `fire_due` carries out; the rest stays due, for whoever ticks next."""
HANDED_MS = 2_000
"""What is due and not fired comes again after so long (`_timetable.lua`)."""
SAID_EACH_MS = 60_000
"""How often it is said that a tick waits for room."""
_PAGE = 500
_RECORD_FIELDS = 16
_OVERTAKEN = frozenset({"REVISION_CONFLICT", "INVALID_COMMAND"})
"""Another process fired it first, or somebody deleted it."""
_log = logging.getLogger("treadle.store")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What the making of a schedule was answered."""

    next_ms: int
    repeated: bool
    """Whether it was there already, with the same content."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What came of firing one tick."""

    item: ItemId
    repeated: bool
    """Whether it had been fired before."""
    next_ms: int
    envelope: Envelope


async def schedule(store: Store, new: NewSchedule, *, replace: bool = False) -> Scheduled:
    """Makes a schedule of an open Mission; the same one again changes nothing.

    Misuse for a spec that never ticks, or fields of its item that say nothing here. Refused: ACTION_ID_COLLISION where its id
    has other content, unless it is to `replace` that; GROUP_NOT_FOUND or INVALID_STATE_TRANSITION where its Mission takes
    no items.
    """
    _check(new)
    now_ms = await store.now_ms()
    digest, spec, item = _digest(new), new.spec, new.item
    if isinstance(spec, Interval) and not spec.anchor_ms:
        spec = dataclasses.replace(spec, anchor_ms=now_ms)
    due_ms = next_due(spec, now_ms)
    answer = await store.call(
        "schedule",
        store.partition_of(new.group),
        (
            *("replace" if replace else "create", new.group, new.schedule, new.actor, digest, due_ms, new.missed.value),
            *(_token(spec_text(spec)), item.capability, item.width, item.urgency.value, item.business_impact),
            *(item.start_by_s, item.retry.replace(" ", ",") or "-", item.inputs, item.contract, item.timeout_ms),
        ),
    )
    return Scheduled(int(answer[2]), answer[1] == b"0")


async def unschedule(store: Store, group: GroupId, schedule_: ScheduleId, *, actor: str) -> bool:
    """Deletes a schedule; the items of its ticks stay. False: there is none of that id."""
    answer = await store.call("schedule", store.partition_of(group), ("delete", group, schedule_, actor))
    return answer[1] == b"1"


async def schedules(store: Store, group: GroupId | None = None) -> list[ScheduleView]:
    """All schedules of the store, or of one Mission, by Mission and id."""
    partitions = range(store.partitions) if group is None else [store.partition_of(group)]
    found: list[ScheduleView] = []
    for partition in partitions:
        key = keys.schedules(store.base(partition))
        found += [_view(field, packed, where=key) for field, packed in await store.run(_read, key)]
    mine = [view for view in found if group in (None, view.group)]
    return sorted(mine, key=lambda view: (view.group, view.schedule))


async def fire(store: Store, due: Due, *, now_ms: int, policy: Policy = DEFAULT_POLICY) -> Fired:
    """Carries out one tick as of the store's time `now_ms`, or learns that it was carried out before.

    Refused: REVISION_CONFLICT where another tick is the next, INVALID_COMMAND where the schedule was deleted, QUOTA_EXCEEDED
    where its account or Mission has as many unfinished items as the policy grants.
    """
    (answer,) = await store.call_each([_call(store, due, now_ms, await _bounds(store, due.group, policy))])
    if isinstance(answer, TreadleError):
        raise answer
    return _fired(due, answer)


async def fire_due(store: Store, due: Sequence[Due], envelope: Envelope) -> Envelope:
    """Fires what a tick told to be due, and what of it was missed besides; gives the latest envelope.

    What another process fired first, or somebody deleted meanwhile, is passed over; what this host cannot reckon, a full store
    does not take now, or would be more than the policy grants, is left for later.
    """
    policy = await _policy(store, envelope)
    bounds = {group: await _bounds(store, group, policy) for group in dict.fromkeys(one.group for one in due)}
    pending: list[Due] = list(due)
    left = FIRED_AT_ONCE_MAX
    while pending and left > 0:
        calls: dict[Due, FencedCall] = {}
        for one in pending[:left]:
            try:
                calls[one] = _call(store, one, envelope.now_ms, bounds[one.group])
            except (Misuse, Corrupt) as error:
                _put_off(one, error)
        left -= len(calls)
        pending = []
        for one, answer in zip(calls, await store.call_each(list(calls.values())) if calls else (), strict=True):
            if isinstance(answer, TreadleError):
                _excuse(one, answer, envelope.now_ms)
                continue
            fired = _fired(one, answer)
            envelope = fired.envelope
            if fired.next_ms <= envelope.now_ms:
                pending.append(dataclasses.replace(one, due_ms=fired.next_ms))
    return envelope


async def _policy(store: Store, envelope: Envelope) -> Policy:
    """The policy that stands; where it cannot be read here nothing is held against it: no tick waits for an upgrade."""
    try:
        return await policies.known(store) if envelope.policy else DEFAULT_POLICY
    except (Misuse, Corrupt) as error:
        _log.error("schedules fire whatever the policy grants, which cannot be read: %s", error)
        return DEFAULT_POLICY


def _excuse(due: Due, error: TreadleError, now_ms: int) -> None:
    """Takes an error that stops this one tick only; raises what stops the caller."""
    if isinstance(error, StoreChanged) or not isinstance(error, Refused | Backpressure):
        raise error
    if error.code == "QUOTA_EXCEEDED":
        if (now_ms - due.due_ms) % SAID_EACH_MS < HANDED_MS:
            _put_off(due, error)
    elif error.code not in _OVERTAKEN:
        _put_off(due, error)


def _put_off(due: Due, error: TreadleError) -> None:
    _log.error("schedule %s of mission %s does not fire now: %s", shown(due.schedule), shown(due.group), error)


def parse_due(raw: bytes) -> list[Due]:
    """The due schedules in a tick's reply (`T.come_due`); a line that is none is said in the log and left out."""
    found: list[Due] = []
    for line in raw.decode().splitlines():
        words = line.split(" ")
        if len(words) != 5 or not words[2].isdecimal() or words[3] not in set(Missed):
            _log.error("tick: %.200r is no due schedule (group schedule due missed spec); it does not fire", line)
            continue
        group, schedule_, due_ms, missed, spec = words
        found.append(Due(GroupId(group), ScheduleId(schedule_), int(due_ms), Missed(missed), unquote(spec)))
    return found


async def _bounds(store: Store, group: GroupId, policy: Policy) -> str:
    """What the ticks of a Group's schedules are held to, as of now in the account's other partitions."""
    account = await store.account_of(group) if policy.bounds_queued else ""
    return await store.bounds(policy.queued(account, group) if account else UNBOUNDED, group, account)


def _call(store: Store, due: Due, now_ms: int, bounds: str) -> FencedCall:
    next_ms, skipped = what_follows(parse_spec(due.spec), due.missed, due.due_ms, now_ms)
    arguments = (store.replid, due.group, due.schedule, due.due_ms, next_ms, skipped, bounds)
    return "fire", store.partition_of(due.group), arguments


def _fired(due: Due, answer: Sequence[bytes]) -> Fired:
    item = ItemId(f"{due.schedule}%40{due.due_ms}")
    return Fired(item, answer[1] == b"repeated", int(answer[2]), Envelope.parse(answer[0]))


def _token(text: str) -> str:
    return quote(text, safe="")


def _check(new: NewSchedule) -> None:
    size = len(name_of(new.schedule).encode())
    if not 1 <= size <= ID_BYTES_MAX:
        raise Misuse(f"schedule: {size} bytes, must be 1 to {ID_BYTES_MAX}")
    if new.item.after or new.item.deadline_ms or new.item.not_before:
        raise Misuse("item: after, deadline and not_before belong to one item; a schedule adds one with each tick")
    if len(new.item.inputs) > codec.INPUTS_MAX:
        raise Misuse(f"inputs: {len(new.item.inputs):,} bytes when packed, at most {codec.INPUTS_MAX:,}")


def _digest(new: NewSchedule) -> str:
    """Of all that a schedule says, but for who says it."""
    item = new.item
    parts = (
        spec_text(new.spec),
        new.missed.value,
        item.capability,
        item.width,
        item.urgency.value,
        item.business_impact,
    )
    content = "\0".join(str(part) for part in (*parts, item.start_by_s, item.retry))
    bodies = f"{len(item.inputs)}\0".encode() + item.inputs + item.contract
    return codec.digest(content.encode() + b"\0" + bodies)


async def _read(client: Any, key: str) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    cursor = 0
    while True:
        cursor, page = await client.hscan(key, cursor, count=_PAGE)
        found += page.items()
        if cursor == 0:
            return sorted(dict(found).items())


def _view(field: bytes, packed: bytes, *, where: str) -> ScheduleView:
    group, _, schedule_ = field.decode().partition(" ")
    words = packed.partition(b"\n")[0].decode().split(" ")
    try:
        due, _, created, actor, missed, fired, last, skipped, spec, capability, *_ = words
        if len(words) != _RECORD_FIELDS:
            raise ValueError(f"{len(words)} tokens")
        return ScheduleView(
            schedule=ScheduleId(schedule_),
            group=GroupId(group),
            spec=parse_spec(unquote(spec)),
            missed=Missed(missed),
            capability=Capability(capability),
            actor=name_of(actor),
            created_ms=int(created),
            next_ms=int(due),
            fired=int(fired),
            last_ms=int(last),
            skipped=int(skipped),
        )
    except ValueError as error:
        raise Corrupt(f"{where}: {field[:80]!r} is no schedule: {error}") from None
