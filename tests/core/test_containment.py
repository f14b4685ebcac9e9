"""A slot's processes are found whatever they do to get away, and ended so that a look finds none (S16)."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import wait_until
from treadle.shared import containment, keeper, processes
from treadle.shared.containment import MARK
from treadle.shared.processes import Child, Identity, Life

START = """
import os, signal, subprocess, sys
from treadle.shared import containment
assert containment.become_subreaper()
WAITS = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); signal.pause()"
"""
AWAY = """
def away(environment):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.dup2(write, 1)
            os.execve(sys.executable, [sys.executable, "-S", "-c", WAITS], environment)
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))
"""
Start = Callable[[str], tuple[Child, str, list[int]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """The first process of a slot, its mark, and the pids that it says; all is ended after the test."""
    with ExitStack() as cleaning:

        def begin(code: str) -> tuple[Child, str, list[int]]:
            mark = f"{secrets.token_hex(8)}.0."
            child = processes.spawn(
                [sys.executable, "-c", START + code], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE
            )
            out = child.process.stdout
            assert out is not None
            cleaning.callback(keeper.kill_marked, mark)
            cleaning.callback(child.stop, grace_s=0)
            cleaning.callback(out.close)
            return child, mark, [int(pid) for pid in out.readline().split()]

        yield begin


def seen(pids: list[int]) -> list[Identity]:
    found = [processes.identity(pid) for pid in pids]
    assert found
    return [who for who in found if who is not None]


def test_what_left_parent_group_and_session_by_a_double_fork_is_found_and_ended(start: Start) -> None:
    """S16: setsid and exec after a double fork, with SIGTERM ignored."""
    child, mark, pids = start(AWAY + "print(away(os.environ), flush=True)\nsignal.pause()")
    (away,) = seen(pids)
    assert containment.enclosed(child.identity, mark) == {child.identity, away}
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert [processes.life_of(who) for who in (child.identity, away)] == [Life.GONE, Life.GONE]


def test_what_cleared_its_environment_too_is_found_by_descent(start: Start) -> None:
    child, mark, pids = start(AWAY + "print(away({}), flush=True)\nsignal.pause()")
    (away,) = seen(pids)
    assert keeper.marked(mark) == {child.pid}
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert processes.life_of(away) is Life.GONE


def test_what_a_process_left_behind_that_has_ended_is_found_by_its_mark(start: Start) -> None:
    child, mark, pids = start(AWAY + "print(away(os.environ), flush=True)\nos._exit(0)")
    (away,) = seen(pids)
    wait_until(lambda: processes.life_of(child.identity) is Life.GONE, description="the first process has ended")
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert processes.life_of(away) is Life.GONE


def test_what_left_its_group_only_is_found_by_its_session(start: Start) -> None:
    code = """
    read, write = os.pipe()
    if os.fork() == 0:
        os.setpgid(0, 0)
        os.dup2(write, 1)
        os.execve(sys.executable, [sys.executable, "-S", "-c", WAITS], {})
    print(int(os.read(read, 20)), flush=True)
    os._exit(0)
    """
    child, mark, pids = start("if True:" + code)
    (other,) = seen(pids)
    wait_until(lambda: processes.life_of(child.identity) is Life.GONE, description="the first process has ended")
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert processes.life_of(other) is Life.GONE


def test_a_storm_of_forks_comes_to_its_end(start: Start) -> None:
    """Each process forks as fast as it can, half of them into sessions of their own, 150 in all: none is left."""
    code = """
    read, write = os.pipe()
    os.write(write, b"." * 150)
    os.close(write)
    signal.alarm(20)
    print(os.getpid(), flush=True)
    forked = 0
    while os.read(read, 1):
        if os.fork() == 0:
            signal.alarm(20)
            forked += 1
            if forked % 2:
                os.setsid()
    signal.pause()
    """
    child, mark, _ = start("if True:" + code)
    wait_until(lambda: len(keeper.marked(mark)) > 10, description="a storm")
    assert containment.end_enclosed(child.identity, mark, patience_s=20) is Life.GONE
    assert not keeper.marked(mark)


def test_where_the_machine_stands_still_the_patience_does_not_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S16: what was killed needs the machine for its end as much as what looks for it."""
    child, mark, _ = start("print(os.getpid(), flush=True)\nsignal.pause()")
    looks: list[int] = []

    class Stalled:
        sleep = staticmethod(time.sleep)

        @staticmethod
        def monotonic() -> float:
            return 3_600.0 * len(looks)

    def late(who: Identity, number: int) -> bool:
        """Its end comes in the twelfth round."""
        looks.append(number)
        return len(looks) > 12 and processes.send(who, number)

    monkeypatch.setattr(containment, "time", Stalled)
    monkeypatch.setattr(containment, "send", late)
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert len(looks) > 12


