"""One scripted day of a store, told in steps, each of which may be repeated as a caller repeats what was not answered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from builders import a_new_item, a_new_mission
from store.scheduled import DAY_MS, a_schedule
from store.world import (
    FROZEN_MS,
    PREFIX,
    Dump,
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
    a_take,
    a_word,
    a_yield,
    an_ask,
    lease_of,
)
from treadle.shared.errors import ReplyLost
from treadle.shared.model import AgentId, Grant, GroupId, Limits, Priority, Risk, Urgency
from treadle.shared.schedules import Due, Interval, spec_text
from treadle.shared.store import (
    Accept,
    Authority,
    Decline,
    FreeSlot,
    Hold,
    Operation,
    Store,
    TurnReply,
    archiving,
    commands,
    lineage,
    policies,
    snapshots,
)
from treadle.shared.store.controls import pause, resume
from treadle.shared.store.timetable import fire, schedule, schedules, unschedule

T = TypeVar("T")
ATTEMPTS_MAX = 4
LIMITS = Limits(charge_class=1_000_000, slots_account=9, rate_group=(9, 10**13))
"""None of which stops a take; the window is the same whenever the day begins."""
TTL_MS = 150
"""Of the lease that lapses; its session is silent only after ten times this."""


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it is answered, as every caller of the store does."""
    for _ in range(ATTEMPTS_MAX):
        with suppress(ReplyLost):
            return await call()
    raise AssertionError(f"not answered in {ATTEMPTS_MAX} attempts")


GPU = (("gpu", 1),)


