"""Processes: known again, ended as a tree, tied to their owner; and never another one's (BR-79)."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from servers import wait_until
from treadle.shared import processes
from treadle.shared.errors import Misuse
from treadle.shared.processes import UNKNOWN, Child, Identity, Life

WAITS = "import signal; print('up', flush=True); signal.pause()"
"""A program that says that it runs and then does nothing until a signal ends it."""
IGNORES_TERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile 1: signal.pause()"
)
LEAVES_A_CHILD = f"""
import subprocess, sys, signal
other = subprocess.Popen([sys.executable, "-S", "-c", {WAITS!r}], start_new_session=SESSION, stdout=subprocess.PIPE)
other.stdout.readline()
print(other.pid, flush=True)
AFTER
"""

Spawn = Callable[..., tuple[Child, str]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start a Python program and wait for its first line; whatever it was is ended after the test."""
    with ExitStack() as cleaning:

        def start(code: str, **options: object) -> tuple[Child, str]:
            child = processes.spawn([sys.executable, "-c", code], stdout=subprocess.PIPE, **options)  # type: ignore[arg-type]
            out = child.process.stdout
            assert out is not None
            cleaning.callback(out.close)
            cleaning.callback(child.stop, grace_s=0)
            return child, out.readline().decode().strip()

        yield start


def seen(pid: int) -> Identity:
    """The identity of a process that must be there."""
    who = processes.identity(pid)
    assert who is not None
    return who


def wait_gone(who: Identity, timeout_s: float = 5.0) -> None:
    wait_until(lambda: processes.life_of(who) is Life.GONE, description=f"{who} gone", timeout_s=timeout_s)


def test_every_reader_sees_the_same_identity(spawn: Spawn) -> None:
    mine = seen(os.getpid())
    _, read = spawn(f"from treadle.shared import processes; print(processes.identity({os.getpid()}), flush=True)")
    assert read == str(mine)
    assert processes.life_of(mine) is Life.ALIVE


def test_an_identity_is_one_process_only() -> None:
    for pid in (0, -1, 2**31):
        with pytest.raises(Misuse, match=f"pid: {pid} is not one process"):
            Identity(pid, "x")
        assert processes.identity(pid) is None


