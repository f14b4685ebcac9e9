"""The demo's figures, each from logs written by hand."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, field

import pytest
from treadle.coordinator.demo import evidence, plain
from treadle.coordinator.demo.evidence import Processed, Run, WorkerEnd
from treadle.coordinator.demo.table import table
from treadle.shared.errors import Corrupt
from treadle.shared.model import EVENT_FIELDS, AgentId, Event, EventKind, GroupId, ItemId, ItemState

K = EventKind
W1, W2 = AgentId("worker-1"), AgentId("worker-2")


@dataclass
class Log:
    """One Group's log, written in its own words."""

    name: str
    events: list[Event] = field(default_factory=list)

    def add(self, now_ms: int, kind: EventKind, item: str | None = None, by: str = "policy", **data: object) -> Log:
        tokens = tuple(str(data.get(name, 1)) for name in EVENT_FIELDS[kind])
        token = ItemId(item) if item is not None else None
        self.events.append(Event(GroupId(self.name), 1, len(self.events) + 1, kind, now_ms, token, by, tokens))
        return self

    def created(self, at_ms: int, *shards: str) -> Log:
        self.add(at_ms, K.MISSION_CREATED)
        for item in shards:
            self.add(at_ms, K.AUTHORIZED, item, dependencies=0)
        self.add(at_ms, K.AUTHORIZED, "merge", dependencies=len(shards))
        for item in shards:
            self.add(at_ms, K.OFFERED, item)
        return self

    def started(self, at_ms: int, item: str, agent: AgentId, number: int = 1) -> Log:
        by = f"{agent}@1"
        return self.add(at_ms, K.ACCEPTED, item, by).add(at_ms, K.STARTED, item, by, number=number)

    def saved(self, at_ms: int, item: str, agent: AgentId) -> Log:
        return self.add(at_ms, K.PROGRESS_SAVED, item, f"{agent}@1")

    def done(self, at_ms: int, item: str, agent: AgentId) -> Log:
        return self.add(at_ms, K.SUBMITTED, item, f"{agent}@1").add(at_ms, K.RESULT_ACCEPTED, item)

    def lapsed(self, at_ms: int, item: str, agent: AgentId, expired_ms: int) -> Log:
        self.add(at_ms, K.LAPSED, item, "timer", agent=agent, at_ms=expired_ms)
        return self.add(at_ms, K.OFFERED, item)


def two_missions() -> tuple[Log, Log]:
    """Two Workers of one slot; A alone until 1000, then both; W1 is killed at 3000 and its lease lapses at 4500."""
    a = Log("index").created(0, "s1", "s2", "s3").started(0, "s1", W1)
    b = Log("audit").created(1000, "s1", "s2").started(1500, "s1", W2)
    a.done(2000, "s1", W1).started(2000, "s2", W1).saved(2500, "s2", W1)
    b.done(2500, "s1", W2).started(4000, "s2", W2)
    a.lapsed(4510, "s2", W1, 4500).started(5000, "s2", W2, number=2).done(6000, "s2", W2)
    return a, b


def test_a_run_lasts_from_its_start_to_its_end_and_a_lapsed_one_to_the_leases_expiry() -> None:
    a, _ = two_missions()
    assert evidence.runs_of(a.events) == [
        Run(ItemId("s1"), W1, 1, 1, 0, 0, 2000, K.SUBMITTED),
        Run(ItemId("s2"), W1, 1, 1, 2000, 1, 4500, K.LAPSED),
        Run(ItemId("s2"), W2, 2, 1, 5000, 0, 6000, K.SUBMITTED),
    ]


@pytest.mark.parametrize(
    "end", [K.SUBMITTED, K.FAILED, K.CHECKPOINTED, K.RELEASED, K.REQUEUED], ids=lambda kind: str(kind)
)
def test_each_end_of_a_run_ends_it(end: EventKind) -> None:
    log = Log("a").created(0, "s").started(10, "s", W1).add(30, end, "s")
    assert [(run.started_ms, run.ended_ms, run.ended_by) for run in evidence.runs_of(log.events)] == [(10, 30, end)]


