"""BR-45: whatever a call touches lies in the partition of the call, whatever Missions, items and Agents are called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from builders import a_new_item, a_new_mission
from redis.crc import key_slot
from servers import LEGS
from store.scheduled import HOUR_MS, a_schedule
from store.world import (
    PREFIX,
    Hand,
    World,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
)
from treadle.shared.model import AgentId, Capability, Grant, GroupId
from treadle.shared.names import name_of, token
from treadle.shared.schedules import Interval
from treadle.shared.store import commands
from treadle.shared.store.controls import pause, resume
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.store.library import build
from treadle.shared.store.timetable import schedule, schedules, unschedule

HOSTILE = (
    *(
        "{x}",
        "a:b",
        "}{",
        "{",
        "}",
        " ",
        "\n",
        "\x00",
        "🧵",
        "@due",
        "take:log",
        "m-1:i:a",
        "%7Bx%7D",
        "..",
        "-",
        "'\"",
    ),
    *("{0.0}", "@meta", "é" * 128, "x" * 256, "* ?[a]", "a b c", "l m a", "\\", "$", "~"),
)
NARROW, WIDE = "a", "a" + "b._-c" * 12 + "bcd"
"""Capability names at the bounds: 1 and 64 characters."""


async def a_bit_of_everything(world: World, names: Sequence[str] = HOSTILE) -> None:
    """Each function and operation, on Missions, items and Agents with hostile names."""
    for number, name in enumerate(names):
        items = (
            a_new_item(name, capability=NARROW, inputs=b"i" * 100, retry="3 0 0"),
            a_new_item(name + "2" if len(name) < 100 else "second", capability=WIDE),
            a_new_item("after", after=[name], capability=NARROW),
        )
        group = await world.mission(name, *items, account=token(name, field="account"))
        agent = AgentId(token(HOSTILE[number % 5], field="agent"))
        hand = await world.hand(agent, NARROW, WIDE, nonce=f"n{number}")
        one = await _worked_on(world, hand, group)
        if number % 6 == 2:
            hand = await world.hand(agent, NARROW, nonce=f"hasty{number}", ttl_ms=50)
        elif number % 3 == 0:
            hand = await world.hand(agent, NARROW, nonce=f"next{number}")
        partition = world.store.partition_of(group)
        for what in (f"account:{name}", f"mission:{name}", f"capability:{NARROW}"):
            await pause(world.store, what, actor=name)
            await hand.turn(a_take(group, capability=NARROW), partition=partition, token=f"{NARROW} {group} 0")
            await resume(world.store, what, actor=name)
        for requeued in hand.requeued:
            one = await hand.restarted(requeued)
        if number % 6 == 2:
            await world.pass_ms(51)
            await world.authority.tick(partition)
            hand = await world.hand(agent, NARROW, nonce=f"calm{number}")
        elif number % 3 == 1:
            await hand.do(a_release(one), partition=partition)
        if number % 3 == 1 or number % 6 == 2:
            (one,) = await hand.take(group, capability=NARROW)
        assert (await hand.do(a_submit(one, b"r" * 100), partition=partition)).code == "OK"
        if number % 2:
            await hand.close()
        await _commanded(world, name)
        view = await world.store.mission(group)
        assert view is not None
        assert view.mission == name


async def _commanded(world: World, name: str) -> None:
    """An open Mission beside the other one, and each command on it."""
    growing = replace(a_new_mission(name[:60] + ".jobs"), items=(), open=True)
    group = (await world.store.create(growing)).group
    items = [
        a_new_item(item, capability=WIDE, digest="d", not_before=later) for item, later in ((name, ""), ("b", "+9"))
    ]
    await commands.add(world.store, group, items, actor=token(name, field="actor"))
    actor = token(name, field="actor")
    new = a_schedule(token(name[:120], field="schedule"), group=group, spec=Interval(HOUR_MS, 1))
    await schedule(world.store, new)
    item = (WIDE, 1, "normal", 0, 60, "-", b"i" * 100, b"", 0)
    past = ("replace", group, new.schedule, actor, "digest", 1, "one", "every%203600000%201", *item)
    await world.store.call("schedule", world.store.partition_of(group), past)
    await world.authority.tick(world.store.partition_of(group))
    (view,) = await schedules(world.store, group)
    assert view.fired == 1
    await unschedule(world.store, group, new.schedule, actor=name)
    await world.store.call("watch", world.store.partition_of(group), (group, items[0].item, "client", 60_000))
    await commands.fail_item(world.store, group, items[0].item, actor=actor, digest="d", evidence=b"e" * 100)
    await commands.retry(world.store, group, items[0].item, actor=actor, action=actor)
    await commands.cancel(world.store, group, items[1].item, actor=actor, reason=actor)
    await commands.seal(world.store, group, actor=actor)
    await commands.cancel(world.store, group, None, actor=actor, reason=actor)


async def _worked_on(world: World, hand: Hand, group: GroupId) -> Grant:
    """The Group's first item: started, saved, yielded and started again; the second fails."""
    partition = world.store.partition_of(group)
    (one,) = await hand.take(group, capability=NARROW)
    (two,) = await hand.take(group, capability=WIDE, slots=0, ahead=1)
    saved = (a_save(one, 1, b"s" * 100), a_yield(one, 2, b"t" * 100), a_start(one), a_start(two))
    reply = await hand.turn(*saved, partition=partition, cursors=((group, 3),), token=f"{NARROW} {group} 0")
    (one,), (two,) = reply.outcomes[2].grants, reply.outcomes[3].grants
    assert (await hand.do(a_fail(two, b"f" * 99), partition=partition)).code == "OK"
    await hand.turn(a_take(group, capability=WIDE), partition=partition, token=f"{WIDE} {group} 0")
    await world.store.call("watch", partition, (group, "-", "client", 60_000))
    await world.authority.read(partition, [(group, one.item, "in"), (group, one.item, "ck1")])
    assert await hand.renew(one) == ["OK"]
    await world.authority.look({partition: 0}, [Capability(NARROW), Capability(WIDE)])
    return one


