"""From what people wrote (`MissionSpec`) to what the store takes (`NewMission`): checked, packed, in topological order.

Pure: the same spec, id, actor and `now_ms` give the same plan in every process. Nothing is sent before all is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from heapq import heapify, heappop, heappush

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import Capability, GroupId, ItemId, MissionId, NewItem, NewMission, Urgency
from treadle.shared.names import check_capability, token

from ..specs import MissionSpec, WorkSpec, place, quoted

CALL_BYTES_MAX = 16 << 20
"""Of a Mission's inputs and dependencies together: it is created in one call until chunked load exists."""
DEADLINE_DEFAULT_MS = 30 * 86_400_000
TIME_MS_MAX = 10**14
"""From here on (the year 5138) a number is no longer exact in the store's scripts (design.md 3.10)."""
CYCLE_SHOWN_MAX = 8
DIGEST_FORM = "treadle.mission.1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def plan_mission(spec: MissionSpec, *, mission_id: str, actor: str, now_ms: int) -> NewMission:
    """Plan a Mission's creation at the store's time `now_ms`; Misuse for what could not be stored, or could never end.

    `actor` and `account` become tokens. The digest covers the content and the account, neither the actor nor the time:
    the same Mission is recognised whoever repeats it, wherever, in whatever order its dicts and its `work` are.
    """
    group = GroupId(token(mission_id, field="id"))
    account = token(actor if spec.account is None else spec.account, field="account")
    deadline_ms = _deadline_ms(spec.deadline, "deadline", now_ms)
    waits_for = _dependencies(spec.work)
    order = _topological(spec.work, waits_for)
    items = [_plan_item(item, index, now_ms) for index, item in enumerate(spec.work)]
    size = sum(len(item.inputs) + sum(map(len, item.after)) for item in items)
    if size > CALL_BYTES_MAX:
        raise Misuse(
            f"work: {size:,} bytes of inputs and dependencies, at most {CALL_BYTES_MAX:,} in one call until chunked load "
            "exists; split it into several Missions, or keep large data elsewhere and pass its address"
        )
    return NewMission(
        mission=MissionId(mission_id),
        group=group,
        digest=_digest(spec, account, deadline_ms, items),
        actor=token(actor, field="actor"),
        objective=spec.objective,
        account=account,
        weight=spec.weight,
        priority_class=spec.priority_class,
        deadline_ms=deadline_ms or now_ms + DEADLINE_DEFAULT_MS,
        items=tuple(items[index] for index in order),
    )


def _dependencies(work: Sequence[WorkSpec]) -> list[list[int]]:
    """For each item the indexes of those it waits for."""
    index_of: dict[str, int] = {}
    for index, item in enumerate(work):
        first = index_of.setdefault(item.id, index)
        if first != index:
            raise Misuse(f"{place(index, item.id)}: id: is also that of work[{first}]; ids are unique in a Mission")
    waits_for: list[list[int]] = []
    for index, item in enumerate(work):
        where = f"{place(index, item.id)}: after:"
        for name in item.after:
            if name not in index_of:
                likely = get_close_matches(name, index_of, 1)
                hint = (
                    f"did you mean {quoted(likely[0])}?" if likely else "name an item of this Mission, or leave it out"
                )
                raise Misuse(f"{where} unknown item {quoted(name)}; {hint}")
            if name == item.id:
                raise Misuse(f"{where} {quoted(name)} is the item itself, which would wait for ever; leave it out")
        if len(set(item.after)) < len(item.after):
            twice = next(name for name in item.after if item.after.count(name) > 1)
            raise Misuse(f"{where} {quoted(twice)} is there twice; name it once")
        waits_for.append([index_of[name] for name in item.after])
    return waits_for