class Day:
    """A Worker, a rival and a client on one store; every call goes through `insist`."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def turn(self, hand: Hand, *operations: Operation, **of: Any) -> TurnReply:
        """One turn, frozen: repeated byte for byte until it is answered."""
        with suppress(ReplyLost):
            return await hand.turn(*operations, **of)
        return await insist(hand.again)

    async def live(self) -> None:
        """From the first connection to the last: the store is opened, and everything in it is done once."""
        world = self.world
        endpoint = world.endpoint
        store = await insist(lambda: Store.connect(endpoint, prefix=PREFIX, partitions=1))
        authority = Authority(store)
        try:
            await self._work(world, store, authority)
        finally:
            await authority.aclose()
            await store.aclose()

    async def _work(self, world: World, store: Store, authority: Authority) -> None:
        items = (
            a_new_item("a"),
            a_new_item("b", inputs=b"b" * 100, resources=GPU),
            a_new_item("c", after=["a", "b"]),
            a_new_item("d"),
        )
        first, second = a_new_mission("day-1", *items), a_new_mission("day-2", a_new_item("x"))
        await insist(lambda: store.create(first))
        await insist(lambda: store.create(second))
        await self._command(store)

        async def opened(agent: str, nonce: str, *, ttl_ms: int = 60_000) -> Hand:
            capabilities = [items[0].capability]
            session, requeued = await insist(
                lambda: authority.open_session(
                    AgentId(agent), capabilities, lease_ttl_ms=ttl_ms, nonce=nonce, resources=GPU
                )
            )
            return Hand(world, authority, session, requeued)

        await opened("worker-1", "yesterday")
        hand = await opened("worker-1", "today")
        rival = await opened("worker-2", "today")
        sleeper = await opened("worker-3", "today", ttl_ms=TTL_MS)
        await self.turn(hand, a_take("day-1", limits=LIMITS._replace(slots_group=0)), slots=1)
        reply = await self.turn(hand, a_take("day-1", 3), slots=1, ahead=2, resources=GPU)
        one, two, three = reply.outcomes[0].grants
        await self.turn(hand, a_save(one, 1, b"one"), a_save(one, 2, b"two" * 50), a_disclosure(one))
        await self.turn(hand, a_word(one, phase="one"))
        await self.turn(hand, a_begin(one), a_begin(one, "other"), a_commit(one), a_begin(one))
        reply = await self.turn(hand, a_yield(one, 3, b"kept"), a_start(two), cursors=((one.group, 4),))
        (two,) = reply.outcomes[1].grants
        reply = await self.turn(hand, a_start(one), a_release(three))
        (one,) = reply.outcomes[0].grants
        await self.turn(hand, a_reservation("day-1", lease=lease_of(two)), an_ask(two))
        await self.turn(hand, FreeSlot(two.group, lease_of(two)))
        await self.turn(sleeper, a_take("day-2", limits=LIMITS), slots=1)
        reply = await self.turn(rival, a_take("day-1"), slots=1)
        (three,) = reply.outcomes[0].grants
        await insist(lambda: self._renewed(hand, one, two))
        await insist(lambda: authority.read(0, [(two.group, two.item, "in"), (one.group, one.item, "ck1")]))
        await self.turn(hand, a_block(one, 4, b"asked" * 20, needs=b"n" * 100))
        unblock = {"actor": "ana", "action": "1", "digest": "d", "resolution": b"r" * 100}
        await insist(lambda: commands.unblock(store, one.group, one.item, **unblock))  # type: ignore[arg-type]
        (one,) = (await self.turn(hand, a_start(one))).outcomes[0].grants
        await self.turn(hand, a_submit(one, b"result of a"), a_submit(two, b"result of b" * 20))
        await self.turn(rival, a_fail(three, b"evidence"), token="index day-1 0")
        await insist(lambda: authority.tail(hand.session, one.group, after=0))
        for done in (partial(commands.end_membership, reason="no"), commands.admit):
            await insist(lambda done=done: done(store, one.group, rival.session.agent, actor="ana"))  # type: ignore[misc]
        await world.pass_ms(TTL_MS + 1)
        await self._tick(authority)
        await insist(lambda: authority.look({0: 0}, ["index"]))  # type: ignore[list-item]  # a capability's name
        reply = await self.turn(hand, a_take("day-1"), a_take("day-2"), slots=1, ahead=1)
        (last,) = reply.outcomes[0].grants
        await insist(lambda: store.call("watch", 0, (first.group, "-", "client", 60_000)))
        await insist(lambda: store.call("question", 0, (last.group, last.item, "why.1")))
        for reasons in ("NEXT - - -", "CAPACITY - - -"):
            said = (hand.session.agent, hand.session.epoch, "why.1", reasons)
            await insist(lambda said=said: store.call("answer", 0, said))  # type: ignore[misc]
        for command in (pause, pause, resume):
            await insist(lambda command=command: command(store, "account:acme", actor="ana"))  # type: ignore[misc]
        for text in ("", "[disclosure]"):
            await insist(lambda text=text: policies.apply(store, text, actor="ana"))  # type: ignore[misc]
        await insist(lambda: authority.resize(hand.session, 8))
        await self._by_name(store, hand, rival)
        await self._on_schedule(store)
        await self._snapshot(store, second.group)
        reply = await self.turn(hand, a_take("day-5"), slots=1)
        (fired,) = reply.outcomes[0].grants
        await self.turn(hand, a_submit(last), a_submit(fired))
        await insist(lambda: lineage.distrust(store, hand.session.agent, session=hand.session.epoch + 1, minted=1))
        await insist(lambda: lineage.new_incarnation(store, actor="ana", action="1", reason="a backup"))
        for closing in (rival, sleeper, hand):
            await insist(closing.close)
        await self._tick(authority)
        await self._archive(store)

    async def _snapshot(self, store: Store, group: GroupId) -> None:
        """As `snapshots.create` makes one, but folded once: made anew after a lost reply it would cover its own Event too."""
        projection = await insist(lambda: snapshots.fold(store, group))
        raw = projection.pack()
        head = (group, "timer", projection.through, snapshots.digest_of(raw), len(raw), 1)
        for number, chunk in ((1, raw), (0, b"")):
            await insist(lambda number=number, chunk=chunk: store.call("snapshot", 0, (*head, number, chunk)))  # type: ignore[misc]
        await insist(lambda: snapshots.trim(store, group, 1))

    async def _archive(self, store: Store) -> None:
        """One that has ended is recorded as archived, while it is required and not."""
        view = await insist(lambda: store.mission(GroupId("day-3")))
        assert view is not None
        seq, group = view.last_seq, view.group
        await insist(lambda: archiving.require(store, True))
        await insist(lambda: archiving.record(store, group, seq=seq, digest="a1" * 32, actor="ana"))
        await insist(lambda: archiving.require(store, False))

    async def _by_name(self, store: Store, hand: Hand, rival: Hand) -> None:
        """Two are asked by name: one declines, the other accepts, starts and is done."""
        asked = a_new_mission("day-7", a_new_item("asked", offer="named:worker-1,worker-2 0"))
        await insist(lambda: store.create(asked))
        item = asked.items[0].item
        await self.turn(rival, Decline(asked.group, item, "capacity"))
        (accepted,) = (await self.turn(hand, Accept(asked.group, item))).outcomes[0].grants
        other = a_new_mission("day-8", a_new_item("held"))
        await insist(lambda: store.create(other))
        for keep in (True, True, False):
            await self.turn(hand, Hold(other.group, other.items[0].item, keep))
        (started,) = (await self.turn(hand, a_start(accepted), slots=1)).outcomes[0].grants
        await self.turn(hand, a_submit(started))

    async def _on_schedule(self, store: Store) -> None:
        """A schedule is made, replaced, deleted, made anew; it fires once and is deleted."""
        await insist(lambda: store.create(replace(a_new_mission("day-5"), items=(), open=True)))
        new = a_schedule("due", group="day-5", spec=Interval(DAY_MS, 1))
        await insist(lambda: schedule(store, new))
        await insist(lambda: schedule(store, replace(new, spec=Interval(2 * DAY_MS, 1)), replace=True))
        await insist(lambda: unschedule(store, new.group, new.schedule, actor="ana"))
        # Its tick was long ago, so that nobody waits for it; and it is fired, not ticked: a tick whose answer is lost is made
        # up for two seconds later, and this day compares times.
        item = ("index", 1, "normal", 0, 60, "-", b"i" * 100, b"", 0)
        past = ("create", new.group, new.schedule, "ana", "digest", 1, "one", f"every%20{DAY_MS}%201", *item)
        await insist(lambda: store.call("schedule", 0, past))
        (listed,) = await insist(lambda: schedules(store))
        due = Due(new.group, new.schedule, listed.next_ms, listed.missed, spec_text(listed.spec))
        await insist(lambda: fire(store, due, now_ms=FROZEN_MS))
        await insist(lambda: unschedule(store, new.group, new.schedule, actor="ana"))

    async def _command(self, store: Store) -> None:
        """What people have done: a Mission loaded in chunks, one that grows; items cancelled, failed, tried again."""
        large = a_new_mission("day-3", *(a_new_item(f"n{number}", capability="other") for number in range(260)))
        await insist(lambda: store.create(large))
        await insist(lambda: commands.cancel(store, large.group, None, actor="ana", reason="no-more"))
        growing = replace(a_new_mission("day-4"), items=(), open=True)
        await insist(lambda: store.create(growing))
        first, second = (replace(a_new_item(name, capability="other"), digest=name, not_before="+1") for name in "xy")
        group = growing.group
        await insist(lambda: commands.add(store, group, [first, second], actor="ana"))
        fail = {"actor": "ana", "digest": "d", "evidence": b"by hand"}
        await insist(lambda: commands.fail_item(store, group, first.item, **fail))  # type: ignore[arg-type]
        await insist(lambda: commands.retry(store, group, first.item, actor="ana", action="1"))
        third = replace(a_new_item("z", capability="other", gates="approval", risk=Risk.HIGH), digest="z")
        await insist(lambda: commands.add(store, group, [third], actor="ana"))
        await insist(lambda: commands.approve(store, group, third.item, actor="ana", reason="seen"))
        await insist(
            lambda: commands.offer(store, group, second.item, "preferred:worker-1 60000", actor="ana", action="2")
        )
        to = Priority(Urgency.CRITICAL, business_impact=7)
        await insist(lambda: commands.prioritise(store, group, second.item, to, actor="ana", action="3"))
        await insist(lambda: commands.cancel(store, group, second.item, actor="ana", reason="no-more"))
        await insist(lambda: commands.seal(store, group, actor="ana"))
        await insist(lambda: store.call("watch", 0, (group, first.item, "client", 60_000)))
        brief = a_new_mission("day-6", a_new_item("x", capability="other"), keep_results_s=0)
        await insist(lambda: store.create(brief))
        await insist(lambda: commands.cancel(store, brief.group, None, actor="ana", reason="no-more"))

    async def _tick(self, authority: Authority) -> None:
        """Until nothing is due: a pump goes on with each tick, a repeated one too."""
        for _ in range(30):
            if (await insist(lambda: authority.tick(0)))[1] == 0:
                return
        raise AssertionError("something is always due")

    async def _renewed(self, hand: Hand, *grants: Grant) -> list[str]:
        return await hand.renew(*grants)


# --- dumps that may be compared between two runs ---

_TIME = re.compile(rb"0\d{13}(?=[0-3]\d{5}:)|(?<=%40)\d{13}(?!\d)|(?<!\d)\d{13}(?!\d)")
"""By itself, as the beginning of a sort key, or as the tick in an item's id."""
_PACKED = re.compile(rb"(?<=treadle-snapshot 1 )[0-9a-f]{32}|\xcf\x00\x00\x01[\s\S]{5}")
"""In the body of a Snapshot: its digest, and a time."""
_SNAPSHOT = re.compile(rb"^(\d+) [0-9a-f]{32} (\d+)$")
"""What an Event and the record say of a Snapshot."""
_USAGE = re.compile(rb"^(\S+) (\S+) \S+ \S+ \S+ \S+ (\S+) \S+ (\S+)$")


