"""What a handler may rely on is the same on the Worker's event loop, in a thread, and in a process of its own."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from fleet import Desk, Fleet, Member, until
from treadle.coordinator import MissionFailed, Retry, WorkSpec
from treadle.shared import codec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.processes import identity

K = EventKind
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("runtime", ["task", "process"])]


async def started(fleet: Fleet, runtime: str, *, slots: int = 2) -> Member:
    in_processes = ("--runtime", runtime) if runtime == "process" else ()
    worker = fleet.start(slots=slots, arguments=("--handlers", "both_handlers", *in_processes))
    await fleet.ready()
    return worker


def work(id: str, capability: str, inputs: dict[str, Any], **of: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=f"both.{capability}", inputs=inputs, **{"retry": 0, **of})


async def failures(desk: Desk, *items: WorkSpec) -> dict[str, tuple[str, str, int]]:
    """Type, text and number of runs of what fails, by its id."""
    mission = await desk.submit("bad", *items)
    with pytest.raises(MissionFailed) as failed:
        await mission.results(timeout=60)
    await until(lambda: _all_ended(desk, "bad", len(items)), description="all have ended")
    with pytest.raises(MissionFailed) as failed:
        await mission.results(timeout=30)
    runs = {name: view.lease_number for name, view in (await mission.items()).items()}
    return {one.item: (one.type, one.text, runs[one.item]) for one in failed.value.failures}


async def _all_ended(desk: Desk, mission: str, items: int) -> bool:
    view = await desk.client.mission(mission).view()
    return view.failed + view.verified + view.cancelled == items


async def test_typed_inputs_and_results(runtime: str, fleet: Fleet, desk: Desk) -> None:
    await started(fleet, runtime)
    good = {"path": "a.png", "size": 128}
    mission = await desk.submit("good", work("a", "typed", good), work("b", "typed-sync", good))
    assert await mission.results(timeout=60) == {
        "a": {"path": "a.png.128", "bytes": 256},
        "b": {"path": "a.png", "bytes": 128},
    }
    found = await failures(
        desk,
        work("large", "typed", {"path": "a", "size": 5000}, retry=3),
        work("missing", "typed-sync", {"size": 1}, retry=3),
    )
    for name, field, value in (("large", "size", "5000"), ("missing", "path", "")):
        _, text, runs = found[name]
        assert field in text
        assert value in text
        assert runs == 1, "the same inputs are wrong at every attempt"


async def test_br_57_an_exception_that_cannot_be_rebuilt_is_its_items_failure(
    runtime: str, fleet: Fleet, desk: Desk
) -> None:
    await started(fleet, runtime)
    whats = ("arguments", "long", "surrogate", "control", "final")
    found = await failures(desk, *(work(what, "raises", {"what": what}) for what in whats))
    assert found["arguments"][:2] == ("NeedsArguments", "this and that")
    assert found["long"][0] == "ValueError"
    assert len(found["long"][1]) < 5_000
    assert found["surrogate"][1] == "lone \\ud800 surrogate"
    assert found["control"][1] == "\\x1b[2J cleared"
    assert found["final"][:2] == ("Fail", "never")
    mission = await desk.submit("after", work("a", "slow", {"s": 0}))
    assert await mission.results(timeout=60) == {"a": "slept"}, "its Worker goes on"


async def test_br_59_br_61_a_result_that_cannot_be_stored_fails_with_its_path(
    runtime: str, fleet: Fleet, desk: Desk
) -> None:
    await started(fleet, runtime)
    mission = await desk.submit("good", work("a", "returns", {"what": "fits"}))
    assert await mission.results(timeout=60) == {"a": {"items": [-(2**63), 2**63, {"id": 2**64 - 1}]}}
    whats = ("large integer", "small integer", "integer key", "tuple key", "twin keys")
    found = await failures(desk, *(work(what.replace(" ", "-"), "returns", {"what": what}, retry=3) for what in whats))
    for name, path in (
        ("large-integer", "result.items[3].id: "),
        ("small-integer", "result.items[3].id: "),
        ("integer-key", "result.a"),
        ("tuple-key", "result.a"),
        ("twin-keys", "result.a"),
    ):
        kind, text, runs = found[name]
        assert (kind, runs) == ("Misuse", 1), name
        assert text.startswith(path), text


async def test_br_65_what_is_too_large_is_refused_with_its_size_and_the_limit(
    runtime: str, fleet: Fleet, desk: Desk
) -> None:
    await started(fleet, runtime)
    found = await failures(
        desk,
        work("result", "returns", {"what": "large"}, retry=3),
        work("checkpoint", "saves", {"bytes": 20 << 20}),
    )
    for name, limit in (("result", codec.RESULT_MAX), ("checkpoint", codec.CHECKPOINT_MAX)):
        assert f"bytes when packed, at most {limit:,}" in found[name][1]
    assert not await desk.of_kind("bad", K.PROGRESS_SAVED)
    most = codec.CHECKPOINT_MAX - 100
    mission = await desk.submit("good", work("a", "saves", {"bytes": most}))
    assert await mission.results(timeout=60) == {"a": "saved"}


async def test_each_attempt_has_its_time_and_is_made_again_by_the_contract(
    runtime: str, fleet: Fleet, desk: Desk
) -> None:
    await started(fleet, runtime)
    again = Retry(retries=3, first_s=0.05, most_s=0.1)
    mission = await desk.submit("good", work("a", "tries", {"good": 3}, retry=again))
    assert await mission.results(timeout=60) == {"a": [1, 2, 3]}
    failed = await desk.of_kind("good", K.FAILED)
    assert len(failed) == 2
    assert all(0 < int(event.get("retry_ms")) - event.at_ms <= 100 for event in failed), "backoff, by the contract"
    reached = [event.get("milestones") for event in await desk.of_kind("good", K.PROGRESSED)]
    assert reached == [f"attempt%20{n}" for n in (1, 2, 3)], "each run said so before its end"
    found = await failures(
        desk,
        work("slow", "slow", {"s": 600}, timeout_s=0.5, retry=Retry(retries=1, first_s=0.05, most_s=0.1)),
        work("final", "raises", {"what": "final"}, retry=3),
    )
    assert found["slow"][0] == "TimeoutError"
    assert "longer than its time-out of 0.5 s" in found["slow"][1]
    assert (found["slow"][2], found["final"][2]) == (2, 1)


async def test_blocked_frees_the_slot_and_says_what_it_needs(runtime: str, fleet: Fleet, desk: Desk) -> None:
    await started(fleet, runtime)
    mission = await desk.submit("m", work("a", "raises", {"what": "an answer"}))

    async def blocked() -> bool:
        return (await mission.items())["a"].state is ItemState.BLOCKED

    await until(blocked, description="it is blocked")
    view = (await mission.items())["a"]
    assert view.state is ItemState.BLOCKED
    (event,) = await desk.of_kind("m", K.BLOCKED)
    assert codec.unpack(event.payload, what="needs") == {"of": "an answer"}


LEFT = (
    "a task that swallows its cancellation",
    "the executor of the loop",
    "an executor of its own",
    "a thread of anyio",
    "a thread",
)


async def test_what_a_handler_leaves_running_holds_back_neither_its_result_nor_its_slot_nor_its_workers_end(
    runtime: str, fleet: Fleet, desk: Desk
) -> None:
    """S16: a process that something is left in is ended with it, and is no other run's."""
    worker = await started(fleet, runtime)
    left = [
        work(f"{kind}-{number}", kind, {"what": what}, timeout_s=30.0)
        for kind in ("leaves", "leaves-sync")
        for number, what in enumerate(LEFT)
    ]
    mission = await desk.submit("m", *left)
    pids = await mission.results(timeout=50)
    assert {one.lease_number for one in (await mission.items()).values()} == {1}
    other = await desk.submit("n", work("a", "slow", {"s": 0}), work("b", "slow", {"s": 0}))
    assert await other.results(timeout=30) == {"a": "slept", "b": "slept"}
    if runtime == "process":
        assert len(set(pids.values())) == len(left)
        await until(lambda: not any(map(identity, pids.values())), description="their processes are ended")
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=10) == 0, worker.tail()
