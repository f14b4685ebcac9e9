"""A handler behaves alike on the event loop, in a thread and in a process of its own: the same outcome, to the word."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import behaviours
import pytest
from fleet import until
from inside import at_work
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.errors import Misuse
from treadle.shared.model import AgentId
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Worker
from treadle.worker.handlers import Runtime
from treadle.worker.loading import load
from treadle.worker.programs import from_options
from treadle.worker.slots.tools import collect_tools

pytestmark = pytest.mark.slow

RAISED = {
    "value-error": ("ValueError", "no such thing"),
    "fail": ("Fail", "never"),
    "fail-retryable": ("Fail", "later"),
    "group": ("ExceptionGroup", "several (2 sub-exceptions)\nFail: one\nValueError: two"),
    "odd": ("Odd", "odd"),
    "exit": ("SystemExit", "3"),
    "interrupt": ("KeyboardInterrupt", ""),
    "generator-exit": ("GeneratorExit", ""),
    "stop-iteration": ("RuntimeError", "coroutine raised StopIteration"),
    "cancelled": ("CancelledError", ""),
    "set": ("Misuse", "result.a[1]: a value of type set cannot be stored; use sorted(...)"),
    "large": (
        "Misuse",
        "result: 2,097,157 bytes when packed, at most 1,048,576; keep large data elsewhere, pass its address",
    ),
    "surrogate": ("Misuse", "result: holds a lone surrogate"),
    "blocked-badly": ("Misuse", "Blocked: reason: '', must be a text that says what it waits for"),
    "in-a-task": ("ExceptionGroup", "unhandled errors in a TaskGroup (1 sub-exception)\nLookupError: in a task"),
}
IN_THREAD = {
    "stop-iteration": ("RuntimeError", "the handler raised StopIteration"),
    "exit": ("SystemExit", "3"),
    "coroutine": ("Misuse", "the handler is a plain function and returned a coroutine: write `async def`"),
}
OVER = ("TimeoutError", "it took longer than its time-out of 0.5 s")
FAILS: dict[str, tuple[str, str]] = {
    **{f"loop-{how}": said for how, said in RAISED.items()},
    **{f"thread-{how}": said for how, said in IN_THREAD.items()},
    "misfit": ("Misfit", "inputs of both.typed: names"),
    "slow": OVER,
    "slow-in-thread": OVER,
}


def work(id: str, capability: str, *, timeout_s: float | None = None, **inputs: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=capability, inputs=inputs, retry=0, timeout_s=timeout_s)


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def modes(folder: Path) -> list[tuple[str, int]]:
    """What is in the Worker's folder; what goes while it is looked at is not."""
    found: list[tuple[str, int]] = []
    for one in sorted(folder.glob("*/*")):
        with suppress(FileNotFoundError):
            found.append((one.name.split("-")[0], one.stat().st_mode & 0o777))
    return found


@pytest.mark.parametrize("runtime", ["task", "process"])
@pytest.mark.timeout(180)
async def test_a_run_has_a_folder_of_its_own_that_is_gone_with_it(runtime: Runtime, tmp_path: Path) -> None:
    """S17: nobody else's to read, empty, another one at the next run; of the Worker nothing is left but its lock."""
    endpoint = FakeEndpoint()
    worker = Worker(
        load("behaviours"), endpoint=endpoint, name=AgentId("one"), lease_ttl_s=2.0, runtime=runtime, slot_dir=tmp_path
    )
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
        items = [work("a", "both.folder"), work("b", "both.folder"), work("c", "both.folder_in_thread")]
        mission = await client.submit(MissionSpec(id="m", objective="folders", work=items))
        results = await mission.results(timeout=60)
        await until(lambda: modes(tmp_path) == [("owner", 0o600)], description="no run's folder is left")
    a, b = results["a"], results["b"]
    assert (a["mode"], a["files"]) == (b["mode"], b["files"]) == (0o700, [])
    assert len({a["path"], b["path"], results["c"]}) == 3
    assert left_in(tmp_path) == [], "no folder of a slot is left"


