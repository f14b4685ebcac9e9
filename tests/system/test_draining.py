"""`treadle-worker drain` from another shell, and what Ctrl-C in a terminal says."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest
from draining import begin_to_drain, drain
from fleet import TESTS, Desk, Fleet, Member, chain, sleeper, until
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.processes import living, spawn, tree_of
from treadle.shared.redaction import store_name
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

K = EventKind


async def running(fleet: Fleet, *items: str) -> None:
    for item in items:
        await until(lambda item=item: fleet.lines(item, "begin"), description=f"{item} runs", of=tuple(fleet.members))  # type: ignore[misc]


def records(fleet: Fleet) -> list[Path]:
    return sorted(fleet.folder.glob("treadle-workers/*"))


async def test_a_drain_gives_the_work_back_and_returns_when_its_worker_has_ended(fleet: Fleet, desk: Desk) -> None:
    worker = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", chain("a", steps=1_000, step_s=0.05))
    await until(lambda: len(fleet.lines("a", "step")) > 2, description="some steps are saved", of=(worker,))
    said = drain(fleet, "--wait", "--json")
    assert (said.status, said.states()) == (0, {"one": "ended"}), said
    assert worker.exit_status(within_s=5) == 0, worker.tail()
    assert {view.state for view in await desk.store.items(mission.group)} == {ItemState.OFFERED}
    assert len(await desk.of_kind("m", K.CHECKPOINTED)) == 1
    assert not await desk.of_kind("m", K.LAPSED)
    assert not await desk.of_kind("m", K.FAILED)
    assert records(fleet) == [], "nothing is left of its record"


async def test_it_is_said_which_one_where_there_are_several_and_that_there_is_none(fleet: Fleet) -> None:
    said = drain(fleet)
    assert (said.status, said.stdout) == (3, "")
    assert "no Worker runs; none of this user runs on this machine" in said.stderr
    said = drain(fleet, "--all", "--wait")
    assert (said.status, said.stdout) == (0, "no Worker of this user runs on this machine\n"), "a preStop does not fail"
    one, two = fleet.start("one"), fleet.start("two")
    await fleet.ready()
    said = drain(fleet)
    assert said.status == 2
    store = store_name(fleet.url)
    which = f"one (pid {one.child.pid}, {store}), two (pid {two.child.pid}, {store})"
    assert f"2 Workers run: {which}; say which by --pid" in said.stderr
    assert drain(fleet, "--name", "three").status == 3
    assert drain(fleet, "--timeout", "5").status == 2
    said = drain(fleet, "--name", "one", "--wait")
    assert (said.status, said.stdout) == (0, f"one (pid {one.child.pid}, {store}): has ended\n"), said
    assert one.exit_status(within_s=1) == 0, one.tail()
    assert two.child.poll() is None
    said = drain(fleet, "--pid", str(two.child.pid), "--wait")
    assert said.status == 0
    assert two.exit_status(within_s=1) == 0, two.tail()


async def test_a_drain_of_all_waits_for_each(fleet: Fleet) -> None:
    members = [fleet.start(f"w{number}") for number in range(3)]
    await fleet.ready()
    said = drain(fleet, "--all", "--wait", "--json")
    assert (said.status, said.states()) == (0, dict.fromkeys(("w0", "w1", "w2"), "ended"))
    assert [member.exit_status(within_s=1) for member in members] == [0, 0, 0]


async def test_a_drain_of_all_of_one_store_leaves_the_workers_of_another_alone(fleet: Fleet) -> None:
    here = fleet.start("here")
    others = f"{fleet.url.partition('?')[0]}?db=1"
    there = fleet.start("there", TREADLE_URL=others)
    await fleet.ready()
    said = drain(fleet, "--all", "--wait", "--json", "--url", f"{others}&password=not-shown-anywhere")
    assert (said.status, said.states()) == (0, {"there": "ended"})
    assert json.loads(said.stdout)["workers"][0]["store"] == store_name(others)
    assert "not-shown" not in said.stdout + said.stderr
    assert there.exit_status(within_s=1) == 0
    assert here.child.poll() is None
    said = drain(fleet, "--all", "--url", others)
    assert (said.status, said.stdout) == (0, f"no Worker of this user runs on this machine for {store_name(others)}\n")
    said = drain(fleet, "--all", "--url", "somewhere")
    assert said.status == 2
    assert "--url: 'somewhere' is no store address; use redis://" in said.stderr


async def test_a_drain_said_twice_and_a_sigterm_behind_it_cut_nothing_off(fleet: Fleet, desk: Desk) -> None:
    """As a preStop without --wait: the orchestrator's own SIGTERM comes behind it and is the first of its kind."""
    fleet.grace_s = 60.0
    worker = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", sleeper("a", 20.0))
    await running(fleet, "a")
    for _ in range(2):
        said = drain(fleet)
        assert (said.status, said.stdout) == (
            0,
            f"one (pid {worker.child.pid}, {store_name(fleet.url)}): asked to drain\n",
        ), said
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=40) == 0, worker.tail()
    assert await mission.results() == {"a": 1}


async def test_a_wait_that_is_over_says_who_still_runs_and_a_second_sigterm_ends_it(fleet: Fleet, desk: Desk) -> None:
    fleet.grace_s = 60.0
    worker = fleet.start("one")
    await fleet.ready()
    await desk.submit("m", sleeper("a", 3_600.0))
    await running(fleet, "a")
    said = drain(fleet, "--wait", "--timeout", "0.3")
    assert said.status == 1
    assert f"one (pid {worker.child.pid}, {store_name(fleet.url)}): has not ended in time" in said.stdout
    worker.signal(signal.SIGTERM)
    await until(lambda: worker.log_text().count("stopping:") == 2, description="it was heard", of=(worker,))
    assert worker.child.poll() is None
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=5) == 128 + signal.SIGTERM


