"""Whatever Workers do, in whatever order: the store tells one story (S1, S4, S10, S19), and counts what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import fakeredis
from builders import GROUP, a_new_item
from hypothesis import given, settings
from hypothesis import strategies as st
from store.audit import audit, tell
from store.world import (
    FrozenClock,
    Hand,
    World,
    a_disclosure,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_word,
    a_yield,
    opened,
)
from treadle.shared.errors import Stale
from treadle.shared.model import Event, EventKind, Grant
from treadle.shared.store import Operation, RenewalDoor, TurnReply, commands
from treadle.shared.testing.store import FakeEndpoint

TTL_MS = 100
AGENTS = ("worker-1", "worker-2")
GRACEFUL = ("OK", "REPEATED")
KNOWN_CODES = {
    *GRACEFUL,
    *(
        "EMPTY",
        "PASSED",
        "AUTH_STALE_SESSION",
        "WORK_STALE_OWNERSHIP",
        "WORK_LEASE_EXPIRED",
        "INVALID_STATE_TRANSITION",
        "REVISION_CONFLICT",
        "RATE_LIMITED",
    ),
}

which = st.integers(0, 7)
agents = st.sampled_from(AGENTS)
on_items = st.tuples(
    st.sampled_from(["start", "save", "progress", "disclose", "keep", "away", "release", "submit", "fail", "renew"]),
    agents,
    which,
    which,
)
steps = st.one_of(
    st.tuples(st.just("take"), agents, st.integers(0, 2), st.integers(0, 2)),
    on_items,
    on_items,
    st.tuples(st.just("several"), agents, which, which),
    st.tuples(st.just("pass"), st.just(""), st.sampled_from([1, 30, 99, 100, 101, 1_001]), which),
    st.tuples(st.sampled_from(["tick", "again", "open", "close"]), agents, which, which),
)
Step = tuple[str, str, int, int]


@dataclass
class Play:
    """Two Agents, all the sessions they ever had, and every grant that anybody ever got."""

    world: World
    hands: dict[str, list[Hand]] = field(default_factory=lambda: {agent: [] for agent in AGENTS})
    grants: list[Grant] = field(default_factory=list)

    async def step(self, kind: str, agent: str, one: int, two: int) -> None:
        if kind == "pass":
            await self.world.pass_ms(one)
        elif kind == "tick":
            await self.world.authority.tick(0)
        elif kind == "open" or not self.hands[agent]:
            nonce = f"{agent}-{len(self.hands[agent])}"
            hand = await self.world.hand(agent or AGENTS[0], ttl_ms=TTL_MS, nonce=nonce)
            self.hands[hand.session.agent].append(hand)
            self.grants += hand.requeued
        else:
            # Mostly the newest session, now and then one that was replaced: a zombie.
            hands = self.hands[agent]
            hand = hands[-1] if one % 4 or len(hands) == 1 else hands[-2]
            with suppress(Stale):
                await self._act(kind, hand, one, two)

    async def _act(self, kind: str, hand: Hand, one: int, two: int) -> None:
        match kind:
            case "take":
                self._learn(await hand.turn(a_take(GROUP, 3), slots=one, ahead=two))
            case "again":
                if hand.last is not None:
                    await hand.again()
            case "close":
                await hand.close()
            case "renew":
                if self.grants:
                    await hand.renew(self.grants[-1 - one % len(self.grants)])
            case "several":
                picked = [self.grants[-1 - (one + n) % len(self.grants)] for n in range(3) if self.grants]
                kinds = ("submit", "start", "keep", "release", "away", "save", "disclose", "progress")
                operations = [self._operation(kinds[(two + n) % 8], grant, n) for n, grant in enumerate(picked)]
                self._learn(await hand.turn(*operations, a_take(GROUP), slots=1))
            case _:
                if self.grants:
                    grant = self.grants[-1 - one % len(self.grants)]
                    self._learn(await hand.turn(self._operation(kind, grant, two)))

    def _operation(self, kind: str, grant: Grant, two: int) -> Operation:
        number = grant.checkpoint_number + 1 + two % 2
        made: dict[str, Operation] = {
            "start": a_start(grant),
            "disclose": a_disclosure(grant, interval_ms=two * 100),
            "progress": a_word(grant, two, phase="ab"[two % 2]),
            "save": a_save(grant, number, b"state"),
            "keep": a_yield(grant, number, b"kept", keep=True),
            "away": a_yield(grant, number, b"away", keep=False),
            "release": a_release(grant),
            "submit": a_submit(grant, b"result" * (two % 3)),
            "fail": replace(a_fail(grant), retryable=two % 2 == 1),
        }
        return made[kind]

    def _learn(self, reply: TurnReply) -> None:
        for outcome in reply.outcomes:
            assert outcome.code in KNOWN_CODES
            self.grants += outcome.grants


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    clock = FrozenClock()
    server = fakeredis.FakeServer()
    raw = fakeredis.FakeAsyncRedis(server=server)
    with mock.patch("time.time", clock):
        async with opened("fakeredis", FakeEndpoint(server), raw, clock) as world:
            yield world
    await raw.aclose()


def _is_an_end(event: Event) -> bool:
    final = event.kind is EventKind.FAILED and event.get("retry_ms") == "0"
    return final or event.kind is EventKind.RESULT_ACCEPTED


async def play(items: list[Any], script: list[Step]) -> None:
    async with a_world() as world:
        await world.mission(GROUP, *items)
        game = Play(world)
        for number, step in enumerate(script):
            await game.step(*step)
            if number % 6 == 5:
                await audit(world)
        await audit(world)
        # However it went, fresh Workers bring it to an end, once a person let go what was parked.
        for number in range(12):
            await world.pass_ms(60_001)
            await world.authority.tick(0)
            for item in await world.store.items(GROUP):
                if item.held:
                    await commands.retry(world.store, GROUP, item.item, actor="ana", action=f"{number}")
            (view,) = await world.store.missions()
            if view.ended_ms:
                break
            hand = await world.hand("heir", nonce=f"heir-{number}")
            await hand.turn(*(a_submit(grant) for grant in await hand.take(most=9)))
        assert view.ended_ms
        await world.authority.tick(0)
        await audit(world)
        log = await world.log()
        for item in items:
            ends = [event for event in log if event.item == item.item and _is_an_end(event)]
            assert len(ends) <= 1, f"{item.item} ended {len(ends)} times"


@given(st.lists(steps, min_size=10, max_size=45))
@settings(max_examples=30, derandomize=True)
async def test_any_interleaving_of_two_workers_leaves_one_consistent_story(script: list[Step]) -> None:
    wide = a_new_item("b", width=2, start_by_s=1)
    await play([a_new_item("a"), wide, a_new_item("c", after=["a"]), a_new_item("d", after=["b", "c"])], script)


@given(st.lists(steps, min_size=10, max_size=45))
@settings(max_examples=30, derandomize=True)
async def test_one_item_never_has_two_live_leases_and_its_epochs_only_rise(script: list[Step]) -> None:
    """S1, over two Agents, their older sessions, and leases that lapse before any tick sees it."""
    async with a_world() as world:
        await world.mission()
        game = Play(world)
        for step in script:
            await game.step(*step)
        events = [event for event in await world.log() if event.item]
        story = tell(events, world.renewed)
        assert len(story.lease_ids) == len(set(story.lease_ids))
        live: tuple[str, int] | None = None
        epochs: list[int] = []
        for event in events:
            match event.kind:
                case EventKind.ACCEPTED:
                    epochs.append(int(event.get("epoch")))
                case EventKind.STARTED:
                    assert live is None, f"{event.by} started while {live} was live"
                    live = (event.by, int(event.get("expires_ms")))
                case EventKind.PROGRESS_SAVED | EventKind.PROGRESSED:
                    assert live is not None
                    assert live[0] == event.by, "only who holds the lease saves progress"
                case (
                    EventKind.OFFERED | EventKind.RESULT_ACCEPTED | EventKind.AUTHORIZED | EventKind.SCHEDULE_DISCLOSED
                ):
                    pass
                case _:
                    live = None
        assert epochs == list(range(1, 1 + len(epochs)))


@given(st.lists(st.tuples(st.sampled_from(["take", "submit", "away", "fail"]), st.integers(0, 120)), max_size=40))
@settings(max_examples=25, derandomize=True)
async def test_the_service_counted_is_what_the_log_says(script: list[tuple[str, int]]) -> None:
    """Scheduler, rule 6, over two Groups of two accounts: what ran, for how long, and what runs now."""
    async with a_world() as world:
        for name, account in (("m-1", "acme"), ("m-2", "beta")):
            await world.mission(name, *(a_new_item(f"i{n}", width=1 + n % 3) for n in range(6)), account=account)
        hand = await world.hand(ttl_ms=100)
        door = RenewalDoor(world.store, hand.session)
        running: list[Grant] = []
        for kind, span_ms in script:
            door.renew(0, [])  # the session lives on, its leases lapse
            await world.pass_ms(span_ms)
            if kind == "take":
                name = ("m-1", "m-2")[span_ms % 2]
                running += await hand.take(name, 1 + span_ms % 3, slots=4)
            elif running:
                grant = running.pop(span_ms % len(running))
                away = a_yield(grant, grant.checkpoint_number + 1, keep=False)
                await hand.do(a_submit(grant) if kind == "submit" else a_fail(grant) if kind == "fail" else away)
            if span_ms % 5 == 0:
                await world.authority.tick(0)
        door.close()
        await audit(world)
