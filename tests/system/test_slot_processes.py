"""Slots in processes of their own: what a run sees, what it does to its process, and that nothing of it is left (S16, S17)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from fleet import Desk, Fleet, Member, until
from servers import wait_until
from treadle.coordinator import WorkSpec
from treadle.shared import keeper, processes
from treadle.shared.model import ItemState
from treadle.shared.processes import Life

pytestmark = pytest.mark.slow

PROCESS = ("--handlers", "slot_handlers")


def work(
    id: str, capability: str, *, after: tuple[str, ...] = (), timeout_s: float | None = None, **inputs: Any
) -> WorkSpec:
    return WorkSpec(id=id, capability=capability, inputs=inputs, after=list(after), retry=0, timeout_s=timeout_s)


def worker_of(fleet: Fleet, **options: Any) -> Member:
    return fleet.start(arguments=PROCESS, **options)


def said(worker: Member, text: str) -> bool:
    return worker.said(re.escape(text))


def open_files(worker: Member) -> int:
    return sum(1 for _ in Path(f"/proc/{worker.child.pid}/fd").iterdir())


def slots_of(fleet: Fleet) -> list[Path]:
    """The folders of all Workers' slots."""
    return sorted(fleet.folder.parent.glob("treadle-slots-*"))


def marked(root: Path) -> set[int]:
    """The processes of all slots of the Worker whose root that is."""
    return keeper.marked(root.name.removeprefix("treadle-slots-") + ".")


async def test_a_run_has_a_process_a_session_a_folder_and_an_environment_of_its_own(fleet: Fleet, desk: Desk) -> None:
    """S17: nothing of the Worker's environment that is not on the list, an empty folder, a session of its own."""
    worker = worker_of(fleet, slots=1, SECRET_OF_THE_WORKER="hidden")
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.says", size=3), work("b", "slot.says", after=("a",)))
    results = await mission.results(timeout=30)
    a, b = results["a"], results["b"]
    assert (a["mission"], a["item"], a["inputs"], a["state"]) == ("m", "a", {"size": 3}, {"step": 1})
    assert b["results"] == {"a": a}
    for one in (a, b):
        assert one["pid"] == one["session"] != worker.child.pid
        assert one["cwd"] == one["folder"] == one["temporary"] == one["environment"]["TMPDIR"]
        assert one["files"] == []
        assert one["umask"] == b["umask"]
        assert {"TREADLE_URL", "SECRET_OF_THE_WORKER"}.isdisjoint(one["environment"])
        assert "FLEET_EVIDENCE" in one["environment"]
    assert a["cwd"] != b["cwd"]
    assert a["pid"] == b["pid"], "a warm process is used again"
    for text in ("| said on stdout", "| said on stderr", "said in the log", "said by a library"):
        assert said(worker, f"[m/a] {text}")
        assert said(worker, f"[m/b] {text}")


async def test_a_process_is_used_again_in_one_group_and_capability_only(fleet: Fleet, desk: Desk) -> None:
    fleet.slots = 1
    worker_of(fleet)
    await fleet.ready()
    one = await desk.submit("m", *(work(f"a{n}", "slot.threaded") for n in range(3)), work("z", "slot.says"))
    first = await one.results(timeout=30)
    other = await desk.submit("n", *(work(f"a{n}", "slot.threaded") for n in range(3)))
    second = await other.results(timeout=30)
    says = first.pop("z")["pid"]
    mine, its = set(first.values()), set(second.values())
    assert (len(mine), len(its)) == (1, 1)
    assert len({says} | mine | its) == 3


BAD = {
    "forks and exits": "ProcessEnded: exit status 0",
    "prints 100 MB": "",
    "unserialisable": "result.a[1]: a value of type set cannot be stored",
    "10 MB message": "ValueError: mmmm",
    "unprintable": "Unprintable: (its text cannot be shown)",
    "control characters": "ValueError: \\x1b[2J",
    "10,000 files": "",
    "os._exit(1)": "ProcessEnded: exit status 1",
    "exits": "SystemExit: 3",
    "killed": "ProcessEnded: killed by signal 9 (SIGKILL): out of memory, or killed by somebody",
    "stops": "RuntimeError: ",
    "fails": "Fail: never",
    "forks and returns": "",
    "cancels itself": "CancelledError",
    "loop.stop()": "ProcessEnded: exit status 1",
    "closes its files": "ProcessEnded: it closed its line to the Worker, and went on",
}