@pytest.mark.parametrize("partitions", [1, 3, 16, 256])
async def test_br_45_all_keys_lie_in_the_partition_of_their_group_whatever_its_name(world: World) -> None:
    if world.store.partitions == 256:
        # 256 installations a session, up to a millisecond each: one session is enough there.
        for name in HOSTILE[:6]:
            await world.mission(name)
        hand = await world.hand(token("{x}:y", field="agent"))
        await hand.take(token("{x}", field="name"))
    else:
        every = 1 if world.is_real or world.store.partitions == 16 else 3
        await a_bit_of_everything(world, HOSTILE[::every])
    bases = {world.store.base(partition) for partition in range(world.store.partitions)}
    groups = {token(name, field="name") for name in (*HOSTILE, *(f"{name[:60]}.jobs" for name in HOSTILE))}
    for key in await world.dump():
        if key == f"{PREFIX}:{{org}}:@store":
            continue
        base, _, rest = key.partition("}:")
        assert base + "}:" in bases
        group = rest.partition(":")[0]
        if not rest.startswith("@"):
            assert group in groups, rest
            assert base + "}:" == world.store.base(world.store.partition_of(group))


async def test_names_come_back_as_people_wrote_them(world: World) -> None:
    for name in HOSTILE:
        await world.mission(name, a_new_item(name))
    assert {view.mission for view in await world.store.missions()} == set(HOSTILE)
    for name in HOSTILE:
        (item,) = await world.store.items(GroupId(token(name, field="name")))
        assert name_of(item.item) == name


# --- MONITOR: what the server itself saw ---


@dataclass
class Seen:
    """One command: whether a script ran it, its name and its first arguments."""

    inside: bool
    words: list[str]


