"""What runs now of some Missions, and how far it says it is: read from what Agents hold, nothing written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..facts import RunFacts, WorkerFacts
from ..model import AgentId, GroupId, ItemId
from ..names import name_of
from . import keys, views
from .pictures import workers
from .store import Store

LOOKED_AT_MAX = 4_000
"""Items that Agents hold; beyond that a run may be missing."""
PAGE = 500
_FIELDS = ("st", "ln", "t0", "own", "pg")


async def underway(
    store: Store, groups: Collection[GroupId], sessions: Sequence[WorkerFacts] | None = None
) -> list[RunFacts]:
    """The runs of these Missions, by Mission and item; `sessions`: the Workers, where they were read before."""
    agents = [one.agent for one in (await workers(store))[1] if one.held] if sessions is None else []
    agents += [one.agent for one in sessions or () if one.held]
    found: list[RunFacts] = []
    for partition in sorted({store.partition_of(group) for group in groups}) if agents else ():
        found += await store.run(_runs, store.base(partition), agents, frozenset(groups))
    return sorted(found, key=lambda one: (one.mission, one.item))


async def _runs(client: Any, base: str, agents: Sequence[AgentId], groups: frozenset[GroupId]) -> list[RunFacts]:
    async with client.pipeline(transaction=False) as pipe:
        for agent in agents:
            pipe.zrange(keys.held(base, agent), 0, LOOKED_AT_MAX - 1)
        members = [member.decode().split(" ") for held in await pipe.execute() for member in held]
    wanted = [(GroupId(group), ItemId(item)) for group, item in members if group in groups][:LOOKED_AT_MAX]
    found: list[RunFacts] = []
    for start in range(0, len(wanted), PAGE):
        page = wanted[start : start + PAGE]
        async with client.pipeline(transaction=False) as pipe:
            for group, item in page:
                pipe.hmget(keys.item(base, group, item), _FIELDS)
            records = await pipe.execute()
        for (group, item), values in zip(page, records, strict=True):
            raw = {name.encode(): value for name, value in zip(_FIELDS, values, strict=True) if value is not None}
            if raw.get(b"st") == b"active":
                said = views.progress_of(raw)
                attempt, started_ms = int(raw.get(b"ln", b"0")), int(raw.get(b"t0", b"0"))
                worker = name_of(raw.get(b"own", b"").decode())
                found.append(RunFacts(name_of(group), group, name_of(item), worker, attempt, started_ms, said))
    return found
