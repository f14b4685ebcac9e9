"""Pictures for people: Workers, Groups, progress, and what one WorkItem waits for. Read with plain commands, nothing written.

They are no snapshots: other processes write while they are read, so two figures of one picture may be moments apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from .. import codec
from ..errors import Corrupt, TreadleError
from ..facts import ENDED, FailureFacts, GroupFacts, ItemFacts, Progress, WorkerFacts
from ..model import STARTS_EPOCH_MS, AgentId, Capability, GroupId, ItemId, ItemState, MissionState, Risk
from ..names import name_of
from ..resources import parse_capacity, unpacked
from ..versions import parted, shelf
from . import keys, views
from .controls import KINDS
from .replies import parse_usage
from .store import Store

SESSION_TTLS = 10
"""The due entry of a session stands this many lease TTLs behind its last renewal (`_session.lua`)."""
PAGE = 500
SHOWN_DEPENDENCIES = 20
AFTER_MAX = 1_000
RUNS_LOOKED_AT = 4_000


async def workers(store: Store) -> tuple[int, list[WorkerFacts]]:
    """The store's time and the sessions it lists, by name; one that only some partitions know counts as one."""
    now_ms = await store.now_ms()
    found: dict[AgentId, WorkerFacts] = {}
    for partition in range(store.partitions):
        base = store.base(partition)
        for one in await store.run(_sessions, base):
            seen = found.get(one.agent)
            if seen is not None and seen.epoch > one.epoch:
                continue
            if seen is not None and seen.epoch == one.epoch:
                one = replace(one, renewed_ms=max(one.renewed_ms, seen.renewed_ms), held=one.held + seen.held)
            found[one.agent] = one
    return now_ms, sorted(found.values(), key=lambda one: one.agent)


async def _sessions(client: Any, base: str) -> list[WorkerFacts]:
    records = await client.hgetall(keys.sessions(base))
    parsed = [_session(agent.decode(), raw.decode()) for agent, raw in records.items()]
    async with client.pipeline(transaction=False) as pipe:
        for one in parsed:
            pipe.zscore(keys.due(base), f"x {one.agent} {one.epoch}")
            pipe.zcard(keys.held(base, one.agent))
        answers = await pipe.execute()
    facts: list[WorkerFacts] = []
    for i, one in enumerate(parsed):
        due, held = answers[2 * i], answers[2 * i + 1]
        renewed_ms = int(due) - SESSION_TTLS * one.ttl_ms if due is not None else 0
        facts.append(replace(one, renewed_ms=renewed_ms, held=int(held)))
    return facts


def _session(agent: str, record: str) -> WorkerFacts:
    """A record: "epoch set ttl slots capability,capability"."""
    try:
        epoch, _set, ttl, capacity, capabilities = record.split(" ")
        listed = [Capability(name) for name in capabilities.split(",") if name]
        names = tuple(name for name in listed if not parted(name)[1])
        versions = tuple(name for name in listed if parted(name)[1])
        has, resources = parse_capacity(capacity)
        return WorkerFacts(AgentId(agent), int(epoch), names, has, int(ttl), 0, 0, versions, resources)
    except ValueError:
        raise Corrupt(f"sessions: {record[:200]!r} of {agent} is no session") from None


async def groups(store: Store, *, most: int = 1000, only_live: bool = True) -> list[GroupFacts]:
    """Groups, by account and Mission; with `only_live` those of ended Missions are left out, which costs no command each."""
    now_ms = await store.now_ms()
    found: list[GroupFacts] = []
    for partition in range(store.partitions):
        left = most - len(found)
        if left > 0:
            found += await store.run(_groups, store.base(partition), partition, now_ms, left, only_live)
    return sorted(found, key=lambda one: (one.account, one.mission))


