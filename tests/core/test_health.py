"""`treadle doctor`: what each fact of a server means, and that what it cannot say is UNKNOWN and never OK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from treadle.coordinator.core.health import Finding, Verdict, judge, worst
from treadle.shared.facts import NEVER_MS, IncarnationFacts, ServerFacts, WorkerFacts
from treadle.shared.model import AgentId, Capability

NOW = 1_800_000_000_000
LIVE = WorkerFacts(AgentId("w"), 1, (Capability("index"),), 4, 10_000, NOW, 0)
BEGUN = IncarnationFacts(NOW - 5_000, NOW - 5_000, "ana", "a backup")
GOOD = ServerFacts(
    "redis://h:6379/0",
    "treadle",
    product="Redis",
    version="7.0.15",
    role="master",
    is_cluster=False,
    is_loading=False,
    eviction="noeviction",
    appends=True,
    fsync="everysec",
    appends_well=True,
    used_bytes=10 << 20,
    limit_bytes=100 << 20,
    node_bytes=512,
    skew_ms=0.3,
    latency_ms=0.2,
    latency_worst_ms=1.0,
    library="treadle_1",
    libraries=("treadle_1",),
    format_wanted=1,
    format_version="1",
    partitions=16,
    workers=(LIVE,),
    now_ms=NOW,
)


def found(check: str, **facts: Any) -> Finding:
    return next(one for one in judge(replace(GOOD, **facts)) if one.check == check)


def test_a_server_as_it_should_be_is_ok_throughout() -> None:
    findings = judge(GOOD)
    assert {one.verdict for one in findings} == {Verdict.OK}
    assert worst(findings) is Verdict.OK
    assert all(not one.todo for one in findings)


@pytest.mark.parametrize(
    ("check", "facts", "verdict"),
    [
        ("version", {"version": "6.2.1"}, Verdict.FAIL),
        ("version", {"product": "Valkey", "version": "9.1.2"}, Verdict.OK),
        ("role", {"role": "slave"}, Verdict.FAIL),
        ("role", {"is_cluster": True}, Verdict.FAIL),
        ("role", {"is_loading": True}, Verdict.FAIL),
        ("eviction", {"eviction": "allkeys-lru"}, Verdict.FAIL),
        ("persistence", {"appends": False}, Verdict.FAIL),
        ("persistence", {"appends_well": False}, Verdict.FAIL),
        ("persistence", {"fsync": "no"}, Verdict.WARN),
        ("memory", {"limit_bytes": 0}, Verdict.OK),
        ("memory", {"used_bytes": 76 << 20}, Verdict.WARN),
        ("memory", {"used_bytes": 85 << 20}, Verdict.FAIL),
        ("stream nodes", {"node_bytes": 4096}, Verdict.WARN),
        ("stream nodes", {"node_bytes": 0}, Verdict.WARN),
        ("clock", {"skew_ms": -2_500.0}, Verdict.WARN),
        ("clock", {"skew_ms": 61_000.0}, Verdict.FAIL),
        ("latency", {"latency_ms": 20.0}, Verdict.WARN),
        ("library", {"libraries": ()}, Verdict.OK),
        ("library", {"libraries": ("treadle_0", "treadle_1")}, Verdict.OK),
        ("library", {"libraries": ("treadle_0", "treadle_1", "treadle_2")}, Verdict.WARN),
        ("store", {"format_version": None}, Verdict.OK),
        ("store", {"format_version": "2"}, Verdict.FAIL),
        ("store", {"bound_elsewhere": 3}, Verdict.WARN),
        ("store", {"damage": "\x1b[31mWRONGTYPE"}, Verdict.FAIL),
        ("lineage", {"quarantine_ms": NOW}, Verdict.OK),
        ("lineage", {"quarantine_ms": NOW + 1}, Verdict.WARN),
        ("lineage", {"quarantine_ms": NEVER_MS, "doubt": "w"}, Verdict.FAIL),
        ("lineage", {"incarnations": (BEGUN,)}, Verdict.OK),
        ("groups", {"halted": ("m",)}, Verdict.FAIL),
        ("workers", {"workers": ()}, Verdict.OK),
        ("workers", {"unserved": (Capability("x"),)}, Verdict.WARN),
        ("workers", {"overdue_ms": 60_000}, Verdict.WARN),
    ],
)
def test_what_a_fact_means(check: str, facts: dict[str, Any], verdict: Verdict) -> None:
    one = found(check, **facts)
    assert one.verdict is verdict
    assert bool(one.todo) or verdict is Verdict.OK, "what is wrong comes with what to do"


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        ("version", {"version": None}),
        ("role", {"role": None, "is_cluster": None, "is_loading": None}),
        ("eviction", {"eviction": None}),
        ("persistence", {"appends": None}),
        ("memory", {"used_bytes": None}),
        ("stream nodes", {"node_bytes": None}),
        ("clock", {"skew_ms": None}),
        ("latency", {"latency_ms": None}),
        ("library", {"libraries": None}),
    ],
)
def test_what_a_server_cannot_say_is_unknown(check: str, facts: dict[str, Any]) -> None:
    assert found(check, **facts).verdict is Verdict.UNKNOWN


def test_of_a_server_out_of_reach_only_that_is_said() -> None:
    findings = judge(replace(GOOD, unreachable="nobody listens"))
    assert [(one.check, one.verdict, one.found) for one in findings] == [("connection", Verdict.FAIL, "nobody listens")]
    assert worst(findings) is Verdict.FAIL


def test_a_silent_worker_is_not_counted_as_live() -> None:
    silent = replace(LIVE, renewed_ms=NOW - 40_001)
    assert found("workers", workers=(LIVE, silent)).found == "1 live, 4 slots, 1 silent"


def test_who_began_the_last_incarnation_is_said_beside_whatever_else_is_so() -> None:
    said = "a person's last new incarnation: ana, 5.0 s ago (a backup)"
    assert found("lineage", incarnations=(BEGUN,)).found == said
    quarantine = found("lineage", incarnations=(BEGUN,), quarantine_ms=NOW + 2_000)
    assert quarantine.found.endswith(f"for the next 2.0 s; {said}")