def test_a_name_made_to_look_like_the_process_table_changes_nothing(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    (tmp_path / "a) Z 1 (b").symlink_to(sleep)
    child = processes.spawn([tmp_path / "a) Z 1 (b", "60"])
    try:
        wait_until(
            lambda: b"a) Z 1 (b" in Path(f"/proc/{child.pid}/stat").read_bytes() or sys.platform != "linux",
            description="the program runs under that name",
        )
        assert processes.life_of(child.identity) is Life.ALIVE
    finally:
        assert child.stop(grace_s=5) == -signal.SIGTERM


def test_a_zombie_is_gone_and_its_exit_status_is_kept(spawn: Spawn) -> None:
    child, _ = spawn("raise SystemExit(7)")
    wait_gone(child.identity)
    assert seen(child.pid) == child.identity  # its pid is still its own
    assert not processes.is_alive(child.identity)
    assert child.wait(5) == 7
    assert processes.identity(child.pid) is None


def test_who_waits_for_an_end_that_somebody_else_has_reaped_waits_no_longer(spawn: Spawn) -> None:
    child, _ = spawn("raise SystemExit(0)")
    assert child.wait(10) == 0
    child.wait_unreaped()
    assert processes.life_of(child.identity) is Life.GONE


def test_a_later_process_of_the_same_pid_is_not_taken_for_the_earlier_one(spawn: Spawn) -> None:
    child, _ = spawn(WAITS)
    earlier = dataclasses.replace(child.identity, started=f"{child.identity.started}0")
    assert processes.life_of(earlier) is Life.GONE
    assert not processes.is_alive(earlier)
    assert processes.tree_of(earlier) == frozenset()
    assert not processes.send(earlier, signal.SIGKILL)
    assert processes.kill_tree(earlier) is Life.GONE
    assert processes.terminate(earlier, grace_s=0) is Life.GONE
    assert child.poll() is None


def unreadable(error: Exception) -> Callable[[int], processes._Row]:
    def read(_: int) -> processes._Row:
        raise error

    return read


@pytest.mark.parametrize(
    "error", [psutil.AccessDenied(), PermissionError(), FileNotFoundError("hidden /proc"), ValueError("garbage")]
)
def test_br79_an_unreadable_process_is_neither_gone_nor_killed(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    child, _ = spawn(WAITS)
    with monkeypatch.context() as patched:
        patched.setattr(processes, "_read", unreadable(error))
        assert processes.identity(child.pid) == Identity(child.pid, UNKNOWN)
        assert processes.life_of(child.identity) is Life.UNKNOWN
        assert processes.is_alive(child.identity)
        assert not processes.send(child.identity, signal.SIGKILL)
        assert processes.kill_tree(child.identity) is Life.UNKNOWN
        assert processes.terminate(child.identity, grace_s=0) is Life.UNKNOWN
    assert child.poll() is None
    # An identity that was recorded as unknown does not turn into a match, nor into a mismatch, when it can be read again.
    assert processes.life_of(Identity(child.pid, UNKNOWN)) is Life.UNKNOWN
    child.stop(grace_s=0)
    assert processes.life_of(Identity(child.pid, UNKNOWN)) is Life.GONE


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_br79_a_start_of_zero_is_unknown(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    child, _ = spawn(WAITS)
    line = Path(f"/proc/{child.pid}/stat").read_bytes()
    before, name, after = line.rpartition(b")")
    fields = after.split()
    fields[19] = b"0"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda _: before + name + b" " + b" ".join(fields))
        assert processes.life_of(child.identity) is Life.UNKNOWN
    assert processes.life_of(child.identity) is Life.ALIVE


@pytest.mark.parametrize("session", [False, True], ids=["same group", "own session"])
def test_kill_tree_reaches_children_in_any_session(spawn: Spawn, session: bool) -> None:
    code = LEAVES_A_CHILD.replace("SESSION", str(session)).replace("AFTER", "signal.pause()")
    child, line = spawn(code)
    other = seen(int(line))
    assert processes.tree_of(child.identity) == {child.identity, other}
    assert processes.kill_tree(child.identity) is Life.GONE
    wait_gone(other)
    assert child.wait(5) == -signal.SIGKILL


def test_kill_tree_of_a_leader_that_ended_reaches_its_group_until_it_is_reaped(spawn: Spawn) -> None:
    child, line = spawn(LEAVES_A_CHILD.replace("SESSION", "False").replace("AFTER", "import os; os._exit(3)"))
    other = seen(int(line))
    wait_gone(child.identity)
    assert processes.is_alive(other)
    assert processes.kill_tree(child.identity) is Life.GONE
    wait_gone(other)
    assert child.wait(5) == 3


def test_kill_tree_ends_what_is_stopped(spawn: Spawn) -> None:
    child, _ = spawn(WAITS)
    assert processes.send(child.identity, signal.SIGSTOP)
    assert processes.kill_tree(child.identity) is Life.GONE
    assert child.wait(5) == -signal.SIGKILL


def test_kill_tree_of_oneself_ends_all_but_oneself(spawn: Spawn) -> None:
    code = LEAVES_A_CHILD.replace("SESSION", "True").replace(
        "AFTER",
        "import os; from treadle.shared import processes as p; print(p.kill_tree(p.identity(os.getpid())), flush=True)",
    )
    child, line = spawn(code)
    wait_gone(seen(int(line)))
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == b"gone\n"
    assert child.wait(5) == 0


def test_terminate_lets_a_process_end_in_its_own_way(spawn: Spawn) -> None:
    child, _ = spawn(
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); signal.pause()"
    )
    assert processes.terminate(child.identity, grace_s=10) is Life.GONE
    assert child.wait(5) == 9


def test_terminate_kills_what_does_not_end_within_the_grace(spawn: Spawn) -> None:
    child, _ = spawn(IGNORES_TERM)
    assert processes.terminate(child.identity, grace_s=0.1) is Life.GONE
    assert child.wait(5) == -signal.SIGKILL


def test_terminate_ends_an_orphan_that_left_the_group(spawn: Spawn) -> None:
    child, line = spawn(LEAVES_A_CHILD.replace("SESSION", "True").replace("AFTER", "signal.pause()"))
    other = seen(int(line))
    assert child.stop(grace_s=10) == -signal.SIGTERM
    wait_gone(other)
    assert child.stop(grace_s=10) == -signal.SIGTERM


def test_what_cannot_be_executed_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        processes.spawn([tmp_path / "nothing"])


FOLLOWS = f"""
import subprocess, sys
from treadle.shared import processes
helper = subprocess.Popen([sys.executable, "-S", "-c", {WAITS!r}], stdout=subprocess.DEVNULL)
print(helper.pid, processes.follow_owner(), flush=True)
helper.wait()
"""
FOLLOWING = """
import os, signal
BEFORE
from treadle.shared import processes
print(processes.follow_owner(), flush=True)
signal.pause()
"""
OWNS = f"""
import os, signal, subprocess, sys
from treadle.shared import processes
child = processes.spawn([sys.executable, "-c", {FOLLOWS!r}], stdout=subprocess.PIPE, dies_with_parent=DIES)
print(child.pid, child.process.stdout.readline().decode().strip(), end=" ", flush=True)
AFTER
print(flush=True)
signal.pause()
"""


def kill_owner(spawn: Spawn, *, dies: str = "True", after: str = "") -> list[str]:
    """SIGKILL to an owner with a child, which has a helper in its group; what the owner had printed."""
    owner, line = spawn(OWNS.replace("AFTER", after).replace("DIES", dies))
    assert processes.send(owner.identity, signal.SIGKILL)
    assert owner.wait(5) == -signal.SIGKILL
    return line.split()


def gone_within_2_s(pid: str) -> None:
    who = processes.identity(int(pid))
    if who is not None:
        wait_gone(who, timeout_s=2)


def test_a_child_and_its_group_end_with_an_owner_killed_by_sigkill(spawn: Spawn) -> None:
    child, helper, follows = kill_owner(spawn)
    assert follows == "True"
    gone_within_2_s(child)
    gone_within_2_s(helper)


def test_a_forked_copy_of_the_owner_does_not_keep_its_children(spawn: Spawn) -> None:
    child, helper, _, copy = kill_owner(
        spawn, after="copy = os.fork()\nif copy == 0: signal.pause()\nprint(copy, end='')"
    )
    try:
        gone_within_2_s(child)
        gone_within_2_s(helper)
    finally:
        assert processes.send(seen(int(copy)), signal.SIGKILL)


def test_a_child_that_is_to_outlive_its_owner_does(spawn: Spawn) -> None:
    child, helper, follows = kill_owner(spawn, dies="False")
    left = seen(int(child))
    try:
        assert follows == "False"
        assert processes.tree_of(left) == {left, seen(int(helper))}
    finally:
        assert processes.kill_tree(left) is Life.GONE


def test_a_child_outlives_the_thread_that_started_it(spawn: Spawn) -> None:
    """The trap of PR_SET_PDEATHSIG: a pool's thread ends, and its children with it."""
    started: list[tuple[Child, str]] = []
    thread = threading.Thread(target=lambda: started.append(spawn(FOLLOWING.replace("BEFORE", ""))))
    thread.start()
    thread.join()
    child, line = started[0]
    assert line == "True"
    assert child.wait(0.2) is None


@pytest.mark.parametrize("value", ["", "x", "0:1", "99999:5", "1:2:3", f"{2**80}:1"])
def test_a_variable_that_names_no_owners_pipe_is_not_followed(spawn: Spawn, value: str) -> None:
    code = FOLLOWING.replace("BEFORE", f"os.environ['TREADLE_OWNER_PIPE'] = {value!r}")
    child, line = spawn(code, dies_with_parent=False)
    assert line == "False"
    assert child.poll() is None


def test_the_variable_of_an_owners_owner_is_not_passed_on(spawn: Spawn) -> None:
    shows = "import os; print('TREADLE_OWNER_PIPE' in os.environ, os.environ.get('MINE'), flush=True)"
    _, line = spawn(shows, env={"MINE": "1", "TREADLE_OWNER_PIPE": "0:0"}, dies_with_parent=False)
    assert line == "False 1"
