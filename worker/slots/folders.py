"""The folder of a Worker, in which each run has its own: nobody else's to read, and gone with the run.

TREADLE_SLOT_DIR, else the folder for temporary files
  treadle-slots-<mark>/       0700
    owner                     locked as long as the Worker lives: the lock, not a process id, tells a dead one
    run-<random>/             0700, one run's
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from treadle.shared.errors import Misuse
from treadle.shared.keeper import kill_marked, remove

PREFIX = "treadle-slots-"
_NEW = "new-"
"""Before its own name a root has this: it is not locked yet."""
_log = logging.getLogger("treadle.worker")


class Folders:
    """One Worker's root, made at once. Misuse where it cannot be made."""

    def __init__(self, base: Path) -> None:
        self.mark = f"{secrets.token_hex(8)}."
        """What the mark of each slot of this Worker begins with."""
        name = PREFIX + self.mark.rstrip(".")
        new = base / (_NEW + name)
        try:
            new.mkdir(mode=0o700)
            self._owner = os.open(new / "owner", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.root = new.rename(base / name).resolve()
        except OSError as error:
            raise Misuse(
                f"TREADLE_SLOT_DIR: {str(base)!r}: no folder for slots can be made there ({error.strerror}); "
                "name one that this user may write to"
            ) from None

    def new(self) -> Path:
        """An empty folder for one run; also where what clears old files away has taken the root."""
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
        return Path(tempfile.mkdtemp(prefix="run-", dir=self.root))

    def remove(self, folder: Path) -> None:
        """Removes a run's folder with all in it."""
        if not remove(str(folder)):
            _log.warning("folder %s of a run that is over cannot be removed; it goes with the Worker's", folder)

    def close(self) -> None:
        """Removes the root; twice is fine."""
        remove(str(self.root))
        with suppress(OSError):
            os.close(self._owner)


def sweep(base: Path) -> list[Path]:
    """Removes the roots of Workers that are surely gone, with the processes that bear their marks; says which."""
    swept: list[Path] = []
    for root in sorted(base.glob(f"{PREFIX}*")):
        try:
            if root.is_symlink() or root.stat().st_uid != os.geteuid():
                continue
            owner = os.open(root / "owner", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            kill_marked(f"{root.name.removeprefix(PREFIX)}.")
            remove(str(root))
            swept.append(root)
            _log.info("removed %s: its Worker is gone", root)
        finally:
            os.close(owner)
    return swept