def normal(dump: Dump, times: Callable[[bytes], bool]) -> Dump:
    """A dump without what a clock or a server says: its times, ids of servers, service measured in milliseconds."""

    def shown(value: Any, key: str) -> Any:
        match value:
            case bytes():
                if key.endswith("@usage"):
                    value = _USAGE.sub(rb"- \2 - - - - \3 - \4", value)
                value = _SNAPSHOT.sub(rb"\1 - \2", _PACKED.sub(b"-", value))
                return _TIME.sub(lambda found: b"T" if times(found[0]) else found[0], value)
            case float():
                return "T" if times(b"%d" % value) else value
            case dict():
                left_out = (*_MEASURED, b"digest") if key.endswith(":snapshot") else _MEASURED
                return {shown(name, key): shown(part, key) for name, part in value.items() if name not in left_out}
            case list() | tuple() | set():
                by_name = isinstance(value, set) or (isinstance(value, list) and key.endswith("@due"))
                return [shown(part, key) for part in (sorted(value) if by_name else value)]
            case _:
                return value

    return {shown(key.encode(), key).decode(): (kind, shown(content, key)) for key, (kind, content) in dump.items()}


_MEASURED = (b"incarnation", b"run_id", b"replid", b"est", b"id")
"""Fields that say which server and which store it was, and how long a run took before."""
