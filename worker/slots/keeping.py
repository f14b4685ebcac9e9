"""A Worker's keeper, for as long as there is the Worker: another is started where somebody has ended it."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from treadle.shared.containment import start_keeper
from treadle.shared.processes import Child

from .failures import exit_text

RETRY_S = 5.0
"""One that ended sooner than this, or could not be started, is not replaced sooner either."""
_log = logging.getLogger("treadle.worker")


class Keeping:
    """The keeper of one Worker, and the thread that waits for its end. OSError where there can be none at first."""

    def __init__(self, mark: str, root: Path) -> None:
        self._mark, self._root = mark, root
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._keeper = start_keeper(mark, root)
        self._thread = threading.Thread(target=self._watch, name="treadle-keeping", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._keeper.pid

    def stop(self) -> None:
        """Ends it, when nothing is left to be kept; twice is fine."""
        self._is_over.set()
        with self._lock:
            self._keeper.stop(grace_s=1)
        self._thread.join()

    def _watch(self) -> None:
        while True:
            began_s = time.monotonic()
            self._keeper.wait_unreaped()
            if self._is_over.is_set():
                return
            how = exit_text(self._keeper.wait(1))
            _log.error(
                "keeper %d has ended (%s): without one a kill -9 of this Worker leaves %s; another is started",
                self._keeper.pid,
                how,
                self._root,
            )
            if time.monotonic() - began_s < RETRY_S:
                self._is_over.wait(RETRY_S)
            while (keeper := self._another()) is None and not self._is_over.wait(RETRY_S):
                pass
            if keeper is None:
                return

    def _another(self) -> Child | None:
        with self._lock:
            if self._is_over.is_set():
                return None
            try:
                self._keeper = start_keeper(self._mark, self._root)
            except OSError as error:
                _log.error("no keeper can be started (%s); it is tried again in %g s", error, RETRY_S)
                return None
            return self._keeper