async def test_the_record_of_a_killed_worker_names_nobody(fleet: Fleet) -> None:
    worker = fleet.start("one")
    await fleet.ready()
    worker.kill()
    assert len(records(fleet)) == 1
    assert drain(fleet).status == 3
    assert records(fleet) == []


async def test_a_worker_that_waits_for_its_store_at_the_start_is_drained(fleet: Fleet, server: EmbeddedServer) -> None:
    server.pause()
    try:
        worker = fleet.start("one", ttl_s=60)  # its first call to the store then takes 5 s to be given up
        await until(lambda: records(fleet), description="it is there", of=(worker,))
        waiting = begin_to_drain(fleet, "--wait")
        assert waiting.wait(20) == 0
        assert worker.exit_status(within_s=1) == 0, worker.tail()
    finally:
        server.resume()


AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A Worker in the foreground of a terminal of its own, which sends it a SIGINT for each Ctrl-C."""

    def __init__(self, fleet: Fleet, *options: str) -> None:
        self._mine, theirs = pty.openpty()
        evidence = fleet.folder / "evidence"
        evidence.mkdir(exist_ok=True)
        own = {
            "TREADLE_URL": fleet.url,
            "TREADLE_LEASE_TTL_S": f"{fleet.ttl_s:g}",
            "TREADLE_GRACE_S": f"{fleet.grace_s:g}",
            "FLEET_EVIDENCE": str(evidence),
            "XDG_RUNTIME_DIR": str(fleet.folder),
        }
        argv = [sys.executable, "-c", AT_TERMINAL, "-m", "treadle.worker.cli", "run", "--handlers", "fleet_handlers"]
        argv += ["--app-dir", str(TESTS), "--name", "one", "--slots", "2", *options]
        child = spawn(argv, env={**os.environ, **own}, cwd=fleet.folder, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.set_blocking(self._mine, False)
        self.member = Member("one", child, fleet.folder / "none.log")
        fleet.members.append(self.member)
        self._said = b""

    def said(self) -> str:
        try:
            while piece := os.read(self._mine, 65_536):
                self._said += piece
        except (BlockingIOError, OSError):
            pass
        return self._said.decode(errors="replace")

    def press_ctrl_c(self) -> None:
        os.write(self._mine, b"\x03")

    def close(self) -> None:
        os.close(self._mine)


async def test_the_first_ctrl_c_in_a_terminal_explains_and_the_second_ends_at_once(fleet: Fleet, desk: Desk) -> None:
    fleet.grace_s = 60.0
    terminal = Terminal(fleet)
    try:
        await until(lambda: "is open" in terminal.said(), description="it is ready")
        await desk.submit("m", sleeper("a", 3_600.0))
        await running(fleet, "a")
        terminal.press_ctrl_c()
        await until(lambda: "Ctrl-C again" in terminal.said(), description="it explains")
        said = re.sub(r"\s+", " ", terminal.said())
        assert "stopping; nothing more is taken. At work: m/a. Within 60 s each may end or reach a checkpoint" in said
        assert "goes on elsewhere, from its last checkpoint, when its lease is over." in said
        assert "stopping: " not in said, "not said twice"
        assert said.index("^C") < said.index("stopping;"), "nothing before it, and nothing else of it"
        assert terminal.member.child.poll() is None
        terminal.press_ctrl_c()
        assert terminal.member.exit_status(within_s=5) == 128 + signal.SIGINT
        assert "Traceback" not in terminal.said()
    finally:
        terminal.close()


async def test_ctrl_c_reaches_no_program_of_a_slot_and_the_second_ends_them_with_their_worker(
    fleet: Fleet, desk: Desk
) -> None:
    fleet.grace_s = 60.0
    terminal = Terminal(fleet, "--command", "nap=sleep 3600")
    try:
        await until(lambda: "is open" in terminal.said(), description="it is ready")
        await desk.submit("m", WorkSpec(id="a", capability="nap"))
        worker = terminal.member.child.identity
        processes = tree_of(worker)
        await until(lambda: "m/a: taken and started" in terminal.said(), description="it is started")
        await until(lambda: len(tree_of(worker)) > len(processes) + 1, description="the program runs")
        processes = tree_of(worker)
        terminal.press_ctrl_c()
        await until(lambda: "Ctrl-C again" in terminal.said(), description="it explains")
        assert "At work: m/a." in terminal.said()
        assert living(processes) == processes
        terminal.press_ctrl_c()
        assert terminal.member.exit_status(within_s=5) == 128 + signal.SIGINT
        await until(lambda: not living(processes), description="nothing of it is left")
        assert "Traceback" not in terminal.said()
    finally:
        terminal.close()


async def test_where_nothing_is_at_work_ctrl_c_says_so_and_no_terminal_gets_a_log_line(fleet: Fleet) -> None:
    terminal = Terminal(fleet)
    try:
        await until(lambda: "is open" in terminal.said(), description="it is ready")
        terminal.press_ctrl_c()
        assert terminal.member.exit_status(within_s=5) == 0
        assert "Nothing is at work." in terminal.said()
    finally:
        terminal.close()
    other = fleet.start("two")
    await fleet.ready(other)
    other.signal(signal.SIGINT)
    assert other.exit_status(within_s=5) == 0
    assert other.said("INFO treadle.worker: stopping: nothing more is taken")
    assert not other.said("Ctrl-C")
