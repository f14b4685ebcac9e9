"""What a call does inside the server does not grow with what is queued (BR-43).

Counted in commands inside the library, on real servers only: fakeredis does not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import pytest
import redis.asyncio
from builders import GROUP, a_new_item, a_new_mission
from servers import LEGS
from store.scheduled import DAY_MS, a_schedule
from store.world import (
    SHORT_MS,
    Hand,
    World,
    a_begin,
    a_block,
    a_commit,
    a_disclosure,
    a_fail,
    a_release,
    a_reservation,
    a_save,
    a_start,
    a_submit,
    a_word,
    a_yield,
    an_ask,
    lease_of,
    opened,
)
from treadle.shared.errors import Refused
from treadle.shared.model import GroupId, ItemId, NewItem, Priority, Urgency
from treadle.shared.schedules import Due, Interval, ScheduleId, spec_text
from treadle.shared.store import (
    Accept,
    Decline,
    FreeSlot,
    Hold,
    RedisEndpoint,
    Store,
    archiving,
    commands,
    keys,
    library,
    loading,
)
from treadle.shared.store.controls import pause, resume
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.store.timetable import fire, schedule, schedules, unschedule

FEW, MANY = 200, 200_000
GATED = 190
"""The number of the item that waits for Approval."""
G = GroupId(GROUP)
NOT_COUNTED = frozenset({"fcall", "info", "config|resetstat", "client|setinfo", "ping", "time"})
BY_PEOPLE_WHO_REPAIR = {
    *("inspect", "halt", "drop_item", "stage", "unlist", "repair", "recall", "recount", "reincarnate", "distrust"),
}
"""Of these nobody waits: the partition, or the Group, stands still meanwhile."""
OF_A_POLICY = {"set_policy", "note_policy"}
"""They touch no item: the Organization's record, a number of each partition."""
Counts = dict[str, int]


@dataclass
class Meter:
    """Runs steps, each with its name, and keeps how often each command was run in it."""

    world: World
    found: dict[str, Counts] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    """Functions and operations that the steps were about."""

    async def step(self, names: str, call: Callable[[], Awaitable[Any]]) -> Any:
        await self.world.raw.config_resetstat()
        answer = await call()
        stats = await self.world.raw.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): said["calls"] for name, said in stats.items()}
        assert names not in self.found
        self.found[names] = {name: number for name, number in sorted(calls.items()) if name not in NOT_COUNTED}
        self.called.update(names.partition(":")[0].split())
        return answer


@cache
def items_of(count: int) -> tuple[NewItem, ...]:
    one = a_new_item()
    items = [replace(one, item=ItemId(f"i{number:06}"), digest=f"d{number}") for number in range(count)]
    items[GATED] = replace(items[GATED], gates="approval")
    return tuple(items)


async def _load(world: World, count: int, *, is_open: bool) -> None:
    items = items_of(count)
    if not is_open:
        await world.store.create(replace(a_new_mission(digest="d"), items=items))
    else:
        await world.store.create(replace(a_new_mission(), items=(), open=True))
        for start in range(0, count, 256):
            await commands.add(world.store, G, items[start : start + 256], actor="ana")
    # A Snapshot is wanted of a log as long as that of the many: no step here is about that.
    await world.raw.zrem(keys.due(world.store.base(0)), f"k {GROUP} 0")
    await world.raw.hset(keys.meta(world.store.base(0)), "head", 0)  # what was due first, as sleepers were told


