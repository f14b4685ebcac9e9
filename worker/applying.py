"""A Worker applies the policy file it was given: at its start, and whenever what the file says changes.

file -> read twice alike -> parsed -> compare-and-set in the store, recorded with the Worker as who
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from treadle.shared.errors import Misuse, Refused, TreadleError
from treadle.shared.model import AgentId
from treadle.shared.names import name_of
from treadle.shared.policy_file import FILE_BYTES_MAX, parse
from treadle.shared.store import Store, policies

LOOK_EACH_S = 0.5
NOTE = "its file changed"
_log = logging.getLogger("treadle.worker")


class PolicyFile:
    """One file, and what this process has made of it so far.

    Only a change is applied: of the file while the process runs, or to what was never the policy before it started. So
    Workers with different files do not fight, and a start with an old file brings no old policy back. A file with a fault in
    it, or none, is said, and the policy stays.
    """

    def __init__(self, path: Path, agent: AgentId) -> None:
        self._path = path
        self._name = str(path)
        self._actor = name_of(agent)
        self._seen: str | Misuse | None = None
        self._told: str | None = None
        self._sound: str | None = None
        """What the file said when it was last without a fault and dealt with."""
        self._is_start = True

    @asynccontextmanager
    async def followed(self, store: Store) -> AsyncGenerator[None]:
        """The file is followed until the end of the block, whose error is raised as it is."""
        fault: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, store)
            try:
                yield
            except Exception as error:
                fault = error  # raised outside, where no group wraps it
            group.cancel_scope.cancel()
        if fault is not None:
            raise fault

    async def look(self, store: Store) -> None:
        """Read the file, and apply it where it has changed and says the same as at the look before: it may be half written."""
        said = await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        seen, self._seen = self._seen, said
        if str(seen) != str(said) or type(seen) is not type(said):
            return
        try:
            if isinstance(said, Misuse):
                raise said
            parse(said, name=self._name)
        except Misuse as fault:
            self._tell(logging.ERROR, f"{fault}\nthe policy stays as it is")
            self._is_start = False
            return
        if said != self._sound:
            await self._apply(store, said)

    async def _apply(self, store: Store, text: str) -> None:
        if self._is_start:
            changes = await policies.history(store)
            version = next((one.version for one in changes if one.digest == policies.digest_of(text)), None)
            if version is not None and version != changes[0].version:
                self._tell(
                    logging.WARNING,
                    f"{self._name}: was version {version} of the policy, version {changes[0].version} stands and stays; "
                    "`treadle policy apply` makes the file the policy",
                )
                self._settle(text)
                return
        version, changed = await policies.apply(store, text, actor=self._actor, note=NOTE)
        self._tell(logging.INFO, f"{self._name}: {'is' if changed else 'was already'} version {version} of the policy")
        self._settle(text)

    def _settle(self, text: str) -> None:
        self._sound, self._is_start = text, False

    async def _follow(self, store: Store) -> None:
        while True:
            try:
                await self.look(store)
            except Refused as refused:  # somebody else applied one in this moment, or the store is another one now
                _log.info("%s: %s; it is tried again", self._name, refused)
            except TreadleError as error:
                self._tell(logging.WARNING, f"{self._name}: {error}; it is tried again")
            await anyio.sleep(LOOK_EACH_S)

    def _read(self) -> str | Misuse:
        try:
            # Without waiting: a pipe that nobody writes to would keep its reader, and so this process, for ever.
            with open(self._path, "rb", opener=_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return Misuse(f"{self._name}: is no file; give one that is, it is looked for again")
                raw = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            return Misuse(f"{self._name}: cannot be read ({error.strerror}); it is looked for again")
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            return Misuse(f"{self._name}:{line}: is no UTF-8; save it as UTF-8")

    def _tell(self, level: int, text: str) -> None:
        """Once, until there is something else to say."""
        if text != self._told:
            self._told = text
            _log.log(level, "policy file %s", text)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
