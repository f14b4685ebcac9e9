"""The Worker: one Agent's runtime, session after session, until it is told to stop."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import anyio
from treadle.shared.errors import Misuse, Refused, ReplyLost, Stale, StoreChanged, StoreLost, Unavailable
from treadle.shared.model import AgentId, Capability, Session
from treadle.shared.names import shown
from treadle.shared.redaction import safe_url
from treadle.shared.resources import resources as counted
from treadle.shared.store import LOG_KEEP, Authority, Endpoint, Store, lineage

from .abandoning import abandon
from .applying import PolicyFile
from .credentials import Provider
from .handlers import Handler, Runtime
from .loading import settle
from .patience import Patience
from .programs import check_programs
from .shift import Shift
from .slots.occupancy import Occupancy
from .slots.pool import Pool
from .slots.tools import Tool, check_enclosed, tools_of
from .slots.workshop import Workshop
from .terms import Terms, check_pattern

FIRST_CONNECT_S = 3.0
"""How long a store that is not there at the start is waited for."""
CALL_TIMEOUT_S = (1.0, 5.0)
FSYNC_S = 2.0
"""What a server may lose in a crash, with `appendfsync everysec`: of writes older than this none."""
_log = logging.getLogger("treadle.worker")


class Replaced(Stale):
    """A newer runtime of this Agent has its session: this one must stop (R42)."""


class Worker:
    """One Agent's runtime. `run` returns when it was asked to stop and all is given back or done."""

    def __init__(
        self,
        handlers: Mapping[Capability, Handler],
        *,
        endpoint: Endpoint | str,
        name: AgentId,
        prefix: str = "treadle",
        partitions: int | None = None,
        slots: int = 1,
        resources: Mapping[str, int] | None = None,
        groups: str = "*",
        lease_ttl_s: float = 10.0,
        grace_s: float = 20.0,
        renew_in: Literal["thread", "task"] = "thread",
        runtime: Runtime = "task",
        slot_dir: Path | None = None,
        seed: int | None = None,
        log_keep: int = LOG_KEEP,
        policy: Path | None = None,
        credentials: Provider | None = None,
        tools: Mapping[str, Tool | Callable[..., Any]] | None = None,
    ) -> None:
        """`endpoint`: the store's URL. `policy`: a policy file to apply, and to follow.

        `credentials`: where runs have their secrets from. `tools`: functions by the names that contracts list.

        `resources`: what it has besides slots, as {"gpu": 2}: an item that needs some is started only while they are free.

        `runtime`: where handlers run that do not say it. A process of its own imports a handler from its module, and has a
        folder in `slot_dir` (None: the folder for temporary files).

        `seed` and `renew_in="task"` are for a simulator on a virtual clock.

        Misuse for `groups` that are no pattern, `resources` that are none, and handlers, or tools beside them, that no
        other process can import.
        """
        try:
            has = counted(resources or {})
        except Misuse as wrong:
            raise Misuse(f"resources: {wrong}") from None
        check_pattern(groups)
        self.name = name
        self.ready = anyio.Event()
        """Set once the first session is open."""
        settled = settle(handlers, runtime)
        check_programs(settled.values())
        enclosed = [one for one in settled.values() if one.runtime == "process"]
        modules = {one.home for one in enclosed if one.home}  # a program is imported nowhere
        self._has_processes = bool(enclosed)
        has_tools = tools_of(tools or {})
        check_enclosed(has_tools, modules)
        workshop = Workshop(Occupancy(slots), Pool(slots, modules, slot_dir), credentials, has_tools)
        ttl_ms = round(lease_ttl_s * 1000)
        self._terms = Terms(name, settled, slots, has, groups, ttl_ms, grace_s, renew_in, workshop, log_keep)
        self._endpoint = endpoint
        self._prefix, self._partitions = prefix, partitions
        self._policy_file = None if policy is None else PolicyFile(policy, name)
        self._stop = anyio.Event()
        self._session: tuple[int, float] = (0, 0.0)
        """The newest Session Epoch, and when it was opened."""
        self._serving: tuple[Store, Session] | None = None
        self._patience = Patience(self._stop, random.Random(seed))

    def stop(self, *, hurry: bool = False) -> None:
        """Asks it to take nothing more, to let handlers reach a safe point within the grace, and to return.

        `hurry`: within a second, whatever the grace is.
        """
        self._stop.set()
        if hurry:
            self._patience.hurry.set()

    def abandon(self) -> bool:
        """Gives back what it holds, from another thread, for a process that ends at once behind it; whether it did."""
        return self._serving is None or abandon(*self._serving, self._terms.workshop.pool)

    def dispose(self) -> None:
        """Removes what its slots have on this machine, where its loop is gone and it can do nothing itself any more."""
        self._terms.workshop.pool.dispose()

    @property
    def running(self) -> tuple[str, ...]:
        """The runs whose handlers are called now, as MISSION/ITEM."""
        return tuple(self._terms.workshop.occupancy.at_work)

    @property
    def handlers_left(self) -> int:
        """Handlers that still run although their runs are over: threads and tasks that would not end."""
        return len(self._terms.workshop.occupancy.given_up)

    async def run(self) -> None:
        """Works until stopped. Raises Replaced where a newer runtime of this Agent took over, Misuse for a bad store.

        StoreLost where the store was emptied, or went back in time by more than its last writes: a person must look.
        """
        store: Store | None = None
        pool = self._terms.workshop.pool
        where = safe_url(self._endpoint) if isinstance(self._endpoint, str) else self._endpoint.shown
        _log.info("%s", self._terms.introduction(f"{where}, prefix {self._prefix!r}"))
        try:
            if self._has_processes:
                await pool.open()
            store = await self._connect()
            async with nullcontext() if self._policy_file is None else self._policy_file.followed(store):
                while not self._stop.is_set():
                    await self._serve(store)
        except Unavailable as error:
            if not self._stop.is_set():
                raise
            _log.warning("stopped without the store; what is still held there lapses by itself: %s", error)
        finally:
            await pool.close()
            if store is not None:
                await store.aclose()

    async def _serve(self, store: Store) -> None:
        """One session, to its end; returns where another one is to be opened."""
        try:
            await Shift(self._terms, self._patience, store, lives=self.ready.is_set()).serve(
                lambda new: self._opened(store, new)
            )
        except StoreChanged as changed:
            _log.warning("%s; a new session is opened", changed)
            await self._patience.until_answered(store.adopt)
            await self._check_lineage(store)
        except Stale as stale:
            await self._check_newest(store, stale)
            _log.warning("this session was ended as silent; a new one is opened")
        except Refused as refused:
            if refused.code != "LANE_REGRESSED":
                raise
            _log.warning("%s; a new session is opened", refused)
        except Unavailable as error:
            if self._stop.is_set():
                raise
            _log.warning("%s; a new session is opened", error)

    def _opened(self, store: Store, session: Session) -> None:
        self._session, self._serving = (session.epoch, anyio.current_time()), (store, session)
        self.ready.set()

    async def _check_lineage(self, store: Store) -> None:
        """Raises StoreLost where the store has not even minted this Agent's session, which was open for long enough.

        Nothing is accepted or started by anybody then, until a person begins another incarnation.
        """
        epoch, opened_s = self._session
        if anyio.current_time() - opened_s <= FSYNC_S:
            return

        async def compare() -> int:
            try:
                minted = await lineage.newest_minted(store, self.name)
                if minted < epoch:
                    await lineage.distrust(store, self.name, session=epoch, minted=minted)
                return minted
            except Refused as refused:
                await store.adopt()
                raise Unavailable(f"{refused}; it is asked again") from None

        minted = await self._patience.until_answered(compare)
        if minted < epoch:
            raise StoreLost(
                f"store {store.endpoint.shown}: it went back in time, as an old backup does that was restored: it knows of "
                f"session {minted} of agent {shown(self.name)}, which had session {epoch}. Nothing of it is accepted or "
                "started any more until a person has looked and says `treadle new-incarnation` (docs/operations.md)"
            )

    async def _check_newest(self, store: Store, stale: Stale) -> None:
        """Raises Replaced where a newer session of this Agent was opened, also one that is closed again by now."""
        authority, mine = Authority(store), int(stale.details["session"])

        async def look() -> int:
            try:
                return await authority.newest_epoch(self.name)
            except StoreChanged as changed:
                await store.adopt()
                raise Unavailable(f"{changed}; it is asked again") from None

        newest = await self._patience.until_answered(look)
        if newest > mine:
            raise Replaced(
                f"agent {shown(self.name)}: replaced by a newer process of the same name; "
                f"give each Worker its own --name; session={mine} current={newest}",
                details={"session": str(mine), "current": str(newest)},
            ) from None

    async def _connect(self) -> Store:
        """Opens the store. One that loads its data is waited for; one that is not there is not, for long."""
        until_s = anyio.current_time() + FIRST_CONNECT_S
        low, high = CALL_TIMEOUT_S
        timeout_s = min(high, max(low, self._terms.lease_ttl_ms / 2000))
        return await self._patience.until_answered(
            lambda: Store.connect(
                self._endpoint, prefix=self._prefix, partitions=self._partitions, timeout_s=timeout_s
            ),
            is_over=lambda error: isinstance(error, ReplyLost) and anyio.current_time() > until_s,
        )