async def _work(meter: Meter) -> None:
    """Each function a Worker calls, and each operation of a turn."""
    world = meter.world
    hand: Hand = await meter.step("open_session install_session", lambda: world.hand(nonce="one"))
    await meter.step("look", lambda: world.authority.look({0: 0}, hand.session.capabilities))
    grants = await meter.step("take turn", lambda: hand.take(most=8, slots=6, ahead=2))
    one, two, three, four, five, six, ahead, last = grants
    await meter.step("take turn: at most", lambda: hand.take(most=64, slots=70))
    await meter.step("start turn", lambda: hand.do(a_start(ahead), slots=1))
    await meter.step("save turn", lambda: hand.do(a_save(one)))
    await meter.step("disclose turn", lambda: hand.do(a_disclosure(one)))
    await meter.step("progress turn", lambda: hand.do(a_word(one, phase="upload")))
    reservation = a_reservation(lease=lease_of(two))
    await meter.step("reserve_slot turn", lambda: hand.do(reservation))
    await meter.step("effect turn", lambda: hand.do(a_begin(two)))
    await meter.step("commit turn", lambda: hand.do(a_commit(two)))
    await meter.step("ask_yield turn", lambda: hand.do(an_ask(two)))
    await meter.step("free_slot turn", lambda: hand.do(FreeSlot(two.group, lease_of(two))))
    await meter.step("yield turn", lambda: hand.do(a_yield(two)))
    await meter.step("yield turn: let go", lambda: hand.do(a_yield(three, keep=False)))
    await meter.step("submit turn", lambda: hand.do(a_submit(one)))
    await meter.step("fail turn", lambda: hand.do(a_fail(four)))
    await meter.step("fail turn: tried again", lambda: hand.do(replace(a_fail(five), retryable=True)))
    await meter.step("release turn", lambda: hand.do(a_release(last)))
    held = ItemId("i000140")
    await meter.step("hold turn", lambda: hand.do(Hold(G, held)))
    await meter.step("hold turn: let go", lambda: hand.do(Hold(G, held, keep=False)))
    await meter.step("resize", lambda: world.authority.resize(hand.session, 8))
    await meter.step("renew", lambda: hand.renew(six))
    await meter.step("read", lambda: world.authority.read(0, [(six.group, six.item, "in")]))
    await meter.step("tail", lambda: world.authority.tail(hand.session, G, after=0, most=9))
    await meter.step("block turn", lambda: hand.do(a_block(six, 1, b"asked", needs=b"n")))
    answer = {"actor": "ana", "action": "1", "digest": "d", "resolution": b"r"}
    await meter.step("unblock", lambda: commands.unblock(world.store, G, six.item, **answer))  # type: ignore[arg-type]
    await meter.step("question", lambda: world.store.call("question", 0, (G, "i000150", "why.1")))
    said = (hand.session.agent, hand.session.epoch, "why.1", "NEXT - - -")
    await meter.step("answer", lambda: world.store.call("answer", 0, said))
    await meter.step("install_session: requeues", lambda: world.hand(nonce="two"))
    again = await world.hand(nonce="two")
    await meter.step("close_session", again.close)
    short = await world.hand("worker-2", ttl_ms=SHORT_MS)
    (lapses,) = await short.take()
    await world.pass_ms(SHORT_MS + 1)
    _, due = await meter.step("tick", lambda: world.authority.tick(0))
    assert due == 1
    assert await world.state(item=lapses.item) == "offered"


async def _command(meter: Meter) -> None:
    """Each function for people, but for those that need an open Mission."""
    store = meter.world.store
    await meter.step("watch", lambda: store.call("watch", 0, (G, "-", "client", 60_000)))
    await meter.step("watch: an item", lambda: store.call("watch", 0, (G, "i000150", "client", 60_000)))
    failed = {"actor": "ana", "digest": "d", "evidence": b"by hand"}
    await meter.step("fail_item", lambda: commands.fail_item(store, G, ItemId("i000160"), **failed))  # type: ignore[arg-type]
    await meter.step("retry", lambda: commands.retry(store, G, ItemId("i000160"), actor="ana", action="1"))
    gated = ItemId(f"i{GATED:06}")
    await meter.step("approve", lambda: commands.approve(store, G, gated, actor="ana", reason="read"))
    later = Priority(Urgency.ROUTINE)
    await meter.step(
        "prioritise", lambda: commands.prioritise(store, G, ItemId("i000165"), later, actor="ana", action="1")
    )
    await meter.step("cancel: an item", lambda: commands.cancel(store, G, ItemId("i000170"), actor="ana", reason="no"))
    await _by_name(meter)
    await meter.step(
        "snapshot: a chunk", lambda: store.call("snapshot", 0, (G, "timer", 1, "d" * 32, 5, 1, 1, b"chunk"))
    )
    await meter.step("trim", lambda: store.call("trim", 0, (G, 1)))
    for what in ("all", "account:acme", "capability:index", f"mission:{GROUP}"):
        await meter.step(f"pause: {what}", partial(pause, store, what, actor="ana"))
        await meter.step(f"pause: {what}, resumed", partial(resume, store, what, actor="ana"))
    lineage = await store.link.lineage()
    meta = keys.meta(store.base(0))
    bound = (lineage.replid, lineage.run_id, lineage.replid2, lineage.replid)
    await meter.step("adopt", lambda: store.link.call(("adopt", meta, bound)))

    async def open_store() -> None:
        with suppress(Refused):  # it is there
            await store.link.call(("open_store", keys.store_record(store.prefix), (keys.FORMAT_VERSION, 1, "id")))

    await meter.step("open_store", open_store)


