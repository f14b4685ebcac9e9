"""Which item waits for which: an order to store them in, or why there is none. Near-linear in items and dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from treadle.shared.errors import Misuse

from ..specs import WorkSpec
from .wording import likely, place, quoted

DEPENDENTS_MAX = 16_384
"""Items that wait for one and the same (`_plan.lua`): released some a call, so the last of more would wait for long."""
CYCLE_SHOWN_MAX = 8


def topological(work: Sequence[WorkSpec], *, alone: bool) -> list[int]:
    """Indexes in an order where each item stands behind what it waits for, else as given.

    Misuse names an id or a dependency that is there twice, an item that waits for itself, a cycle, and too many that
    wait for one. Where the work stands `alone`, all that it waits for must be in it too.
    """
    waits_for = _dependencies(work, alone)
    missing = [len(others) for others in waits_for]
    dependents: list[list[int]] = [[] for _ in waits_for]
    for index, others in enumerate(waits_for):
        for other in others:
            dependents[other].append(index)
    for index, waiting in enumerate(dependents):
        if len(waiting) > DEPENDENTS_MAX:
            raise Misuse(
                f"{place(index, work[index].id)}: {len(waiting):,} items wait for it, at most {DEPENDENTS_MAX:,}; "
                "put items in between that pass its result on"
            )
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
        raise _cyclic(work, _cycle(waits_for, missing))
    return order


def _dependencies(work: Sequence[WorkSpec], alone: bool) -> list[list[int]]:
    """For each item the indexes of those of this work that it waits for."""
    index_of: dict[str, int] = {}
    for index, item in enumerate(work):
        first = index_of.setdefault(item.id, index)
        if first != index:
            raise Misuse(f"{place(index, item.id)}: id: is also that of work[{first}]; ids are unique in a Mission")
    waits_for: list[list[int]] = []
    for index, item in enumerate(work):
        if item.after:
            _check_after(index, item, index_of, alone)
        waits_for.append([index_of[name] for name in item.after if name in index_of])
    return waits_for


def _check_after(index: int, item: WorkSpec, index_of: dict[str, int], alone: bool) -> None:
    if len(set(item.after)) < len(item.after):
        twice = next(name for name in item.after if item.after.count(name) > 1)
        raise Misuse(f"{place(index, item.id)}: after: {quoted(twice)} is there twice; name it once")
    for name in item.after:
        if name == item.id:
            raise Misuse(
                f"{place(index, item.id)}: after: {quoted(name)} is the item itself, which would wait for ever; leave it out"
            )
        if alone and name not in index_of:
            meant = likely(name, index_of)
            hint = f"did you mean {quoted(meant)}?" if meant else "name an item of this Mission, or leave it out"
            raise Misuse(f"{place(index, item.id)}: after: unknown item {quoted(name)}; {hint}")


def _cycle(waits_for: list[list[int]], missing: list[int]) -> list[int]:
    """One cycle among the items that still miss something, beginning with its first item."""
    walked: dict[int, None] = {}
    index = next(index for index, count in enumerate(missing) if count)
    while index not in walked:
        walked[index] = None
        index = next(other for other in waits_for[index] if missing[other])
    path = list(walked)
    cycle = path[path.index(index) :]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _cyclic(work: Sequence[WorkSpec], cycle: list[int]) -> Misuse:
    shown = (*cycle, cycle[0])
    names = [quoted(work[index].id)[1:-1] for index in shown[:CYCLE_SHOWN_MAX]]
    if len(shown) > CYCLE_SHOWN_MAX:
        names[CYCLE_SHOWN_MAX - 2 :] = [f"... {len(cycle)} items ...", quoted(work[cycle[0]].id)[1:-1]]
    return Misuse(
        f"{place(cycle[0], work[cycle[0]].id)}: after: cycle {' -> '.join(names)}, each waiting for the next for "
        "ever; take one of these dependencies out"
    )
