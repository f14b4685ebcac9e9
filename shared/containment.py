"""A slot's processes, all of them: found by descent, group, session and mark, and ended so that none can be left.

A descendant of a slot may leave its group, its session and its parent, and it may clear its environment. Against the
first three stands the mark, against the last the subreaper: as long as the slot's first process lives, what lost its
parent is handed to it and not to process 1. So that one is stopped first and killed last.

What is not found: a process that cleared its environment and left its session, after the slot's first process had
ended by itself. Only a container, or a control group, holds that one.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import keeper
from .keeper import MARK as MARK
from .processes import (
    KILL_PATIENCE_S,
    LOOK_EVERY_S,
    Child,
    Identity,
    Life,
    grown,
    has_children,
    identity,
    life_of,
    living,
    send,
    spawn,
)

ROUND_S = 0.25
"""More than this no round takes of the patience: where the machine stands still, what was killed cannot end either."""
SHOWN_MAX = 5
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Has every descendant that loses its parent handed to this process, where the system knows that (Linux)."""
    if sys.platform != "linux":
        return False
    return int(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def enclosed(leader: Identity, mark: str) -> frozenset[Identity]:
    """The live processes of a slot, its first one included."""
    return living(_found(leader, mark, frozenset({leader})))


def is_alone(leader: Identity, mark: str) -> bool:
    """Whether it lives, and nothing it has started does: what has lost its parent is its own child, by the subreaper."""
    if sys.platform != "linux":
        return enclosed(leader, mark) == {leader}
    return life_of(leader) is Life.ALIVE and not has_children(leader)


def end_enclosed(leader: Identity, mark: str, *, patience_s: float = KILL_PATIENCE_S) -> Life:
    """Ends all processes of a slot: GONE is the proof that a look found none (S16).

    ALIVE: some outlived `patience_s` of looking (uninterruptible). UNKNOWN: the first one cannot be read, and nothing was
    sent. Where that one has ended it is better not reaped yet: its number, and so its group and session, is its own until then.
    """
    if life_of(leader) is Life.UNKNOWN:
        return Life.UNKNOWN
    known = frozenset({leader})
    send(leader, signal.SIGSTOP)
    began_s = time.monotonic()
    while left := living(known := _found(leader, mark, known)):
        if patience_s <= 0:
            return Life.ALIVE
        for who in left - {leader} or left:
            send(who, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S / 4)
        now_s = time.monotonic()
        patience_s -= min(now_s - began_s, ROUND_S)
        began_s = now_s
    return Life.GONE


def remains(leader: Identity, mark: str) -> str:
    """What of a slot lives still, for a person: `123 (python3) D`, its number, name and state."""
    left = sorted(enclosed(leader, mark), key=lambda who: who.pid)
    return ", ".join(map(_shown, left[:SHOWN_MAX])) + (
        f" and {more} more" if (more := len(left) - SHOWN_MAX) > 0 else ""
    )


def _shown(who: Identity) -> str:
    try:
        said = Path(f"/proc/{who.pid}/stat").read_bytes()
    except OSError:
        said = b""
    return said[: said.rfind(b")") + 3].decode("ascii", "backslashreplace") or str(who.pid)


def _found(leader: Identity, mark: str, known: frozenset[Identity]) -> frozenset[Identity]:
    bearers = (identity(pid) for pid in keeper.marked(mark))
    return grown(leader, known | {who for who in bearers if who is not None})


def start_keeper(mark: str, folder: Path) -> Child:
    """A process that waits for this one's end, kills what bears the mark, and removes the folder.

    It is in a session of its own: what ends this process, or its group, does not end it.
    """
    argv: list[str | Path] = [sys.executable, "-I", "-S", keeper.__file__, mark, folder]
    return spawn(argv, env={}, cwd=Path("/"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