async def _by_name(meter: Meter) -> None:
    """What is offered to one Worker, which is kept out and let in at last."""
    store, asked = meter.world.store, [ItemId("i000180"), ItemId("i000181")]
    hand = await meter.world.hand("worker-9")
    await meter.step("offer", lambda: commands.offer(store, G, asked[0], "named:worker-9 0", actor="ana", action="1"))
    await commands.offer(store, G, asked[1], "named:worker-9 0", actor="ana", action="1")
    await meter.step("decline turn", lambda: hand.do(Decline(G, asked[0], "capacity")))
    await meter.step("accept turn", lambda: hand.do(Accept(G, asked[1])))
    agent = hand.session.agent
    await meter.step("end_membership", lambda: commands.end_membership(store, G, agent, actor="ana", reason="no"))
    await meter.step("admit", lambda: commands.admit(store, G, agent, actor="ana"))
    await hand.close()


async def _grow(meter: Meter) -> None:
    """What an open Mission is for."""
    store = meter.world.store
    new = [replace(a_new_item(f"new{number}"), digest="d") for number in range(256)]
    await meter.step("add", lambda: commands.add(store, G, new, actor="ana"))
    await meter.step("add: again", lambda: commands.add(store, G, new, actor="ana"))
    nightly = a_schedule("s", group=G, spec=Interval(DAY_MS, 1))
    await meter.step("schedule", lambda: schedule(store, nightly))
    await meter.step("schedule: deleted", lambda: unschedule(store, G, ScheduleId("s"), actor="ana"))
    item = ("index", 1, "normal", 0, 60, "-", b"in", b"", 0)
    overdue = ("create", G, "t", "ana", "digest", 1, "one", f"every%20{DAY_MS}%201", *item)
    await store.call("schedule", 0, overdue)
    (listed,) = await schedules(store)
    due = Due(G, listed.schedule, listed.next_ms, listed.missed, spec_text(listed.spec))
    now_ms = await store.now_ms()
    fired = await meter.step("fire", lambda: fire(store, due, now_ms=now_ms))
    assert not fired.repeated
    await unschedule(store, G, ScheduleId("t"), actor="ana")
    await meter.step("seal", lambda: commands.seal(store, G, actor="ana"))


async def _record(store: Store) -> None:
    with suppress(Refused):  # it is still being withdrawn
        await archiving.record(store, G, seq=1, digest="a1" * 32, actor="ana")


async def _measure(leg: str, url: str, count: int, *, is_open: bool) -> Meter:
    async with redis.asyncio.Redis.from_url(url, protocol=2) as raw:
        await raw.flushall()
        async with opened(leg, RedisEndpoint(url), raw, None) as world:
            await _load(world, count, is_open=is_open)
            meter = Meter(world)
            await _work(meter)
            await _command(meter)
            if is_open:
                await _grow(meter)
            else:
                again = replace(a_new_mission(digest="d"), items=items_of(count))
                await meter.step("create: again", lambda: world.store.create(again))
            await meter.step("cancel", lambda: commands.cancel(world.store, G, None, actor="ana", reason="no"))
            await world.pass_ms(2)  # within one millisecond what is due first would stay as it was noted
            await meter.step("tick: cancels", lambda: world.authority.tick(0))
            await meter.step("require_archive", lambda: archiving.require(world.store, True))
            await meter.step("archived", partial(_record, world.store))
        await raw.flushall()
    return meter


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("leg", "is_open"), [(LEGS[0], False), (LEGS[1], True)], ids=[f"loaded-{LEGS[0]}", f"open-{LEGS[1]}"]
)
async def test_br_43_no_call_does_more_inside_where_200_000_items_are_queued_than_where_200_are(
    leg: str, is_open: bool, running: Callable[[str], EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half, a server that is held in a script, is in tests/system/test_store_faults.py."""
    url = running(leg).url
    with monkeypatch.context() as patch:
        patch.setattr(loading, "CHUNK_ITEMS", 64)  # so that 200 are loaded in chunks too
        few = await _measure(leg, url, FEW, is_open=is_open)
    many = await _measure(leg, url, MANY, is_open=is_open)
    differ = {name: (few.found[name], many.found[name]) for name in few.found if few.found[name] != many.found[name]}
    assert differ == {}, "\n".join(f"{name}: {few} {many}" for name, (few, many) in differ.items())
    only_open = {"add", "seal", "schedule", "fire"}
    elsewhere = {"create"} if is_open else only_open
    assert few.called >= library.DOORS.keys() - elsewhere - BY_PEOPLE_WHO_REPAIR - OF_A_POLICY