@pytest.mark.timeout(180)
async def test_whatever_a_handler_does_to_its_process_is_its_own_items_outcome(fleet: Fleet, desk: Desk) -> None:
    """The Worker lives, other work goes on, and no process, file or folder of a bad handler is left."""
    fleet.slots = 2
    worker = worker_of(fleet)
    await fleet.ready()
    await (await desk.submit("warm", work("a", "slot.says"), work("b", "slot.says"))).results(timeout=30)
    (root,) = slots_of(fleet)
    wait_until(lambda: len(marked(root)) <= 3, description="only idle processes")
    before = open_files(worker)
    mission = await desk.submit(
        "m",
        *(
            work(how.replace(" ", "-").replace("(", "-").replace(")", "").replace(",", "").lower(), "slot.bad", how=how)
            for how in BAD
        ),
        work("allocates", "slot.allocates"),
        work("computes", "slot.computes"),
        work("few-files", "slot.few_files"),
        work("late", "slot.bad", how="ignores cancellation", timeout_s=0.3),
    )
    failures = [why for why in BAD.values() if why] + [
        "MemoryError: more than limits: memory_mb: 256; give the handler more",
        "used more processor time",
        "Too many open files",
        "TimeoutError",
    ]
    for why in failures:
        await until(lambda why=why: said(worker, why), description=why, timeout_s=60, of=(worker,))  # type: ignore[misc]
    good = await desk.submit("good", work("a", "slot.says"))
    assert (await good.results(timeout=60))["a"]["item"] == "a"
    items = {str(view.item): view.state for view in await desk.store.items(mission.group)}
    assert sum(state is ItemState.FAILED for state in items.values()) == len(failures)
    assert worker.child.poll() is None
    await until(lambda: worker.said("printed too much: 10"), description="it printed", timeout_s=60, of=(worker,))
    away = [line.more["child"] for line in fleet.lines("forks-and-exits", "away")]
    assert away
    assert all(processes.identity(pid) is None for pid in away)
    wait_until(lambda: len(marked(root)) <= 2, description="only idle processes are left")
    wait_until(lambda: [one.name for one in root.iterdir()] == ["owner"], description="no run's folder is left")
    wait_until(lambda: open_files(worker) <= before, description="no file is left")
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=10) == 0, worker.tail()
    assert slots_of(fleet) == []
    assert marked(root) == set()