@pytest.mark.parametrize("runtime", ["task", "process"])
@pytest.mark.timeout(180)
async def test_every_end_of_a_handler_is_the_same_in_each_runtime(runtime: Runtime, tmp_path: Path) -> None:
    endpoint = FakeEndpoint()
    bad = [
        *(work(f"loop-{how}", "both.raises", how=how) for how in RAISED),
        *(work(f"thread-{how}", "both.raises_in_thread", how=how) for how in IN_THREAD),
        work("misfit", "both.typed", names=3),
        work("slow", "both.slow", timeout_s=0.5),
        work("slow-in-thread", "both.slow_in_thread", timeout_s=0.5),
    ]
    good = [
        work("typed", "both.typed", names=["x", "y"]),
        work("plain", "both.raises", how="nothing"),
        work("plain-in-thread", "both.raises_in_thread", how="nothing"),
        work("cleans-up", "both.slow_and_saves", timeout_s=0.5),
    ]
    worker = Worker(
        load("behaviours"),
        endpoint=endpoint,
        name=AgentId("one"),
        slots=4,
        lease_ttl_s=2.0,
        runtime=runtime,
        slot_dir=tmp_path,
    )
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
        done = await client.submit(MissionSpec(id="good", objective="both", work=good))
        assert await done.results(timeout=60) == {
            "typed": {"count": 2},
            "plain": "nothing",
            "plain-in-thread": "nothing",
            "cleans-up": "cleaned up cleans-up",
        }
        ended = await client.submit(MissionSpec(id="bad", objective="both", work=bad))
        with pytest.raises(MissionFailed) as caught:
            await ended.results(timeout=120)
    said = {failure.item: (failure.type, failure.text) for failure in caught.value.failures}
    assert said.keys() == FAILS.keys()
    for item, (kind, text) in FAILS.items():
        assert said[item][0] == kind, item
        assert said[item][1].startswith(text), item
    places = {failure.item: failure.place for failure in caught.value.failures}
    assert re.search(rf"{re.escape(behaviours.__file__)}:\d+$", places["loop-value-error"])
    assert left_in(tmp_path) == [], "no folder of a slot is left"


@pytest.mark.parametrize("runtime", ["task", "process"])
async def test_a_tool_that_is_marked_beside_the_handlers_is_theirs_in_each_runtime(
    runtime: Runtime, tmp_path: Path
) -> None:
    """S17: given to the Worker too, as `treadle-worker run` gives it."""
    endpoint = FakeEndpoint()
    worker = Worker(
        load("behaviours"),
        endpoint=endpoint,
        name=AgentId("one"),
        runtime=runtime,
        slot_dir=tmp_path,
        tools=collect_tools(behaviours),
    )
    item = WorkSpec(id="a", capability="both.uses_a_tool", inputs={"word": "yes"}, tools=["both.upper"], retry=0)
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(MissionSpec(id="m", objective="tools", work=[item]))
        assert await mission.results(timeout=30) == {"a": "YES"}


@pytest.mark.parametrize("given", ["another name", "another function under its name"])
def test_a_tool_that_only_the_worker_has_is_refused_where_handlers_run_in_processes(given: str) -> None:
    """Before anything runs: its handlers would have none, or another of that name."""

    def here(word: str) -> str:
        return word

    name = "both.upper" if given.endswith("its name") else "lower"
    wrong = rf'tools: .{name}.: .* mark it with @tool\("{name}"\) in behaviours, or import it there'
    with pytest.raises(Misuse, match=wrong):
        Worker(load("behaviours"), endpoint="", name=AgentId("one"), runtime="process", tools={name: here})
    Worker(load("behaviours"), endpoint="", name=AgentId("one"), runtime="task", tools={name: here})
    program = from_options(["echo=echo {word}"])
    Worker(program, endpoint="", name=AgentId("one"), tools={name: here})
