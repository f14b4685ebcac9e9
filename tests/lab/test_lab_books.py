"""The laboratory's model of the store answers as the function library does, over any sequence of calls."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import fakeredis
import pytest
from builders import a_new_item
from lab.books import Books, Run, Work
from store.world import FrozenClock, Hand, World, a_submit, a_yield, opened
from treadle.shared.model import AgentId, Capability, DirectoryEntry, Grant, GroupId, ItemId, Limits, Urgency
from treadle.shared.store import Hold, Operation, Take, commands
from treadle.shared.testing.store import FakeEndpoint

GROUPS = {"a": ("index", "acme", 1.0), "b": ("index", "acme", 2.5), "c": ("render", "umbra", 0.3)}
CAPABILITIES = [Capability("index"), Capability("render")]
STEPS = 100


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    clock = FrozenClock()
    monkeypatch.setattr("time.time", clock)
    server = fakeredis.FakeServer()
    raw = fakeredis.FakeAsyncRedis(server=server)
    async with opened("fakeredis", FakeEndpoint(server), raw, clock) as made:
        yield made
    await raw.aclose()


class Both:
    """The same calls to the model and to the library; each answer is compared."""

    def __init__(self, world: World, hand: Hand, other: Hand, seed: int) -> None:
        self.world, self.hand, self.other, self.random = world, hand, other, random.Random(seed)
        assert world.clock is not None
        self.clock = world.clock
        self.books = Books()
        self.versions = (0, 0)
        self.running: list[tuple[Run, Grant]] = []
        self.added = 0
        self.codes: set[str] = set()

    async def open(self) -> None:
        for name, (capability, account, weight) in GROUPS.items():
            first = a_new_item("first", capability=Capability(capability))
            mission = await self.world.mission(name, first, account=account, weight=weight, open=True)
            self.books.open(mission, weight=weight, capability=capability, account=account)
            self.books.add(mission, [Work("first", 0)], self.clock.now_ms)

    async def step(self) -> None:
        self.clock.now_ms += self.random.choice([0, 1, 40, 700, 3_000])
        match self.random.choice(["add", "turn", "turn", "turn", "yield", "look", "hold"]):
            case "add":
                await self.add()
            case "turn":
                await self.turn()
            case "yield":
                await self.give_back()
            case "hold":
                await self.hold()
            case _:
                await self.look()

    async def add(self) -> None:
        group = GroupId(self.random.choice(list(GROUPS)))
        works = [self.work() for _ in range(self.random.choice([1, 1, 2, 5]))]
        items = [
            a_new_item(
                work.item,
                capability=self.books.lines[group].capability,
                width=work.width,
                urgency=work.urgency,
                deadline_ms=work.deadline_ms,
                business_impact=work.impact,
                digest="d",
            )
            for work in works
        ]
        await commands.add(self.world.store, group, items, actor="ana")
        self.books.add(group, works, self.clock.now_ms)

    def work(self) -> Work:
        self.added += 1
        deadline = self.random.choice([0, 0, 1_000, 400_000, 90_000_000])
        return Work(
            f"i{self.added}",
            0,
            width=self.random.choice([1, 1, 1, 2, 4]),
            urgency=self.random.choice(list(Urgency)),
            deadline_ms=deadline and self.clock.now_ms + deadline,
            impact=self.random.choice([0, 0, 7, 99_999]),
        )

    async def turn(self) -> None:
        over = [one for one in self.running if self.random.random() < 0.4]
        self.running = [one for one in self.running if one not in over]
        names = self.random.sample(list(GROUPS), self.random.randint(0, len(GROUPS)))
        takes = [
            Take(
                GroupId(name),
                self.books.lines[GroupId(name)].capability,
                self.random.randint(1, 4),
                self.random.choice([0, 0, 500, 4_000, 60_000]),
                self.limits(),
                sets=self.random.choice([None, None, None, 0, self.books.lines[GroupId(name)].counters.offset]),
            )
            for name in names
        ]
        slots = self.random.randint(0, 5)
        reply = self.books.turn(
            0, self.clock.now_ms, ends=[run for run, _ in over], takes=takes, slots=slots, agent=AgentId("w")
        )
        submits: list[Operation] = [a_submit(grant) for _, grant in over]
        asked: list[Operation] = list(takes)
        if not submits and not asked:
            return
        answer = await self.hand.turn(*submits, *asked, slots=slots)
        taken = answer.outcomes[len(submits) :]
        assert [outcome.code for outcome in taken] == list(reply.codes)
        grants = [grant for outcome in taken for grant in outcome.grants]
        assert [(grant.group, grant.item, grant.width) for grant in grants] == [
            (run.group, ItemId(run.work.item), run.work.width) for run in reply.started
        ]
        self.compare(answer.entries, reply.entries)
        assert answer.nodes == reply.nodes
        self.codes.update(reply.codes)
        self.running += zip(reply.started, grants, strict=True)

    def limits(self) -> Limits | None:
        def most(*numbers: int) -> int | None:
            return self.random.choice([None, None, *numbers])

        charges = (most(0, 900, 30_000), most(0, 30_000), most(900, 90_000))
        return self.random.choice([None, Limits(*charges, slots_group=most(1, 2, 4), slots_account=most(2, 6))])

    async def hold(self) -> None:
        """One of two Workers keeps slots for a first item, or lets it go: what one holds the other is refused."""
        lines = [line for line in self.books.lines.values() if line.queue]
        if not lines:
            return
        line = self.random.choice(lines)
        item, keep = line.queue[0][1].item, self.random.random() < 0.7
        hand = self.random.choice([self.hand, self.other])
        now_ms, agent = self.clock.now_ms, hand.session.agent
        (outcome,) = (await hand.turn(Hold(line.group, ItemId(item), keep))).outcomes
        is_mine = self.books.hold(line.group, item, agent, keep and now_ms + hand.session.lease_ttl_ms, now_ms)
        assert outcome.code == ("OK" if is_mine or not keep else "RESERVED")
        self.codes.add(f"hold {outcome.code}")

    async def give_back(self) -> None:
        if not self.running:
            return
        run, grant = self.running.pop(self.random.randrange(len(self.running)))
        reply = self.books.give_back(run, 0, self.clock.now_ms)
        number = grant.checkpoint_number + 1
        answer = await self.hand.turn(a_yield(grant, number, keep=False))
        assert answer.outcomes[0].done, answer.outcomes
        self.compare(answer.entries, reply.entries)
        assert answer.nodes == reply.nodes

    async def look(self) -> None:
        theirs, ours = self.versions if self.random.random() < 0.8 else (0, 0)
        found = (await self.world.authority.look({0: theirs}, CAPABILITIES))[0]
        look = self.books.look(0, ours, self.clock.now_ms)
        self.versions = (found.version, look.version)
        self.compare(found.entries, look.entries)
        assert sorted(found.nodes, key=lambda one: one.node) == list(look.nodes)
        assert found.full == look.full

    @staticmethod
    def compare(theirs: tuple[DirectoryEntry, ...], ours: tuple[DirectoryEntry, ...]) -> None:
        assert sorted(theirs, key=lambda entry: entry.group) == sorted(ours, key=lambda entry: entry.group)


@pytest.mark.parametrize("seed", range(8))
async def test_the_model_answers_as_the_function_library_does(seed: int, world: World) -> None:
    hand = await world.hand(AgentId("w"), *CAPABILITIES, ttl_ms=30_000_000, slots=8)
    other = await world.hand("other", *CAPABILITIES, ttl_ms=30_000_000, slots=8)
    both = Both(world, hand, other, seed)
    await both.open()
    for _ in range(STEPS):
        await both.step()
    assert both.books.versions[0] > STEPS / 4, "most steps changed something"
    assert {"OK", "SHARE", "hold OK"} <= both.codes
