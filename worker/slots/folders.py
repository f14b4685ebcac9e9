"""The folder of a Worker, in which each run has its own: nobody else's to read, and gone with the run.

TREADLE_SLOT_DIR, else the folder for temporary files
  treadle-slots-<mark>/       0700
    owner                     locked as long as the Worker lives: the lock, not a process id, tells a dead one
    run-<random>/             0700, one run's
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from treadle.shared.errors import Misuse
from treadle.shared.keeper import kill_marked, remove

PREFIX = "treadle-slots-"
OWNER = "owner"
_log = logging.getLogger("treadle.worker")


class Folders:
    """One Worker's root, made at once. Misuse where it cannot be made."""

    def __init__(self, base: Path) -> None:
        self.mark = f"{secrets.token_hex(8)}."
        """What the mark of each slot of this Worker begins with."""
        self.root = base.resolve() / (PREFIX + self.mark.rstrip("."))
        self._lock = threading.Lock()
        self._owner = -1
        try:
            self._make()
        except OSError as error:
            self.close()
            raise Misuse(
                f"TREADLE_SLOT_DIR: {str(base)!r}: no folder for slots can be made there ({error.strerror}); "
                "name one that this user may write to"
            ) from None

    def new(self) -> Path:
        """An empty folder for one run; also where what clears old files away has taken the root. From any thread."""
        with self._lock:
            if not self._is_made():
                self._make()
        return Path(tempfile.mkdtemp(prefix="run-", dir=self.root))

    def _is_made(self) -> bool:
        try:
            return os.path.samestat((self.root / OWNER).lstat(), os.fstat(self._owner))
        except FileNotFoundError:
            return False

    def _make(self) -> None:
        """Makes the root, and what tells that it is owned: locked before it has its name, so that no sweep finds it else."""
        with suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
        found = self.root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "somebody else has put another in the place of it", str(self.root))
        new = self.root / f"{OWNER}-{secrets.token_hex(8)}"
        owner = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self.root / OWNER)
        except BaseException:
            os.close(owner)
            raise
        self._owner, former = owner, self._owner
        if former >= 0:
            os.close(former)

    def remove(self, folder: Path) -> None:
        """Removes a run's folder with all in it."""
        if not remove(str(folder)):
            _log.warning("folder %s of a run that is over cannot be removed; it goes with the Worker's", folder)

    def close(self) -> None:
        """Removes the root; twice is fine."""
        remove(str(self.root))
        with self._lock:
            owner, self._owner = self._owner, -1
        if owner >= 0:
            os.close(owner)


def sweep(base: Path) -> list[Path]:
    """Removes the roots of Workers that are surely gone, with the processes that bear their marks; says which."""
    swept: list[Path] = []
    for root in sorted(base.glob(f"{PREFIX}*")):
        try:
            if root.is_symlink() or root.stat().st_uid != os.geteuid():
                continue
            owner = os.open(root / OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
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