async def _groups(client: Any, base: str, partition: int, now_ms: int, most: int, only_live: bool) -> list[GroupFacts]:
    records = {
        GroupId(name.decode()): raw.decode().split(" ")
        for name, raw in (await client.hgetall(keys.groups(base))).items()
    }
    unseen = {"loading", *(ENDED if only_live else ())}
    names = [name for name, record in records.items() if record[0] not in unseen][:most]
    found: list[GroupFacts] = []
    for page in _pages(names):
        async with client.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.usage(base), [f"g:{name}" for name in page])
            pipe.hmget(keys.seqs(base), page)
            for name in page:
                pipe.xlen(keys.log(base, name))
                pipe.xrange(keys.log(base, name), count=1)
                pipe.hmget(keys.mission(base, name), "caps", "total", "snap")
            usages, seqs, *more = await pipe.execute()
        logs, missions = zip(more[::3], more[1::3], strict=True), more[2::3]
        takeable = await _takeable(client, base, page, [caps for caps, _, _ in missions])
        flags = await _flags(client, base)
        rows = zip(page, usages, seqs, logs, missions, takeable, strict=True)
        for name, usage, seq, (length, first), (_, total, snapshot), (count, takes) in rows:
            used_ms, running = _service(usage, now_ms)
            state, weight, account, priority_class, *_ = records[name]
            if state == "active" and not flags.keys().isdisjoint(("all", f"a:{account}", f"g:{name}")):
                state = "paused"
            found.append(
                GroupFacts(
                    mission=name_of(name),
                    group=name,
                    partition=partition,
                    state=state,
                    account=name_of(account),
                    weight=float(weight),
                    priority_class=priority_class,
                    takeable=count,
                    takes=takes,
                    running=running,
                    used_ms=used_ms,
                    seq=int(seq or 0),
                    log_length=int(length),
                    items=int(total or 0),
                    first_seq=int(first[0][0].partition(b"-")[0]) if first else 0,
                    snapshot_seq=int(snapshot.split(b" ")[0]) if snapshot else None,
                )
            )
    return found


async def _takeable(
    client: Any, base: str, names: Sequence[GroupId], caps: Sequence[bytes | None]
) -> list[tuple[int, tuple[str, ...]]]:
    """How many items of each Group may be taken now, over all its capabilities, and in which places of the index."""
    async with client.pipeline(transaction=False) as pipe:
        for name, listed in zip(names, caps, strict=True):
            for capability in (listed or b"").decode().split():
                place, least, most = keys.take(base, capability), f"[{name} ", f"({name}!"
                if capability.startswith(">"):
                    pipe.zrangebylex(place, least, most, start=0, num=PAGE)
                else:
                    pipe.zlexcount(place, least, most)
        answers = iter(await pipe.execute())
    found: list[tuple[int, tuple[str, ...]]] = []
    for listed in caps:
        places = (listed or b"").decode().split()
        said = [next(answers) for _ in places]
        # What is offered to several by name stands under each of them.
        asked = {member for one in said if isinstance(one, list) for member in cast("list[bytes]", one)}
        count = len(asked) + sum(one for one in said if isinstance(one, int))
        found.append((count, tuple(place for place, one in zip(places, said, strict=True) if one)))
    return found


def _service(packed: bytes | None, now_ms: int) -> tuple[int, int]:
    """Slot-milliseconds used up to now, and slots that run now (scheduler.md, rule 1)."""
    if not packed:
        return 0, 0
    usage = parse_usage(packed.decode().split())
    return max(0, usage.used_ms + usage.running * (now_ms - STARTS_EPOCH_MS) - usage.starts_ms), usage.running


async def progress(store: Store, wanted: Sequence[GroupId] | None = None, *, most: int = 1000) -> list[Progress]:
    """How far the named Missions are, in their order; with None, the active ones, oldest first. One not there is left out."""
    by_partition: dict[int, list[GroupId]] = {}
    for group in wanted or ():
        by_partition.setdefault(store.partition_of(group), []).append(group)
    found: dict[GroupId, tuple[int, Progress]] = {}
    for partition in range(store.partitions) if wanted is None else sorted(by_partition):
        base = store.base(partition)
        names = by_partition.get(partition) if wanted is not None else await store.run(_active, base, most)
        found |= await store.run(_progress, base, names or [])
    if wanted is not None:
        return [found[group][1] for group in dict.fromkeys(wanted) if group in found]
    return [one for _, one in sorted(found.values(), key=lambda pair: (pair[0], pair[1].group))][:most]


async def _active(client: Any, base: str, most: int) -> list[GroupId]:
    records = await client.hgetall(keys.groups(base))
    live = [name for name, record in records.items() if record.decode().split(" ")[0] not in ENDED]
    return [GroupId(name.decode()) for name in live][:most]


