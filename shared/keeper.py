"""What an owner left behind that has ended: processes that bear its mark are killed, and its folder is removed.

A mark stands in the environment of a process, so its children inherit it, also those that leave their group, their
session and their parent. This file imports the standard library only: as a program it runs by its path in a bare
Python, one for each owner, which holds little memory and which nothing that is installed can break.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "TREADLE_SLOT"
"""The variable that holds the mark of a slot: `owner.slot.`, both of them random."""
PROC = Path("/proc")
LOOK_EVERY_S = 0.005
ROUNDS_MAX = 2_000
SETTLE_MAX = 1_000
"""So often a process is looked at that is given another program, a millisecond apart."""


def marked(mark: str) -> set[int]:
    """The live processes whose mark begins with `mark`, but this one; none where there is no /proc to look into."""
    sought = f"\0{MARK}={mark}".encode()
    return {pid for pid in _pids() if sought in b"\0" + _environment(pid)} - {os.getpid()}


def kill_marked(mark: str) -> bool:
    """Kills all that bear the mark, round by round, since some may fork meanwhile; False where that has no end."""
    for _ in range(ROUNDS_MAX):
        left = marked(mark)
        if not left:
            return True
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_EVERY_S)
    return False


def _pids() -> list[int]:
    return [int(one.name) for one in PROC.iterdir() if one.name.isdecimal()] if PROC.is_dir() else []


def _environment(pid: int) -> bytes:
    """Of a process that is just being given another program it is waited for: it has none to be read in that moment."""
    own, empty_at = PROC / str(pid), 0
    with suppress(OSError):
        for _ in range(SETTLE_MAX):
            if found := (own / "environ").read_bytes():
                return found
            memory, begins, ends = _memory((own / "stat").read_bytes())
            if not memory or 0 != begins == ends == empty_at:
                break
            empty_at = begins  # it is really empty only where it is so a moment later too
            time.sleep(LOOK_EVERY_S / 5)
    return b""


def _memory(stat: bytes) -> tuple[int, int, int]:
    """Of proc(5): the bytes a process has (0: the kernel's own, or it has ended), and where its environment begins and ends."""
    fields = stat[stat.rfind(b")") + 2 :].split()
    return int(fields[20]), int(fields[47]), int(fields[48])


def remove(folder: str) -> bool:
    """Removes a folder with all in it, whatever its program did to it; whether it is gone. No link is followed.

    A folder in it is moved up before it is emptied: so no depth makes a path too long, a stack too high or files too many.
    """
    top, number, own = Path(folder), 0, os.urandom(8).hex()
    waiting = [] if top.is_symlink() else [top]
    while waiting:
        each = waiting.pop()
        for one in _entries(each):
            with suppress(OSError):
                if one.is_symlink() or not one.is_dir():
                    one.unlink()
                    continue
                number += 1
                one.chmod(0o700)
                waiting.append(one.rename(top / f"{own}-{number}"))
        if each != top:
            with suppress(OSError):
                each.rmdir()
    with suppress(OSError):
        if top.is_symlink():
            top.unlink()
        else:
            top.rmdir()
    return not os.path.lexists(folder)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        folder.chmod(0o700)
        return list(folder.iterdir())
    return []


def main(mark: str, folder: str) -> None:
    """Waits for the owner's end at the pipe that `processes.spawn` gives, then leaves nothing of it."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pipe = int(os.environ["TREADLE_OWNER_PIPE"].partition(":")[0])
    while os.read(pipe, 1):
        pass
    kill_marked(mark)
    remove(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
