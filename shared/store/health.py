"""What a server says of itself and of one store on it: raw facts, each None where it cannot say. Nothing is written.

It goes below `Store`, which refuses a store of another format: that is just what a person wants to be told.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from ..errors import Misuse, TreadleError, Unavailable
from ..facts import ServerFacts
from ..model import Capability, GroupId
from ..names import name_of
from ..versions import shelf
from . import keys, lineage, pictures, views
from .connection import Endpoint, Link, RedisEndpoint
from .library import build
from .store import Store

ROUND_TRIPS = 21
SETTINGS = ("maxmemory-policy", "stream-node-max-bytes", "appendfsync")
_T = TypeVar("_T")


async def examine(url: str | Endpoint, *, prefix: str, timeout_s: float = 5.0) -> ServerFacts:
    """All that can be known of the server at `url` and the store of `prefix` there; `unreachable` says why where nothing is."""
    endpoint = RedisEndpoint(url) if isinstance(url, str) else url
    library = build().name
    facts = ServerFacts(endpoint.shown, prefix, library=library, format_wanted=keys.FORMAT_VERSION)
    try:
        link = Link(endpoint, timeout_s=timeout_s)
    except Misuse as misuse:
        return replace(facts, unreachable=str(misuse))
    try:
        server = await link.lineage()
    except TreadleError as error:
        await link.aclose()
        return replace(facts, unreachable=str(error))
    try:
        facts = await _clock(link, facts)
        facts = _informed(facts, await _said(link, lambda client: client.info("all")) or {})
        facts = _configured(facts, await _said(link, lambda client: client.config_get(*SETTINGS)) or {})
        facts = replace(facts, libraries=await _said(link, _libraries))
        record = await link.run(lambda client: views.store_record(client, keys.store_record(prefix)))
        if record is None:
            return facts
        facts = replace(facts, format_version=record[0], partitions=int(record[1]))
        if record[0] != str(keys.FORMAT_VERSION):
            return facts
        return await _store(link, facts, server.replid)
    except Unavailable as error:
        return replace(facts, unreachable=str(error))
    except (TreadleError, ValueError) as error:  # a key of another type, a record that the store did not write
        return replace(facts, damage=str(error))
    finally:
        await link.aclose()


async def _said(link: Link, question: Callable[[Any], Awaitable[_T]]) -> _T | None:
    """The answer; None where the server does not know the command, or does not allow it to this user."""
    try:
        return await link.run(question)
    except Unavailable:
        raise
    except TreadleError:
        return None


async def _clock(link: Link, facts: ServerFacts) -> ServerFacts:
    """Skew as of the shortest of some round trips: there the middle of it is nearest to when the server looked."""
    trips: list[tuple[float, float]] = []
    for _ in range(ROUND_TRIPS):
        wall, began = time.time(), time.perf_counter()
        server_ms = await link.run(_time_ms)
        took_ms = (time.perf_counter() - began) * 1000
        trips.append((took_ms, wall * 1000 + took_ms / 2 - server_ms))
    latencies = [took for took, _ in trips]
    return replace(
        facts,
        skew_ms=min(trips)[1],
        latency_ms=statistics.median(latencies),
        latency_worst_ms=max(latencies),
        now_ms=await link.run(views.now_ms),
    )


async def _time_ms(client: Any) -> float:
    seconds, microseconds = await client.time()
    return int(seconds) * 1000 + int(microseconds) / 1000


def _informed(facts: ServerFacts, info: dict[str, Any]) -> ServerFacts:
    """What INFO tells; redis-py has parsed it into numbers and text."""

    def text(*names: str) -> str | None:
        return next((str(info[name]) for name in names if name in info), None)

    def number(name: str) -> int | None:
        value = info.get(name)
        return int(value) if isinstance(value, int | float) else None

    def flag(name: str, yes: object = 1) -> bool | None:
        return info[name] == yes if name in info else None

    valkey = text("valkey_version")
    return replace(
        facts,
        product=None if not info else "Valkey" if valkey or text("server_name") == "valkey" else "Redis",
        version=valkey or text("redis_version"),
        role=text("role"),
        is_cluster=flag("cluster_enabled"),
        is_loading=flag("loading"),
        eviction=text("maxmemory_policy"),
        appends=flag("aof_enabled"),
        appends_well=flag("aof_last_write_status", "ok"),
        used_bytes=number("used_memory"),
        limit_bytes=number("maxmemory"),
    )


def _configured(facts: ServerFacts, said: dict[str, str]) -> ServerFacts:
    node = said.get("stream-node-max-bytes", "")
    return replace(
        facts,
        eviction=facts.eviction or said.get("maxmemory-policy"),
        fsync=said.get("appendfsync"),
        node_bytes=int(node) if node.isdigit() else None,
    )


async def _libraries(client: Any) -> tuple[str, ...]:
    listed: list[dict[Any, Any] | list[Any]] = await client.execute_command(
        "FUNCTION", "LIST", "LIBRARYNAME", "treadle_*"
    )
    names: list[str] = []
    for entry in listed:
        flat = [part for pair in entry.items() for part in pair] if isinstance(entry, dict) else list(entry)
        fields = {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}
        names.append(_text(fields.get("library_name", "")))
    return tuple(sorted(name for name in names if name.startswith("treadle_")))


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


async def _store(link: Link, facts: ServerFacts, replid: str) -> ServerFacts:
    """The store's own state, over a connection that neither adopts nor creates anything."""
    assert facts.partitions is not None
    store = Store(link.endpoint, facts.prefix, link)
    store.partitions = facts.partitions
    bases = [store.base(partition) for partition in range(facts.partitions)]
    bound = await link.run(lambda client: views.bound_replids(client, [keys.meta(base) for base in bases]))
    _, sessions = await pictures.workers(store)
    history = await lineage.read(store)
    due_ms: list[int] = []
    halted: list[str] = []
    wanted: set[Capability] = set()
    for base in bases:
        head, stopped, offered = await store.run(_partition, base)
        due_ms += head
        halted += stopped
        wanted |= offered
    live = [one for one in sessions if not one.is_silent(facts.now_ms)]
    served = {shelf(capability) for one in live for capability in (*one.capabilities, *one.versions)}
    return replace(
        facts,
        quarantine_ms=history.quarantine_ms,
        doubt=history.doubt,
        incarnations=history.begun,
        bound_elsewhere=sum(one not in (None, replid) for one in bound),
        workers=tuple(sessions),
        overdue_ms=max(0, facts.now_ms - min(due_ms, default=facts.now_ms)),
        halted=tuple(sorted(halted)),
        unserved=tuple(sorted(wanted - served)),
    )


async def _partition(client: Any, base: str) -> tuple[list[int], list[str], set[Capability]]:
    """Of one partition: the earliest due time, halted Missions, capabilities that have takeable work."""
    head = await client.zrange(keys.due(base), 0, 0, withscores=True)
    halted: list[str] = []
    wanted: set[Capability] = set()
    records = await client.hgetall(keys.groups(base))
    names = [name.decode() for name, record in records.items() if record.startswith(b"active")]
    halted += [name_of(name.decode()) for name, record in records.items() if record.startswith(b"halted")]
    caps: set[str] = set()
    for start in range(0, len(names), pictures.PAGE):
        async with client.pipeline(transaction=False) as pipe:
            for name in names[start : start + pictures.PAGE]:
                pipe.hget(keys.mission(base, GroupId(name)), "caps")
            for listed in await pipe.execute():
                caps.update((listed or b"").decode().split())
    for capability in sorted(name for name in caps if not name.startswith(">")):
        if await client.zcard(keys.take(base, capability)):
            wanted.add(Capability(capability))
    return [int(score) for _, score in head], halted, wanted