def test_shares_are_taken_while_both_have_a_shard_waiting() -> None:
    a, b = two_missions()
    shares = evidence.shares_of(a.events, b.events)
    assert shares is not None
    # From B's first offer until B's last shard starts: A has 1000 of s1 and 2000 of s2, B has 1000 of s1.
    assert (shares.from_ms, shares.to_ms) == (1000, 4000)
    assert (shares.a_ms, shares.b_ms) == (3000, 1000)
    assert shares.share_a == 0.75
    assert shares.share_b == 0.25


def test_shares_end_when_the_first_mission_has_none_waiting() -> None:
    a = Log("index").created(0, "s1", "s2").started(0, "s1", W1).started(1700, "s2", W2).done(5000, "s1", W1)
    b = Log("audit").created(1000, "s1", "s2").started(1200, "s1", W1)
    shares = evidence.shares_of(a.events, b.events)
    assert shares is not None
    assert (shares.from_ms, shares.to_ms) == (1000, 1700)


def test_a_merge_that_waits_is_no_work_to_share() -> None:
    a = Log("index").created(0, "s1").started(0, "s1", W1).done(500, "s1", W1).add(500, K.OFFERED, "merge")
    b = Log("audit").created(1000, "s1")
    assert evidence.shares_of(a.events, b.events) is None


def test_shares_are_none_where_there_never_were_two() -> None:
    a, _ = two_missions()
    assert evidence.shares_of(a.events, []) is None
    late = Log("audit").created(9000, "s1")
    done = Log("index").created(0, "s1").started(1, "s1", W1).done(2, "s1", W1)
    assert evidence.shares_of(done.events, late.events) is None


def test_width_counts_as_slots() -> None:
    a = Log("index").add(0, K.MISSION_CREATED).add(0, K.AUTHORIZED, "wide", width=3, dependencies=0)
    a.add(0, K.OFFERED, "wide").started(0, "wide", W1)
    (run,) = evidence.runs_of(a.events)
    assert run.width == 3


def test_resumption_is_counted_from_the_kill_to_the_start_elsewhere() -> None:
    a, b = two_missions()
    killed = WorkerEnd(W1, 77, -signal.SIGKILL, killed_ms=3000)
    assert evidence.resumptions_s(a.events, killed) == [2.0]
    assert evidence.resumptions_s(b.events, killed) == []
    assert evidence.offered_again_s(a.events, killed) == [1.51]
    assert evidence.resumptions_s(a.events, WorkerEnd(W1, 77, 0)) == []
    assert evidence.offered_again_s(a.events, WorkerEnd(W1, 77, 0)) == []


def test_whoever_runs_something_of_a_log_is_known() -> None:
    a = Log("index").created(0, "s1", "s2").started(1, "s1", W1).started(1, "s2", W2).done(2, "s1", W1)
    assert evidence.running(a.events) == {W2}


def line(attempt: int, file: str, item: str = "s2", order: int = 1) -> Processed:
    return Processed("index", item, file, attempt, f"worker-{attempt}", 100 + attempt, order)


def test_a_file_is_redone_where_two_attempts_processed_it() -> None:
    lines = [line(1, "a.py"), line(1, "b.py"), line(2, "b.py"), line(2, "c.py"), line(2, "a.py", item="s9")]
    assert evidence.redone(lines) == 1
    assert evidence.redone([*lines, line(3, "b.py")]) == 2


def test_only_a_torn_last_line_is_passed_over() -> None:
    whole = json.dumps(asdict(line(1, "a.py"))).encode() + b"\n"
    assert evidence.read_lines(whole * 2 + whole[:20], name="x") == [line(1, "a.py")] * 2
    assert evidence.read_lines(b"", name="x") == []
    with pytest.raises(Corrupt, match="evidence x line 1"):
        evidence.read_lines(whole[:20] + b"\n" + whole, name="x")


def test_a_second_accepted_result_is_a_duplicate() -> None:
    a, b = two_missions()
    both = [*a.events, *b.events]
    assert evidence.duplicates(both) == 0
    assert evidence.duplicates([*both, a.events[-1]]) == 1


def test_a_log_that_breaks_the_table_of_states_gives_no_figures() -> None:
    log = Log("index").created(0, "s1").done(5, "s1", W1)
    with pytest.raises(ValueError, match="no transition"):
        evidence.figures(log.events, [], [], [])