async def _progress(client: Any, base: str, names: Sequence[GroupId]) -> dict[GroupId, tuple[int, Progress]]:
    found: dict[GroupId, tuple[int, Progress]] = {}
    fields = ("state", "created", "total", "verified", "failed", "cancelled", "form")
    for page in _pages(names):
        async with client.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.usage(base), [f"g:{name}" for name in page])
            for name in page:
                pipe.hmget(keys.mission(base, name), fields)
            usages, *records = await pipe.execute()
        for name, usage, record in zip(page, usages, records, strict=True):
            state, created, total, verified, failed, cancelled, form = ((raw or b"").decode() for raw in record)
            if state in tuple(MissionState):
                _, running = _service(usage, 0)
                one = Progress(
                    mission=name_of(name),
                    group=name,
                    state=MissionState(state),
                    total=int(total or "0"),
                    verified=int(verified or "0"),
                    failed=int(failed or "0"),
                    cancelled=int(cancelled or "0"),
                    running=running,
                    is_open=form == "open" and state == MissionState.ACTIVE,
                )
                found[name] = int(created or "0"), one
    return found


async def why(store: Store, group: GroupId, item: ItemId) -> ItemFacts | None:
    """All that one WorkItem waits for; None where there is no such Mission or item."""
    base = store.base(store.partition_of(group))
    now_ms = await store.now_ms()
    found = await store.run(_item, base, group, item, now_ms)
    if found is None:
        return None
    facts, account = found
    if facts.state not in (ItemState.OPEN, ItemState.OFFERED, ItemState.FAILED):
        return facts
    sessions = [one for one in (await workers(store))[1] if one.can(facts.capability)]
    live = tuple(one for one in sessions if not one.is_silent(now_ms))
    busy = sum((await slots_in_use(store, live)).values())
    flags = await store.run(_flags, base)
    quarantine_ms = int(await store.run(lambda client: client.hget(keys.meta(base), "quarantine")) or b"0")
    holding = ("all", f"a:{account}", f"c:{parted(facts.capability)[0]}", f"g:{group}")
    paused = tuple(flags[flag] for flag in holding if flag in flags)
    ended = await store.run(lambda client: client.hkeys(keys.ended(base, group)))
    kept_out = tuple(sorted(AgentId(agent.decode()) for agent in ended))
    facts = replace(facts, workers=live, kept_out=kept_out, busy=busy)
    return replace(facts, paused=paused, quarantine_ms=quarantine_ms)


async def _item(client: Any, base: str, group: GroupId, item: ItemId, now_ms: int) -> tuple[ItemFacts, str] | None:
    async with client.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.mission(base, group), "state", "budget")
        pipe.hget(keys.groups(base), group)
        pipe.hget(keys.usage(base), f"g:{group}")
        pipe.hgetall(keys.item(base, group, item))
        (mission_state, budget), record, usage, raw = await pipe.execute()
    if not mission_state or not record or b"st" not in raw:
        return None
    text = {name.decode(): value.decode("utf-8", "replace") for name, value in raw.items()}
    state, capability = ItemState(text["st"]), Capability(text["cap"])
    group_state, _weight, account, *_ = record.decode().split(" ")
    waits_for = await _unverified(client, base, group, text.get("after", "").split()) if state is ItemState.OPEN else ()
    ahead = 0
    if state is ItemState.OFFERED and "key" in text and "to" not in text:
        ahead = await client.zlexcount(keys.take(base, shelf(capability)), f"[{group} ", f"({group} {text['key']}")
    failed = await evidence(client, base, group, item, raw.get(b"fl"), raw.get(b"flx"))
    active = state is ItemState.ACTIVE
    blocked = await views.block(client, base, group, item, raw)
    facts = ItemFacts(
        now_ms=now_ms,
        mission=name_of(group),
        item=name_of(item),
        mission_state=MissionState(mission_state.decode()),
        group_state=group_state,
        state=state,
        capability=capability,
        width=int(text.get("w", "1")),
        resources=unpacked(text.get("need", "")),
        waits_for=waits_for,
        dependencies_left=int(text.get("dep", "0")),
        next_ms=int(text.get("nb", "0")),
        failures=int(text.get("fc", "0")),
        lost_runs=int(text.get("lp", "0")),
        held=text.get("hold", ""),
        damage=views.damage_of(raw),
        needs_approval=text.get("ap") == "wanted",
        risk=Risk(text.get("rk", "none")),
        offer=views.offer_of(raw, now_ms),
        owner=AgentId(text["own"]) if text.get("own") else None,
        start_by_ms=int(text.get("sby", "0")) if state is ItemState.QUEUED else 0,
        lease_expires_ms=int(text.get("lex", "0")) if active else 0,
        started_ms=int(text.get("t0", "0")) if active else 0,
        runs=int(text.get("ln", "0")),
        failure=f"{failed.type}: {failed.text}" if failed.type else "",
        blocked=blocked,
        budget_ms=int(budget or b"0"),
        spent_ms=_service(usage, now_ms)[0],
        forecast=views.forecast_of(raw),
        progress=views.progress_of(raw),
        ahead=int(ahead),
    )
    return facts, account