def _topological(work: Sequence[WorkSpec], waits_for: list[list[int]]) -> list[int]:
    """Indexes in an order where each item stands behind what it waits for, else as given; Misuse names a cycle."""
    missing = [len(others) for others in waits_for]
    dependents: list[list[int]] = [[] for _ in waits_for]
    for index, others in enumerate(waits_for):
        for other in others:
            dependents[other].append(index)
    free = [index for index, count in enumerate(missing) if count == 0]
    heapify(free)
    order: list[int] = []
    while free:
        index = heappop(free)
        order.append(index)
        for dependent in dependents[index]:
            missing[dependent] -= 1
            if missing[dependent] == 0:
                heappush(free, dependent)
    if len(order) < len(waits_for):
        cycle = _cycle(waits_for, missing)
        names = [quoted(work[index].id)[1:-1] for index in (*cycle, cycle[0])]
        if len(names) > CYCLE_SHOWN_MAX:
            names[CYCLE_SHOWN_MAX - 2 : -1] = [f"... {len(cycle)} items ..."]
        raise Misuse(
            f"{place(cycle[0], work[cycle[0]].id)}: after: cycle {' -> '.join(names)}, each waiting for the next for "
            "ever; take one of these dependencies out"
        )
    return order


def _cycle(waits_for: list[list[int]], missing: list[int]) -> list[int]:
    """One cycle among the items that still miss something, beginning with its first item."""
    walked: list[int] = []
    index = next(index for index, count in enumerate(missing) if count)
    while index not in walked:
        walked.append(index)
        index = next(other for other in waits_for[index] if missing[other])
    cycle = walked[walked.index(index) :]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _plan_item(item: WorkSpec, index: int, now_ms: int) -> NewItem:
    where = place(index, item.id)
    return NewItem(
        item=ItemId(token(item.id, field=f"{where}: id")),
        capability=Capability(check_capability(item.capability, field=f"{where}: capability")),
        inputs=codec.pack(item.inputs, field=f"{where}: inputs", limit=codec.INPUTS_MAX),
        after=tuple(ItemId(token(name, field=f"{where}: after")) for name in item.after),
        width=item.slots,
        urgency=Urgency(item.urgency),
        business_impact=item.business_impact,
        deadline_ms=_deadline_ms(item.deadline, f"{where}: deadline", now_ms),
        start_by_s=item.start_by_s,
    )


def _deadline_ms(deadline: datetime | None, field: str, now_ms: int) -> int:
    """The deadline in the store's milliseconds, 0 where there is none; Misuse for one that is naive, past or too far."""
    if deadline is None:
        return 0
    if deadline.utcoffset() is None:
        raise Misuse(f"{field}: {deadline.isoformat()} has no time zone; use an aware datetime, as datetime.now(UTC)")
    deadline_ms = (deadline - _EPOCH) // _MILLISECOND
    if deadline_ms <= now_ms:
        now = (_EPOCH + now_ms * _MILLISECOND).isoformat(timespec="milliseconds")
        raise Misuse(f"{field}: {deadline.isoformat()} is in the past, the store's time is {now}; give a later one")
    if deadline_ms >= TIME_MS_MAX:
        raise Misuse(f"{field}: {deadline.isoformat()} is too far away, must be before the year 5138; leave it out")
    return deadline_ms


def _digest(spec: MissionSpec, account: str, deadline_ms: int, items: Sequence[NewItem]) -> str:
    content: list[object] = [DIGEST_FORM, spec.objective, account, spec.weight, spec.priority_class, deadline_ms]
    for item in sorted(items, key=lambda item: item.item):
        inputs = _sorted(codec.unpack(item.inputs, what=f"inputs of {item.item}"))
        content.append(
            [
                item.item,
                item.capability,
                codec.digest(codec.pack(inputs, field="inputs", limit=codec.INPUTS_MAX)),
                sorted(item.after),
                item.width,
                item.urgency.value,
                item.business_impact,
                item.deadline_ms,
                item.start_by_s,
            ]
        )
    return codec.digest(codec.pack(content, field="mission", limit=2 * CALL_BYTES_MAX))


def _sorted(value: object) -> object:
    """`value` with the keys of every dict in one order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(child) for child in value]
    return value
