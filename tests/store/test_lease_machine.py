"""Grants, renewals, lapses, new sessions and late writes in any order, against a model of sixty lines (S1, S4, S5, S7, S8)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from builders import GROUP, a_new_item, a_new_mission
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from store.machine import DEEP, QUICK, StoreMachine
from store.refused import code_of
from store.world import Hand, a_release, a_save, a_start, a_submit, a_take, a_yield
from treadle.shared.model import Grant, ItemId
from treadle.shared.store import Operation, Outcome, RenewalDoor, commands

TTL_MS = 1_000
SILENT_MS = 10 * TTL_MS
START_BY_MS = 60_000
LOST_MAX = 5
AGENTS = ("worker-1", "worker-2")
WORK = ("start", "save", "save", "yield", "submit", "release", "renew")
WHOSE = ("newest", "newest", "newest", "own", "any")
"""Mostly the last grant by whom it was given to, else an old one, by him or by anybody."""
LATE_MS = (0, 0, 0, TTL_MS - 1, TTL_MS, START_BY_MS - 1, START_BY_MS)
"""How late it comes, before any tick has seen that it is late."""


@dataclass
class Item:
    """What one item must be."""

    state: str = "offered"
    owner: str = ""
    session: int = 0
    epoch: int = 0
    lease: str = ""
    leases: int = 0
    until_ms: int = 0
    """Of its lease while it is active, of its start-by while it is queued."""
    lost: int = 0
    saved: int = 0

    @property
    def is_owned(self) -> bool:
        return self.state in ("queued", "active")

    def offer(self) -> None:
        self.state, self.owner = "offered", ""

    def lapse(self) -> None:
        self.lost += self.state == "active"
        parked = self.state == "active" and self.lost >= LOST_MAX
        self.offer()
        self.state = "open" if parked else "offered"


@dataclass
class Model:
    """Who is live until when, and every item there ever was."""

    sessions: dict[str, int] = field(default_factory=dict)
    silent_ms: dict[str, int] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)

    def refusal(self, hand: Hand, grant: Grant, now_ms: int, *, leased: bool) -> str:
        """The code with which what a hand does with a grant is fenced off; '' where it is not."""
        agent, session, item = hand.session.agent, hand.session.epoch, self.items[grant.item]
        if self.sessions.get(agent) != session:
            return "AUTH_STALE_SESSION"
        if (item.owner, item.epoch) != (agent, grant.ownership_epoch):
            return "WORK_STALE_OWNERSHIP"
        if leased:
            lease = grant.lease.lease_id if grant.lease else "none"
            if item.state != "active":
                return "WORK_LEASE_EXPIRED" if lease == item.lease else "INVALID_STATE_TRANSITION"
            if lease != item.lease or item.until_ms <= now_ms:
                return "WORK_LEASE_EXPIRED"
        return ""

    def tick(self, now_ms: int) -> None:
        """What is due, in its order: leases before start-bys before sessions of one moment."""
        kinds = {"active": "l", "queued": "s"}
        due = [(item.until_ms, kinds[item.state], name) for name, item in self.items.items() if item.is_owned]
        due += [(at, "x", agent) for agent, at in self.silent_ms.items()]
        for at_ms, kind, name in sorted(due):
            if at_ms > now_ms:
                return
            if kind != "x":
                if self.items[name].is_owned:
                    self.items[name].lapse()
                continue
            del self.sessions[name], self.silent_ms[name]
            for item in self.items.values():
                if item.is_owned and item.owner == name:
                    item.offer()


class LeaseMachine(StoreMachine):
    """Two Agents with all their sessions, one item after the other; every grant ever given is cited again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.hands: list[Hand] = []
        self.grants: list[tuple[Hand, Grant]] = []
        self.leases: set[str] = set()
        self.do(self.world.store.create(replace(a_new_mission(), items=(), open=True)))
        self.add()
        for agent in AGENTS:
            self.open(agent)

    def add(self) -> None:
        """The next item, once the one before it has ended."""
        name = f"i{len(self.model.items)}"
        new = replace(a_new_item(name), digest=name, retry="3 0 0")
        self.do(commands.add(self.world.store, GROUP, [new], actor="ana"))
        self.model.items[name] = Item()

    @property
    def newest(self) -> tuple[str, Item]:
        return next(reversed(self.model.items.items()))

    def said(self, hand: Hand, operation: Operation, slots: int = 1, ahead: int = 0) -> tuple[str, Outcome | None]:
        """The code of one operation, be it of the turn or of its own."""
        outcomes: list[Outcome] = []

        async def work() -> None:
            outcomes.append(await hand.do(operation, slots=slots, ahead=ahead))

        code = self.do(code_of(work()))
        return (outcomes[0].code, outcomes[0]) if outcomes else (code, None)

    def open(self, agent: str) -> None:
        before = self.model.sessions.get(agent, 0)
        hand = self.do(self.world.hand(agent, ttl_ms=TTL_MS, nonce=str(len(self.hands)), lives=True))
        assert hand.session.epoch > before
        self.hands.append(hand)
        self.model.sessions[agent] = hand.session.epoch
        self.model.silent_ms[agent] = self.now_ms + SILENT_MS
        for item in self.model.items.values():
            if item.is_owned and item.owner == agent:
                item.state, item.session, item.until_ms = "queued", hand.session.epoch, self.now_ms + START_BY_MS

    @rule(
        agent=st.sampled_from(AGENTS),
        how=st.sampled_from(["open", "live on", "live on", "close"]),
        old=st.integers(0, 3),
    )
    def session(self, agent: str, how: str, old: int) -> None:
        """An Agent's newest session lives on or is closed, now and then one before it, or a newer one is opened."""
        hands = [hand for hand in self.hands if hand.session.agent == agent]
        hand = hands[-1 if old else -len(hands)]
        current = self.model.sessions.get(agent) == hand.session.epoch
        if how == "open":
            self.open(agent)
        elif how == "close":
            self.do(hand.close())
            if current:
                del self.model.sessions[agent], self.model.silent_ms[agent]
                for item in self.model.items.values():
                    if item.is_owned and item.owner == agent:
                        item.offer()
        elif current:
            door = RenewalDoor(self.world.store, hand.session)
            door.renew(0, [])
            door.close()
            self.model.silent_ms[agent] = self.now_ms + SILENT_MS

    @precondition(lambda self: self.newest[1].state == "offered")
    @rule(number=st.integers(0, 9), at_once=st.sampled_from([True, True, False]))
    def take(self, number: int, at_once: bool) -> None:
        hand = self.hands[-1 - number % min(len(self.hands), 3)]
        code, outcome = self.said(hand, a_take(), slots=int(at_once), ahead=int(not at_once))
        name, item = self.newest
        agent, session = hand.session.agent, hand.session.epoch
        if self.model.sessions.get(agent) != session:
            assert code == "AUTH_STALE_SESSION"
        elif item.state != "offered":
            assert code == "EMPTY"
        else:
            assert outcome is not None
            (grant,) = outcome.grants
            item.owner, item.session, item.epoch = agent, session, item.epoch + 1
            item.state, item.until_ms = "queued", self.now_ms + START_BY_MS
            assert (grant.item, grant.ownership_epoch, grant.start_by_ms) == (name, item.epoch, item.until_ms)
            if at_once:
                self.begun(item, grant)
            self.grants.append((hand, grant))

    @precondition(lambda self: self.grants)
    @rule(
        how=st.sampled_from(WORK),
        whose=st.sampled_from(WHOSE),
        which=st.integers(0, 20),
        late_ms=st.sampled_from(LATE_MS),
    )
    def work(self, how: str, whose: str, which: int, late_ms: int) -> None:
        """With whatever grant, by whatever session, however late."""
        hand, grant = self.grants[-1 if whose == "newest" else which % len(self.grants)]
        if whose == "any":
            hand = self.hands[which % len(self.hands)]
        self.do(self.world.pass_ms(late_ms))
        match how:
            case "start":
                self.start(hand, grant)
            case "release":
                self.release(hand, grant)
            case "renew":
                self.renew(hand, grant)
            case _:
                self.write(hand, grant, how)

    def begun(self, item: Item, grant: Grant) -> None:
        """S1, S2: a lease of its own, the next number, and until when."""
        assert grant.lease is not None
        assert grant.lease.lease_id not in self.leases
        self.leases.add(grant.lease.lease_id)
        item.state, item.leases, item.lease = "active", item.leases + 1, grant.lease.lease_id
        item.until_ms = self.now_ms + TTL_MS
        assert (grant.lease.number, grant.lease.expires_ms) == (item.leases, item.until_ms)

    def start(self, hand: Hand, grant: Grant) -> None:
        item = self.model.items[grant.item]
        code, outcome = self.said(hand, a_start(grant))
        expected = self.model.refusal(hand, grant, self.now_ms, leased=False)
        if not expected and item.state != "queued":
            expected = "INVALID_STATE_TRANSITION"
        elif not expected and item.until_ms <= self.now_ms:
            expected = "WORK_STALE_OWNERSHIP"
        assert code == (expected or "OK")
        if not expected:
            assert outcome is not None
            (started,) = outcome.grants
            self.begun(item, started)
            self.grants.append((hand, started))

    def write(self, hand: Hand, grant: Grant, how: str) -> None:
        item = self.model.items[grant.item]
        number = item.saved + 1
        state = str(number).encode()
        made: dict[str, Operation] = {
            "save": a_save(grant, number, state),
            "yield": a_yield(grant, number, state),
            "submit": a_submit(grant),
        }
        expected = self.model.refusal(hand, grant, self.now_ms, leased=True)
        if how == "submit" and item.state == "verified" and grant.lease and grant.lease.lease_id == item.lease:
            current = self.model.sessions.get(hand.session.agent) == hand.session.epoch
            expected = "REPEATED" if current else "AUTH_STALE_SESSION"
        code, _ = self.said(hand, made[how])
        assert code == (expected or "OK")
        if expected:
            return
        if how == "submit":
            item.state = "verified"
            self.add()
            return
        item.saved, item.lost = number, 0
        if how == "yield":
            item.state, item.until_ms = "queued", self.now_ms + START_BY_MS

    def release(self, hand: Hand, grant: Grant) -> None:
        item = self.model.items[grant.item]
        expected = self.model.refusal(hand, grant, self.now_ms, leased=False)
        if not expected and not item.is_owned:
            expected = "INVALID_STATE_TRANSITION"
        assert self.said(hand, a_release(grant))[0] == (expected or "OK")
        if not expected:
            item.offer()

    def renew(self, hand: Hand, grant: Grant) -> None:
        if self.model.sessions.get(hand.session.agent) != hand.session.epoch:
            assert self.do(code_of(hand.renew(grant))) == "AUTH_STALE_SESSION"
            return
        expected = self.model.refusal(hand, grant, self.now_ms, leased=True)
        assert self.do(hand.renew(grant)) == [expected or "OK"]
        self.model.silent_ms[hand.session.agent] = self.now_ms + SILENT_MS
        if not expected:
            self.model.items[grant.item].until_ms = self.now_ms + TTL_MS

    @rule(span_ms=st.sampled_from([1, TTL_MS - 1, TTL_MS, TTL_MS, SILENT_MS, START_BY_MS]), ticks=st.booleans())
    def time_passes(self, span_ms: int, ticks: bool) -> None:
        self.do(self.world.pass_ms(span_ms))
        if ticks:
            self.do(self.world.authority.tick(0))
            self.model.tick(self.now_ms)

    @precondition(lambda self: self.newest[1].state == "open")
    @rule()
    def a_person_lets_go_what_is_parked(self) -> None:
        name, item = self.newest
        action = f"{item.epoch}"
        self.do(commands.retry(self.world.store, GROUP, ItemId(name), actor="ana", action=action))
        item.lost = 0
        item.offer()

    @invariant()
    def the_store_holds_what_the_model_says(self) -> None:
        due: dict[str, int] = {}
        for name, item in self.model.items.items():
            stored = self.do(self.world.item(item=name))
            found = (stored["st"], stored.get("own", ""), int(stored.get("oe", "0")), int(stored.get("ln", "0")))
            assert found == (item.state, item.owner, item.epoch, item.leases), name
            if item.is_owned:
                assert int(stored["ses"]) == item.session
                due[f"{'l' if item.state == 'active' else 's'} {GROUP} {name}"] = item.until_ms
        assert self.do(self.due("ls")) == due
        assert self.do(self.due("x")) == {
            f"x {agent} {self.model.sessions[agent]}": at for agent, at in self.model.silent_ms.items()
        }


def test_s1_s4_whatever_comes_however_late_the_lease_table_is_that_of_the_model() -> None:
    run_state_machine_as_test(LeaseMachine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_s1_s4_whatever_comes_however_late_the_lease_table_is_that_of_the_model_for_long() -> None:
    run_state_machine_as_test(LeaseMachine, settings=DEEP)