def test_what_cannot_be_ended_is_named_with_its_state(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child, mark, _ = start("print(os.getpid(), flush=True)\nsignal.pause()")
    with monkeypatch.context() as patched:
        patched.setattr(containment, "send", lambda *_: False)
        assert containment.end_enclosed(child.identity, mark, patience_s=0.02) is Life.ALIVE
    wait_until(lambda: containment.remains(child.identity, mark)[-1] == "S", description="it sleeps")
    assert re.fullmatch(rf"{child.pid} \(python.*\) S", containment.remains(child.identity, mark))
    assert containment.end_enclosed(child.identity, mark) is Life.GONE
    assert containment.remains(child.identity, mark) == ""


def test_nothing_is_ended_that_is_not_of_the_slot(start: Start) -> None:
    one, mark, _ = start("print(os.getpid(), flush=True)\nsignal.pause()")
    other, _, _ = start("print(os.getpid(), flush=True)\nsignal.pause()")
    assert containment.end_enclosed(one.identity, mark) is Life.GONE
    assert processes.life_of(other.identity) is Life.ALIVE
    assert not keeper.marked("no such mark")


def test_a_mark_is_whole_not_the_beginning_of_another(start: Start) -> None:
    child, mark, _ = start("print(os.getpid(), flush=True)\nsignal.pause()")
    owner = mark.removesuffix("0.")
    assert keeper.marked(owner) == keeper.marked(mark) == {child.pid}
    assert not keeper.marked(f"{owner}1.")


OWNER = """
import os, signal, subprocess, sys
from pathlib import Path
from treadle.shared import containment, processes
mark, folder = sys.argv[1:]
kept = containment.start_keeper(mark, Path(folder))
code = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); signal.pause()"
child = processes.spawn(
    [sys.executable, "-S", "-c", code], env={containment.MARK: mark + "0."}, stdout=subprocess.PIPE, dies_with_parent=False
)
print(kept.pid, child.process.stdout.readline().decode().strip(), flush=True)
AFTER
signal.pause()
"""


@pytest.mark.parametrize(
    "after", ["", "os.kill(child.pid, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"], ids=["owner", "both"]
)
def test_a_keeper_ends_what_its_owner_left_and_removes_its_folder(tmp_path: Path, after: str) -> None:
    """Also where the owner and its child are killed at the same moment; the keeper ends then too."""
    folder, mark = tmp_path / "slots", f"{secrets.token_hex(8)}."
    locked = folder / "run-1" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    locked.chmod(0)
    owner = processes.spawn([sys.executable, "-c", OWNER.replace("AFTER", after), mark, folder], stdout=subprocess.PIPE)
    assert owner.process.stdout is not None
    with owner.process.stdout as out:
        kept, child = seen([int(pid) for pid in out.readline().split()])
    owner.process.send_signal(signal.SIGKILL)
    owner.wait(5)
    wait_until(lambda: not folder.exists(), description="the folder is gone")
    wait_until(lambda: processes.life_of(kept) is Life.GONE, description="the keeper is gone")
    wait_until(lambda: processes.life_of(child) is Life.GONE, description="what bore its mark is gone")


STORM = """#!/bin/sh
number=$((number + 1)); export number
[ $number -lt 1500 ] && exec "$0"
exec sleep 60
"""


@pytest.mark.skipif(sys.platform != "linux", reason="marks are found in /proc")
def test_s16_what_is_being_given_another_program_is_found_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two programs a process has no environment that could be read: about 3 of 100 looks fall there."""
    storm, mark = tmp_path / "storm", f"{secrets.token_hex(8)}."
    storm.write_text(STORM)
    storm.chmod(0o700)
    with subprocess.Popen([storm], env={MARK: f"{mark}0.", "PATH": os.environ["PATH"]}) as child:
        try:
            own = tmp_path / "proc" / str(child.pid)
            own.parent.mkdir()
            own.symlink_to(f"/proc/{child.pid}")
            monkeypatch.setattr(keeper, "PROC", own.parent)
            looks = missed = 0
            while b"sleep" not in (own / "cmdline").read_bytes():
                looks += 1
                missed += keeper.marked(mark) != {child.pid}
            assert (missed, looks > 100) == (0, True)
        finally:
            child.kill()


def test_what_has_an_empty_environment_or_none_is_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own processes have no memory; a program may be started with nothing in its environment."""
    fields = ["0"] * 50
    waits: list[float] = []
    monkeypatch.setattr(keeper, "PROC", tmp_path)
    monkeypatch.setattr(time, "sleep", waits.append)
    for pid, (memory, begins, ends) in {1: (0, 0, 0), 2: (4096, 77, 77)}.items():
        own = tmp_path / str(pid)
        own.mkdir()
        fields[20], fields[47], fields[48] = str(memory), str(begins), str(ends)
        (own / "stat").write_text(f"{pid} (a name) " + " ".join(["S", *fields[1:]]))
        (own / "environ").touch()
    assert keeper.marked("a") == set()
    assert len(waits) == 1