def test_whoever_is_in_the_middle_of_most_shards_comes_first_and_must_live() -> None:
    a = Log("index").created(0, "s1", "s2", "s3").started(1, "s1", W1).saved(2, "s1", W1).started(1, "s2", W2)
    alive = frozenset({W1, W2})
    assert evidence.holders([a.events], alive) == [W1]
    a.saved(3, "s2", W2).started(4, "s3", W2).saved(5, "s3", W2)
    assert evidence.holders([a.events], alive) == [W2, W1]
    assert evidence.holders([a.events], frozenset({W1})) == [W1]
    a.done(6, "s1", W1)
    assert evidence.holders([a.events], frozenset({W1})) == []


def test_all_figures_come_from_logs_and_evidence() -> None:
    a, b = two_missions()
    lines = [line(1, "a.py"), line(2, "a.py"), line(2, "b.py")]
    ends = [WorkerEnd(W1, 77, -signal.SIGKILL, 3000), WorkerEnd(W2, 78, 0)]
    assert evidence.figures(a.events, b.events, lines, ends) == {
        "missions": 2,
        "items": 7,
        "verified": 3,
        "unfinished": 4,
        "duplicates": 0,
        "events": len(a.events) + len(b.events),
        "files": 2,
        "saves": 1,
        "kills": 1,
        "lapsed_leases": 1,
        "offered_again_after_s": 1.51,
        "resumed_items": 1,
        "resumed_after_s": 2.0,
        "resumed_after_s_least": 2.0,
        "redone_files": 1,
        "share_a": 0.75,
        "share_b": 0.25,
        "share_window_s": 3.0,
        "seconds": 6.0,
    }


def test_a_kill_counts_only_where_the_system_says_so() -> None:
    a, b = two_missions()
    ended_first = [WorkerEnd(W1, 77, 0, killed_ms=3000)]
    assert evidence.figures(a.events, b.events, [], ended_first)["kills"] == 0
    assert evidence.figures(a.events, b.events, [], ended_first)["resumed_after_s"] is None


def test_nothing_at_all_gives_figures_too() -> None:
    made = evidence.figures([], [], [], []) | {"report_matches": False, "plain_s": 0.0}
    assert (made["items"], made["share_a"], made["seconds"]) == (0, None, 0.0)
    assert "never both" in table(made, {"index": 1, "audit": 3})


def test_the_table_holds_the_shares_against_their_weights() -> None:
    a, b = two_missions()
    made = evidence.figures(a.events, b.events, [], []) | {"report_matches": True, "plain_s": 1.5}
    text = table(made, {"index": 1, "audit": 3})
    assert "index 75.0% (due 25%), audit 25.0% (due 75%)" in text
    assert "byte for byte" in text


def test_progress_counts_the_slots_of_the_living_only() -> None:
    a, b = two_missions()
    logs = {"index": a.events[:14], "audit": b.events[:8]}
    assert evidence.states_of(logs["index"])[ItemId("s2")] is ItemState.ACTIVE
    living = evidence.progress_line(logs, frozenset({W1, W2}), slots_each=2)
    assert living == "index  1/4 verified, 1 running | audit  0/3 verified, 1 running | 2 of 4 slots busy"
    widowed = evidence.progress_line(logs, frozenset({W2}), slots_each=2)
    assert widowed.endswith("index  1/4 verified, 0 running | audit  0/3 verified, 1 running | 1 of 2 slots busy")
    assert evidence.progress_line({"index": []}, frozenset(), slots_each=2) == ""


def test_a_difference_is_shown_and_bounded() -> None:
    expected = {"files": {f"{number}.py": number for number in range(500)}}
    assert plain.difference(expected, json.loads(json.dumps(expected))) == ""
    one = plain.difference(expected, {"files": expected["files"] | {"7.py": 8}})
    assert one.splitlines()[2:] == ["-files > 7.py: 7", "+files > 7.py: 8"]
    other = {"files": {f"{number}.py": number + 1 for number in range(500)}}
    shown = plain.difference(expected, other)
    assert shown.startswith("--- plain computation\n+++ Missions\n")
    assert len(shown.splitlines()) <= plain.DIFFERENCE_LINES_MAX + 1
    assert "lines more" in shown
    assert max(map(len, plain.difference({"a": "x" * 9_000}, {}).splitlines())) < 300
