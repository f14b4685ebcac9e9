"""Processes: start one, know it again, and end it with everything it started. The only room that knows psutil.

A pid is a number that is used again; a process is (pid, start). `UNKNOWN` is a value here: what cannot be read is
neither gone nor another process (BR-79), and no signal is sent on a guess.

Why a pipe ties a child to its owner, and not PR_SET_PDEATHSIG: that signal comes when the *thread* that forked ends (a
thread of a pool does), it needs code between fork and exec, and only Linux has it. The read end of a pipe whose write
end only the owner holds reports the owner's end after kill -9 too, on each system, and exists before the fork, so there
is no moment at which a child is without it. The price: the child takes part (`follow_owner`, first thing in its main),
and one that is stopped (SIGSTOP) dies when it is continued.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import IO

import psutil

from .errors import Misuse

UNKNOWN = "unknown"
"""The start of a process that exists and cannot be read."""
OWNER_PIPE = "TREADLE_OWNER_PIPE"
"""`fd:inode` of the pipe a child follows; the inode tells a variable inherited by mistake."""
PID_MAX = 2**31 - 1
LOOK_EVERY_S = 0.02
KILL_PATIENCE_S = 5.0


class Life(StrEnum):
    """What is known of a process: a zombie is gone, an unreadable process is neither."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, told from a later one of the same pid. `started` is opaque, equal in every reader, and storable."""

    pid: int
    started: str

    def __post_init__(self) -> None:
        # 0 and -1 address whole groups of processes in kill(2), this one's included.
        if not 1 <= self.pid <= PID_MAX:
            raise Misuse(f"pid: {self.pid} is not one process; must be 1 to {PID_MAX}")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the process table."""

    identity: Identity
    parent: int
    group: int
    session: int
    zombie: bool


def identity(pid: int) -> Identity | None:
    """The identity of the process that has `pid` now; None where none has, started=UNKNOWN where it cannot be read."""
    row = _observe(pid)
    return row.identity if row else None


def life_of(who: Identity) -> Life:
    """What has become of that process; UNKNOWN is neither alive nor gone: do not kill, replace or adopt it (BR-79)."""
    row = _observe(who.pid)
    if row is None:
        return Life.GONE
    if UNKNOWN in (row.identity.started, who.started):
        return Life.UNKNOWN
    return Life.ALIVE if row.identity == who and not row.zombie else Life.GONE


def is_alive(who: Identity) -> bool:
    """Whether that process may still run: False only when it is surely gone. An unreadable one counts as alive."""
    return life_of(who) is not Life.GONE


def send(who: Identity, number: int) -> bool:
    """Send a signal to that very process; False, and nothing sent, unless it is surely alive."""
    try:
        # Opened before it is looked at: what ends in between is not followed by whoever gets its pid (Linux).
        held = os.pidfd_open(who.pid) if sys.platform == "linux" else None
    except ProcessLookupError:
        return False
    except OSError:  # no such call in an old kernel or a sandbox, no descriptor left
        held = None
    try:
        if life_of(who) is not Life.ALIVE:
            return False
        if held is None:
            os.kill(who.pid, number)
        else:
            signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        return False
    finally:
        if held is not None:
            os.close(held)
    return True


def has_children(who: Identity) -> bool:
    """Whether any process, also one that has ended and is not reaped, has it as its parent."""
    try:
        tasks = Path(f"/proc/{who.pid}/task").iterdir()
        return any((task / "children").read_bytes() for task in tasks)
    except OSError:  # not every kernel tells
        return any(row.parent == who.pid for pid in psutil.pids() if (row := _observe(pid)))


def tree_of(leader: Identity) -> frozenset[Identity]:
    """The live processes of its tree: itself, the group and session it leads, and all descendants; never the caller."""
    return living(grown(leader, frozenset({leader})))


def kill_tree(leader: Identity, *, patience_s: float = KILL_PATIENCE_S) -> Life:
    """Kill that process and all of its tree; nothing is touched unless `leader` is verified to be it.

    GONE: no process of it is left. Where `leader` was gone and reaped before the call, nothing is looked for: a group
    of that number may be another's. ALIVE: some outlived `patience_s` (uninterruptible). UNKNOWN: nothing was sent.
    """
    return _kill(leader, frozenset({leader}), patience_s)


def terminate(leader: Identity, *, grace_s: float) -> Life:
    """Ask that process to end (SIGTERM); kill what is left of its tree once it has ended or `grace_s` is over.

    SIGTERM goes to it alone: it ends its own children in its own order. What the tree held is remembered meanwhile, so
    an orphan that left the group is found too. Returns what `kill_tree` returns.
    """
    if life_of(leader) is Life.UNKNOWN:
        return Life.UNKNOWN
    known = grown(leader, frozenset({leader}))
    send(leader, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while life_of(leader) is Life.ALIVE and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        known = grown(leader, known)
    return _kill(leader, known, KILL_PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Child:
    """A process this one started. Its pid stays its own until `wait` or `poll` has seen its end."""

    identity: Identity
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.identity.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self.process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, once it ended; None when it did not within `timeout_s`."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def wait_unreaped(self) -> None:
        """Returns once it has ended; its pid is still its own, and so are its group and its session, if nobody reaped it."""
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # reaped meanwhile
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        while life_of(self.identity) is not Life.GONE:
            time.sleep(LOOK_EVERY_S)

    def stop(self, *, grace_s: float) -> int | None:
        """Terminate it with its tree and reap it; the exit status, None where it could not be ended. Twice is fine."""
        if self.poll() is None:
            terminate(self.identity, grace_s=grace_s)
        return self.wait(KILL_PATIENCE_S)


def spawn(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: tuple[int, ...] = (),
    new_session: bool = True,
    dies_with_parent: bool = True,
) -> Child:
    """Start a process, by default in a session of its own: Ctrl-C reaches only its owner, which then ends it in order.

    `env` is its whole environment (None: this one's). With `dies_with_parent` it gets a pipe by which a program that
    calls `follow_owner()` ends when this process does, kill -9 included; a program that does not call it is not ended.
    Raises OSError where it cannot be executed.
    """
    environment = dict(os.environ if env is None else env)
    environment.pop(OWNER_PIPE, None)
    if dies_with_parent:
        read_end = _owner_pipe()
        environment[OWNER_PIPE] = f"{read_end}:{os.fstat(read_end).st_ino}"
        pass_fds = (*pass_fds, read_end)
    process = subprocess.Popen(
        [os.fspath(part) for part in argv],
        env=environment,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=new_session,
        pass_fds=pass_fds,
    )
    # It is not reaped yet, so the pid is still its own, even where it has already ended.
    return Child(identity(process.pid) or Identity(process.pid, UNKNOWN), process)


def follow_owner() -> bool:
    """End this process, and its group where it leads one, by SIGKILL as soon as its owner has ended.

    Call it first thing in main. False where it was not started by `spawn(dies_with_parent=True)`. A thread waits for
    the owner's end: a call that keeps the interpreter lock delays it.
    """
    try:
        fd, inode = (int(part) for part in os.environ.pop(OWNER_PIPE, "").split(":"))
        if os.fstat(fd).st_ino != inode:
            return False
    except (ValueError, OSError, OverflowError):
        return False
    os.set_inheritable(fd, False)

    def follow() -> None:
        while os.read(fd, 1):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, name="follow-owner", daemon=True).start()
    return True


_pipe: tuple[int, int] | None = None
_pipe_lock = threading.Lock()


def _owner_pipe() -> int:
    """The read end of this process's one pipe. Both close on exec; the write end stays open until it has ended."""
    global _pipe
    with _pipe_lock:
        if _pipe is None:
            _pipe = os.pipe()
        return _pipe[0]


def _close_after_fork() -> None:
    """A forked copy of an owner is not the owner: with the write end open it would keep the owner's children."""
    global _pipe, _pipe_lock
    _pipe_lock = threading.Lock()
    if _pipe is not None:
        for end in _pipe:
            os.close(end)
        _pipe = None


os.register_at_fork(after_in_child=_close_after_fork)


def _kill(leader: Identity, known: frozenset[Identity], patience_s: float) -> Life:
    """Kill round by round, so that what forks meanwhile is found; bounded by `patience_s`."""
    if life_of(leader) is Life.UNKNOWN:
        return Life.UNKNOWN
    deadline = time.monotonic() + patience_s
    while True:
        known = grown(leader, known)
        left = living(known)
        if not left:
            return Life.GONE
        if time.monotonic() > deadline:
            return Life.ALIVE
        for who in left:
            send(who, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S / 4)


def living(known: frozenset[Identity]) -> frozenset[Identity]:
    """The live ones but the caller, which may be a member of a group it ends."""
    return frozenset(who for who in known if who.pid != os.getpid() and life_of(who) is Life.ALIVE)


def grown(leader: Identity, known: frozenset[Identity]) -> frozenset[Identity]:
    """`known`, with the children of its members and the leader's group and session, to a fixed point.

    A pid counts only while its start is the recorded one. A group's number, or a session's, is not given to another as
    long as one process is in it, so they are followed while their leader or a known member is there.
    """
    rows = {row.identity.pid: row for pid in psutil.pids() if (row := _observe(pid))}

    def is_same(who: Identity) -> bool:
        return who.started != UNKNOWN and who.pid in rows and rows[who.pid].identity == who

    members = {who for who in known if is_same(who)}
    led = any(leader.pid in (rows[who.pid].group, rows[who.pid].session) for who in members)
    while True:
        pids = {who.pid for who in members}
        found = {
            row.identity
            for row in rows.values()
            if row.identity not in members
            and row.identity.started != UNKNOWN
            and row.identity.pid != os.getpid()
            and (row.parent in pids or (led and leader.pid in (row.group, row.session)))
        }
        if not found:
            return known | members
        members |= found


def _observe(pid: int) -> _Row | None:
    """The table's line for `pid`, None where surely no process has it; whatever else goes wrong is UNKNOWN."""
    if not 1 <= pid <= PID_MAX:
        return None
    try:
        return _read(pid)
    except (OSError, ValueError, IndexError, psutil.Error):
        return _Row(Identity(pid, UNKNOWN), parent=0, group=0, session=0, zombie=False) if _exists(pid) else None


def _exists(pid: int) -> bool:
    """A /proc that hides others' processes reads as 'no such file'; the kernel's own answer tells the two apart."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(pid: int) -> _Row:
    """One process, as its system tells it.

    On Linux in clock ticks since the boot, with the boot: psutil's create_time() adds the boot's wall time, which moves
    when the clock is set, so that two readers would take one process for two.
    """
    if sys.platform == "linux":
        # The name in parentheses may hold spaces and parentheses; the fields after the last one are numbers.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        state, parent, group, session, ticks = fields[0], *map(int, fields[1:4]), int(fields[19])
        started = f"{_boot()}.{ticks}" if ticks > 0 else UNKNOWN
        return _Row(Identity(pid, started), parent, group, session, zombie=state in (b"Z", b"X"))
    process = psutil.Process(pid)
    with process.oneshot():
        created = process.create_time()
        started = f"{created:.6f}" if created > 0 else UNKNOWN
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return _Row(Identity(pid, started), process.ppid(), os.getpgid(pid), os.getsid(pid), zombie)


@cache
def _boot() -> str:
    """This boot's id, so that an identity kept on disk does not match a process of a later boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "boot"