async def _unverified(
    client: Any, base: str, group: GroupId, after: Sequence[str]
) -> tuple[tuple[ItemId, ItemState], ...]:
    names = [ItemId(name) for name in after[:AFTER_MAX]]
    async with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hget(keys.item(base, group, name), "st")
        states = await pipe.execute()
    left = [
        (name, ItemState(raw.decode()))
        for name, raw in zip(names, states, strict=True)
        if raw is not None and raw != ItemState.VERIFIED.encode()
    ]
    # What will never be verified says more than what is on its way.
    left.sort(key=lambda pair: pair[1] not in (ItemState.FAILED, ItemState.CANCELLED))
    return tuple(left[:SHOWN_DEPENDENCIES])


async def evidence(
    client: Any, base: str, group: GroupId, item: ItemId, short: bytes | None, long: bytes | None
) -> FailureFacts:
    """What its Evidence says; '' where there is none, or none that can be read."""
    raw = short or (await views.body(client, base, group, item, "fl") if long else None)
    try:
        evidence = codec.unpack(raw, what="Evidence") if raw else None
    except TreadleError:
        evidence = None
    said = cast("dict[str, object]", evidence) if isinstance(evidence, dict) else {}
    return FailureFacts(name_of(item), str(said.get("type", "")), str(said.get("text", "")))


async def slots_in_use(store: Store, sessions: Sequence[WorkerFacts]) -> dict[AgentId, int]:
    """The slots of each of these Workers that run something now, whatever it is; a bounded number of runs is looked at.

    One of which more would have to be looked at is not in it.
    """
    found: dict[AgentId, int] = {}
    left = RUNS_LOOKED_AT
    for one in sessions:
        if one.held <= left:
            found[one.agent] = 0
            left -= one.held
    agents = [one.agent for one in sessions if one.held and one.agent in found]
    for partition in range(store.partitions):
        if agents:
            for agent, width in await store.run(_running_widths, store.base(partition), agents):
                found[agent] += width
    return found


async def _running_widths(client: Any, base: str, agents: Sequence[AgentId]) -> list[tuple[AgentId, int]]:
    async with client.pipeline(transaction=False) as pipe:
        for agent in agents:
            pipe.zrange(keys.held(base, agent), 0, RUNS_LOOKED_AT - 1)
        held = [
            (agent, *member.decode().split(" "))
            for agent, members in zip(agents, await pipe.execute(), strict=True)
            for member in members
        ][:RUNS_LOOKED_AT]
    async with client.pipeline(transaction=False) as pipe:
        for _, group, item in held:
            pipe.hmget(keys.item(base, GroupId(group), ItemId(item)), "st", "w")
        states = await pipe.execute()
    return [
        (agent, int(width or 1)) for (agent, *_), (state, width) in zip(held, states, strict=True) if state == b"active"
    ]


async def _flags(client: Any, base: str) -> dict[str, str]:
    """The pauses of a partition as its records name them, `a:<account>` and so on, and as people do."""
    found: dict[str, str] = {}
    for field in await client.hkeys(keys.pause(base)):
        kind, _, name = field.decode().partition(":")
        found[field.decode()] = f"{KINDS[kind]}:{name_of(name)}" if name else kind
    return found


def _pages(names: Sequence[GroupId]) -> Iterable[Sequence[GroupId]]:
    return (names[start : start + PAGE] for start in range(0, len(names), PAGE))
