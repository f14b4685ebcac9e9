"""How new Missions and items travel: in chunks, as arguments, and what their receipts say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import Capability, NewItem, NewMission, Queued, Risk
from ..resources import packed, unpacked
from .operations import Arguments

CHUNK_ITEMS, CHUNK_BYTES, CHUNK_DEPENDENCIES = 256, 4 << 20, 1024
"""Of one call: what the scripts allow of items and dependencies, and less than what they allow in bytes."""


def chunks_of(items: Sequence[NewItem]) -> list[list[NewItem]]:
    """The items in calls' worths, in their order; the same every time, since a load is taken up where it stopped."""
    chunks: list[list[NewItem]] = []
    size = edges = 0
    for item in items:
        size, edges = size + len(item.inputs), edges + len(item.after)
        if not chunks or len(chunks[-1]) == CHUNK_ITEMS or size > CHUNK_BYTES or edges > CHUNK_DEPENDENCIES:
            chunks.append([])
            size, edges = len(item.inputs), len(item.after)
        chunks[-1].append(item)
    return chunks


def mission_arguments(mission: NewMission, form: str) -> Arguments:
    """The arguments of `create.lua` for the Mission itself; `form` as it says."""
    return [
        *(mission.group, mission.digest, mission.actor, mission.objective, mission.account, repr(mission.weight)),
        *(mission.priority_class, mission.deadline_ms, mission.keep_results_s * 1000, mission.budget_ms),
        *(form, len(mission.items)),
    ]


def bounds_argument(queued: Queued, elsewhere: int) -> str:
    """The bounds of unfinished items, as `lua/_queued.lua` reads them; `elsewhere`: of the account in other partitions."""
    bounds = ("-" if most is None else str(most) for most in (queued.account, queued.mission))
    of = () if queued.version is None else (str(queued.version),)
    return " ".join((*bounds, str(elsewhere), *of))


def item_arguments(items: Sequence[NewItem]) -> Arguments:
    """The arguments of items, as `lua/_plan.lua` reads them."""
    return list(_arguments(items))


def _arguments(items: Sequence[NewItem]) -> Iterator[str | bytes | int | float]:
    for item in items:
        yield from (item.item, item.capability, item.width, item.urgency.value, item.business_impact)
        yield from (item.deadline_ms, item.start_by_s, item.not_before, item.retry, item.digest)
        yield from (" ".join(item.after), item.inputs, item.contract, item.offer, item.timeout_ms)
        gates = " ".join(filter(None, (item.gates, "" if item.risk is Risk.NONE else f"risk:{item.risk}")))
        yield from (gates, packed(item.resources))


def who_could(
    said: Sequence[bytes],
) -> tuple[tuple[Capability, ...], dict[Capability, int], dict[Capability, dict[str, int]]]:
    """What a receipt says of the live Workers: capabilities nobody offers, those whose largest Worker is too narrow, and
    those of which no Worker has all the resources that one needs, with the most that any has of each."""
    missing = tuple(Capability(name) for name in said[0].decode().split())
    slots: dict[Capability, int] = {}
    lacking: dict[Capability, dict[str, int]] = {}
    for name, _, most in (pair.partition(":") for pair in said[1].decode().split()):
        if "=" in most:
            lacking[Capability(name)] = dict(unpacked(most))
        else:
            slots[Capability(name)] = int(most)
    return missing, slots, lacking