LINE = re.compile(rb"\+\d+\.\d+ \[\d+ (\S+)\] (.*)")
WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
NO_KEY = frozenset({"TIME"})
_FIRST_ARGUMENT = """
    DEL EXISTS GET SET HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET HSETNX HVALS LLEN LRANGE LTRIM PEXPIRE
    RPUSH SADD SCARD SISMEMBER SMEMBERS XADD ZADD ZCARD ZLEXCOUNT ZPOPMIN ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM ZSCORE
"""
FIRST_ARGUMENT = frozenset(_FIRST_ARGUMENT.split())
"""Commands of which the first argument is the one key."""
_WRITES = "DEL SET HDEL HINCRBY HSET HSETNX LTRIM PEXPIRE RPUSH SADD XADD ZADD ZPOPMIN ZREM"
WRITES = frozenset(_WRITES.split())


@asynccontextmanager
async def monitored(server: EmbeddedServer) -> AsyncIterator[Callable[[], list[Seen]]]:
    """Everything the server is asked meanwhile; to be read after the block has ended."""
    reader, writer = await asyncio.open_unix_connection(server.socket_path, limit=1 << 26)
    writer.write(b"MONITOR\r\n")
    assert (await reader.readline()).startswith(b"+OK")
    lines: list[bytes] = []
    try:
        yield lambda: [seen for line in lines if (seen := _parsed(line))]
        _, end = await asyncio.open_unix_connection(server.socket_path)
        end.write(b"ECHO the-end\r\n")
        await end.drain()
        while b"the-end" not in (line := await reader.readline()):
            lines.append(line)
        end.close()
        await end.wait_closed()
    finally:
        writer.close()
        await writer.wait_closed()


def _parsed(line: bytes) -> Seen | None:
    found = LINE.match(line)
    if found is None:
        return None
    words = [word.decode("latin-1") for word in WORD.findall(found[2])[:6]]
    return Seen(found[1] == b"lua", words)


@dataclass
class CallSeen:
    """One function call with the commands it ran."""

    function: str
    key: str
    commands: list[Seen]


def calls_of(seen: list[Seen]) -> list[CallSeen]:
    names = {name: function for function, name in build().functions.items()}
    calls: list[CallSeen] = []
    for one in seen:
        if one.words[0].upper() == "FCALL":
            calls.append(CallSeen(names[one.words[1]], one.words[3], []))
        elif one.inside:
            calls[-1].commands.append(one)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("leg", LEGS)
@pytest.mark.parametrize("partitions", [1, 3, 16])
async def test_br_45_every_key_that_a_call_touches_has_the_calls_hash_tag(
    world: World, running: Callable[[str], EmbeddedServer]
) -> None:
    async with monitored(running(world.leg)) as seen:
        await a_bit_of_everything(world)
    calls = calls_of(seen())
    assert len(calls) > 300
    for call in calls:
        base = call.key.removesuffix("@meta")
        assert re.fullmatch(rf"{PREFIX}:\{{[0-9.]+\}}:", base), call.key
        for command in call.commands:
            name = command.words[0].upper()
            if name in NO_KEY:
                continue
            assert name in FIRST_ARGUMENT, f"{name}: say here where its keys are"
            assert command.words[1].startswith(base), f"{call.function}: {command.words}"
            assert key_slot(command.words[1].encode()) == key_slot(call.key.encode())


@pytest.mark.slow
@pytest.mark.parametrize("leg", LEGS)
async def test_the_first_write_of_what_appends_is_the_event(
    world: World, running: Callable[[str], EmbeddedServer]
) -> None:
    """Design 3.2: a foreign entry is found before anything was written. Installing a session registers it first: it
    fences the older one even where every log is bad."""
    async with monitored(running(world.leg)) as seen:
        await a_bit_of_everything(world)
    appended = 0
    for call in calls_of(seen()):
        writes = [command.words[0].upper() for command in call.commands if command.words[0].upper() in WRITES]
        if "XADD" in writes and call.function != "install_session":
            appended += 1
            assert writes[0] == "XADD", f"{call.function}: {writes[:3]}"
    assert appended > 100
