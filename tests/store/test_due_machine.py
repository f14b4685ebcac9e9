"""What is due, in its order and never before its time: the partition's `@due` against a plain list of times (design.md 3.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GROUP, a_new_item, a_new_mission
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from store.machine import DEEP, QUICK, StoreMachine
from store.world import a_fail, a_start, a_submit, a_yield
from treadle.shared.model import Grant
from treadle.shared.store import Operation, RenewalDoor, commands
from treadle.shared.store.replies import Envelope

TTL_MS = 1_000
SILENT_MS = 10 * TTL_MS
RETRY_MS = 700
KEPT_MS = 5_000
"""How long each item is kept after its end, in a Mission that grows."""


class DueMachine(StoreMachine):
    """Items that wait for a time, for another attempt, for their lease, their start and the end of their being kept."""

    def __init__(self) -> None:
        super().__init__()
        mission = replace(a_new_mission(), items=(), open=True, keep_results_s=KEPT_MS // 1000)
        self.do(self.world.store.create(mission))
        self.hand = self.do(self.world.hand(ttl_ms=TTL_MS))
        self.door = RenewalDoor(self.world.store, self.hand.session)
        self.times: dict[str, int] = {f"x worker-1 {self.hand.session.epoch}": self.now_ms + SILENT_MS}
        self.offered: set[str] = set()
        self.owned: dict[str, Grant] = {}
        self.lost: dict[str, int] = {}
        self.failed: set[str] = set()
        """Those that failed for good: that they are kept no longer is an Event."""
        self.count = 0

    def entry(self, kind: str, item: str, after_ms: int) -> None:
        self.times[f"{kind} {GROUP} {item}"] = self.now_ms + after_ms

    def over(self, *kinds: str, item: str) -> None:
        for kind in kinds:
            self.times.pop(f"{kind} {GROUP} {item}", None)

    def lives(self) -> None:
        self.door.renew(0, [])
        self.times[f"x worker-1 {self.hand.session.epoch}"] = self.now_ms + SILENT_MS

    @rule(after_ms=st.sampled_from([0, 1, 300, 300, 2_000]), start_by_s=st.integers(1, 3))
    def add(self, after_ms: int, start_by_s: int) -> None:
        name, self.count = f"i{self.count:04}", self.count + 1
        fields = {"start_by_s": start_by_s, "not_before": f"+{after_ms}", "retry": f"2 {RETRY_MS} {RETRY_MS}"}
        new = replace(a_new_item(name), digest=name, **fields)  # type: ignore[arg-type]  # each a field of its type
        self.do(commands.add(self.world.store, GROUP, [new], actor="ana"))
        if after_ms:
            self.entry("n", name, after_ms)
        else:
            self.offered.add(name)

    @precondition(lambda self: self.offered)
    @rule(at_once=st.booleans())
    def take(self, at_once: bool) -> None:
        (grant,) = self.do(self.hand.take(slots=int(at_once), ahead=int(not at_once)))
        self.offered.remove(grant.item)
        self.owned[grant.item] = grant
        if at_once:
            self.entry("l", grant.item, TTL_MS)
        else:
            self.entry("s", grant.item, grant.start_by_ms - self.now_ms)

    def picked(self, number: int) -> Grant:
        return self.owned[sorted(self.owned)[number % len(self.owned)]]

    @precondition(lambda self: self.owned)
    @rule(number=st.integers(0, 9), how=st.sampled_from(["start", "submit", "fail", "fail for now", "yield", "renew"]))
    def work(self, number: int, how: str) -> None:
        """Whether it was done is the store's to say; what is due afterwards is not."""
        grant = self.picked(number)
        item = grant.item
        if how == "renew":
            if self.do(self.hand.renew(grant)) == ["OK"]:
                self.entry("l", item, TTL_MS)
            self.times[f"x worker-1 {self.hand.session.epoch}"] = self.now_ms + SILENT_MS
            return
        made: dict[str, Operation] = {
            "start": a_start(grant),
            "submit": a_submit(grant),
            "fail": a_fail(grant),
            "fail for now": replace(a_fail(grant), retryable=True),
            "yield": a_yield(grant, grant.checkpoint_number + 1),
        }
        outcome = self.do(self.hand.do(made[how], slots=1))
        if outcome.code != "OK":
            return
        self.over("l", "s", item=item)
        if how == "start":
            (self.owned[item],) = outcome.grants
            self.entry("l", item, TTL_MS)
        elif how == "yield":
            self.owned[item] = replace(grant, checkpoint_number=grant.checkpoint_number + 1)
            self.lost.pop(item, None)
            self.entry("s", item, outcome.at_ms - self.now_ms)
        else:
            del self.owned[item]
            if how == "fail for now" and outcome.at_ms:
                self.times[f"n {GROUP} {item}"] = outcome.at_ms
            else:
                self.entry("e", item, KEPT_MS)
                if how != "submit":
                    self.failed.add(item)

    @rule(span_ms=st.sampled_from([1, 299, 300, 699, 700, 999, 1_000, 3_000]))
    def time_passes(self, span_ms: int) -> None:
        self.do(self.world.pass_ms(span_ms))
        self.lives()

    @rule(most=st.sampled_from([1, 2, 64]))
    def tick(self, most: int) -> None:
        """The earliest that are due are carried out, as many as asked for; the rest is the next tick's."""
        due = sorted((at, member) for member, at in self.times.items() if at <= self.now_ms)[:most]
        before = self.do(self.world.log())[-1].seq
        envelope, carried_out = self.do(self.world.authority.tick(0, most=most))
        assert carried_out == len(due)
        happened = [str(event.item) for event in self.do(self.world.log()) if event.seq > before]
        for _, member in due:
            kind, _, item = member.split(" ")
            self.come(kind, item)
            if kind != "e" or item in self.failed:
                assert happened.pop(0) == item, "in the order of their times"
                happened = happened[1:] if happened[:1] == [item] else happened
        assert happened == [], "and nothing else"
        assert isinstance(envelope, Envelope)
        assert envelope.due_ms == min(self.times.values())

    def come(self, kind: str, item: str) -> None:
        del self.times[f"{kind} {GROUP} {item}"]
        if kind == "n":
            self.offered.add(item)
        elif kind in ("l", "s"):
            del self.owned[item]
            if kind == "s":
                self.offered.add(item)
                return
            # A run that is lost again waits before it is offered, once, twice, four times as long up to the contract's most.
            self.lost[item] = self.lost.get(item, 0) + 1
            if self.lost[item] == 1:
                self.offered.add(item)
            elif self.lost[item] < 5:
                self.entry("n", item, RETRY_MS)

    @invariant()
    def all_that_is_due_stands_there_once_with_its_time(self) -> None:
        assert self.do(self.due("lsnex")) == self.times

    def teardown(self) -> None:
        self.door.close()
        super().teardown()


def test_what_is_due_comes_in_its_order_and_never_before_its_time() -> None:
    run_state_machine_as_test(DueMachine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_due_comes_in_its_order_and_never_before_its_time_for_long() -> None:
    run_state_machine_as_test(DueMachine, settings=DEEP)