async def test_a_handler_that_blocks_its_process_for_longer_than_the_lease_keeps_it(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 1.0
    worker = worker_of(fleet)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.bad", how="sleeps", s=3))
    assert await mission.results(timeout=30) == {"a": "sleeps"}
    assert not worker.said("lease lost")


async def test_blocked_says_what_it_needs_and_goes_on_with_the_answer(fleet: Fleet, desk: Desk) -> None:
    worker = worker_of(fleet)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.bad", how="blocked"))
    await until(lambda: worker.said("m/a: blocked after"), description="blocked", of=(worker,))
    await mission.unblock("a", {"which": 2})
    assert await mission.results(timeout=30) == {"a": {"which": 2}}


@pytest.mark.parametrize("how", ["stop", "kill", "kill both"])
async def test_no_process_folder_or_file_is_left_when_its_worker_ends(fleet: Fleet, desk: Desk, how: str) -> None:
    """kill -9 of the Worker included, and at the same moment of its slot; what had left its session is found too."""
    worker = worker_of(fleet)
    await fleet.ready()
    await desk.submit("m", work("a", "slot.steps", steps=1_000, pace_s=0.05, away=True))
    await until(lambda: fleet.lines("a", "step"), description="it runs", of=(worker,))
    (root,) = slots_of(fleet)
    begun = fleet.lines("a", "begin")[0]
    found = [processes.identity(pid) for pid in (begun.pid, begun.more["child"])]
    left = [who for who in found if who is not None]
    assert len(left) == 2
    if how == "kill both":
        os.kill(begun.pid, signal.SIGSTOP)
        worker.signal(signal.SIGKILL)
        os.kill(begun.pid, signal.SIGKILL)
    else:
        worker.signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
    assert worker.exit_status(within_s=10) == (0 if how == "stop" else -9)
    wait_until(lambda: not root.exists(), description="its folder is removed")
    wait_until(lambda: not marked(root), description="none of its processes is there")
    assert [processes.life_of(who) for who in left] == [Life.GONE, Life.GONE]


async def test_a_yielded_run_goes_on_from_its_checkpoint_elsewhere(fleet: Fleet, desk: Desk) -> None:
    """A stop of the Worker reaches the process at its next checkpoint; no step is done twice."""
    first = worker_of(fleet)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.steps", steps=40, pace_s=0.05))
    await until(lambda: fleet.lines("a", "step"), description="it runs", of=(first,))
    first.signal(signal.SIGTERM)
    assert first.exit_status(within_s=10) == 0, first.tail()
    assert first.said("m/a: yielded its slot at a checkpoint")
    worker_of(fleet)
    assert await mission.results(timeout=30) == {"a": 40}
    steps = [line.more["step"] for line in fleet.lines("a", "step")]
    assert len(fleet.lines("a", "begin")) == 2
    assert len(steps) == len(set(steps))


async def test_a_handler_sees_that_its_slot_is_asked_for(fleet: Fleet, desk: Desk) -> None:
    worker = worker_of(fleet)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.asked"))
    await until(lambda: fleet.lines("a", "begin"), description="it runs", of=(worker,))
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=10) == 0, worker.tail()
    assert await mission.results(timeout=30) == {"a": "its slot is asked for: the next checkpoint ends it"}


async def test_a_secret_goes_through_the_line_only_and_is_hidden_in_what_is_printed(
    fleet: Fleet, desk: Desk, tmp_path: Path
) -> None:
    """S17: in no variable, argument or line of the log, though its program prints it."""
    grants = '[[grant]]\nmissions = "*"\ncapabilities = "*"\nsecrets = { key = "env:SLOT_KEY" }\n'
    granted = tmp_path / "credentials.toml"
    granted.write_text(grants)
    arguments = (*PROCESS, "--credentials", str(granted))
    worker = fleet.start(arguments=arguments, SLOT_KEY="sesame-sesame-2718")
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.secret"))
    assert await mission.results(timeout=30) == {"a": []}
    assert said(worker, "[m/a] | printed ***")
    assert said(worker, "[m/a] logged ***")
    assert "sesame" not in worker.log_text()


async def test_all_handlers_that_say_nothing_run_in_processes_where_their_worker_says_so(
    fleet: Fleet, desk: Desk
) -> None:
    worker = fleet.start(arguments=("--handlers", "behaviours", "--runtime", "process"))
    await fleet.ready()
    mission = await desk.submit("m", work("a", "both.folder_in_thread"))
    (root,) = slots_of(fleet)
    assert Path((await mission.results(timeout=30))["a"]).parent == root
    assert worker.child.poll() is None


async def test_a_lost_lease_ends_the_process_before_its_slot_is_used_again(fleet: Fleet, desk: Desk) -> None:
    """S16: the item is cancelled while its process ignores it; the slot's next run begins after its end."""
    worker = worker_of(fleet, slots=1)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.bad", how="ignores cancellation"))
    await until(lambda: fleet.lines("a", "begin"), description="it runs", of=(worker,))
    who = processes.identity(fleet.lines("a", "begin")[0].pid)
    assert who is not None
    await mission.cancel()
    other = await desk.submit("n", work("b", "slot.says"))
    assert (await other.results(timeout=30))["b"]["pid"] != who.pid
    assert processes.life_of(who) is Life.GONE
