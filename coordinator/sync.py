"""The SDK for programs without an event loop, Django, Flask and notebooks among them: the same names, without `await`.

    with SyncClient.connect("redis://...") as client:
        job = client.enqueue("thumbnails", {"files": ["1.jpg"]}, account="acme", key="photo-17")
        result = job.result(timeout=60)

One client serves all threads of its process: everything runs on one event loop in a thread of its own, so it works as well
where the calling thread has a running loop, which it blocks. After a fork, open another one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from treadle.shared.answers import Added, Ended, ItemView, MissionView, Receipt
from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call
from treadle.shared.model import Event, ItemState, MissionState, Urgency
from treadle.shared.progress import Said
from treadle.shared.schedules import ScheduleView
from treadle.shared.store import Endpoint
from treadle.shared.store.timetable import Scheduled

from .background import Background
from .client import Client
from .commanding import REASON
from .core.items import BATCH_MAX
from .enqueuing import Marked
from .explaining import Why
from .job import Job, JobReceipt
from .mission import Mission
from .specs import MissionSpec, OfferMode, UrgencyName, WorkOptions, WorkSpec

R = TypeVar("R")
Running = Callable[[], Background]
"""Gives the loop that a client runs on; Misuse where there is none."""


class SyncMission:
    """A handle on one Mission, as `Mission`, without `await`."""

    def __init__(self, mission: Mission, running: Running) -> None:
        self._mission, self._running = mission, running

    def __repr__(self) -> str:
        return f"SyncMission({self.id!r})"

    @property
    def id(self) -> str:
        return self._mission.id

    @property
    def receipt(self) -> Receipt | None:
        return self._mission.receipt

    def view(self) -> MissionView:
        """As `Mission.view`."""
        return self._running().run(self._mission.view)

    def items(self) -> dict[str, ItemView]:
        """As `Mission.items`."""
        return self._running().run(self._mission.items)

    def progress(self) -> dict[str, Said]:
        """As `Mission.progress`."""
        return self._running().run(self._mission.progress)

    def why(self, item: str) -> Why:
        """As `Mission.why`."""
        return self._running().run(lambda: self._mission.why(item))

    def events(self, *, after: int = 0) -> Generator[Event, None, None]:
        """As `Mission.events`: a generator that waits for the next one."""
        running = self._running()
        stream = self._mission.events(after=after)
        try:
            while (event := running.run(lambda: anext(stream, None))) is not None:
                yield event
        finally:
            with suppress(Misuse):  # closed meanwhile: nothing is left to be closed
                running.run(stream.aclose)

    def results(self, timeout: float | None = None) -> dict[str, Any]:
        """As `Mission.results`."""
        return self._running().run(lambda: self._mission.results(timeout))

    def add(self, work: Iterable[WorkSpec]) -> Added:
        """As `Mission.add`."""
        specs = list(work)  # here and not on the loop: it may be a query of the calling thread's database connection
        return self._running().run(lambda: self._mission.add(specs))

    def seal(self) -> None:
        """As `Mission.seal`."""
        self._running().run(self._mission.seal)

    def cancel(self, reason: str = REASON) -> MissionState:
        """As `Mission.cancel`."""
        return self._running().run(lambda: self._mission.cancel(reason))

    def cancel_item(self, item: str, reason: str = REASON) -> ItemState:
        """As `Mission.cancel_item`."""
        return self._running().run(lambda: self._mission.cancel_item(item, reason))

    def fail(self, item: str, evidence: str | Mapping[str, Any]) -> None:
        """As `Mission.fail`."""
        self._running().run(lambda: self._mission.fail(item, evidence))

    def unblock(self, item: str, resolution: Any = None) -> ItemState:
        """As `Mission.unblock`."""
        return self._running().run(lambda: self._mission.unblock(item, resolution))

    def retry(self, item: str) -> None:
        """As `Mission.retry`."""
        self._running().run(lambda: self._mission.retry(item))

    def approve(self, item: str, reason: str = REASON) -> bool:
        """As `Mission.approve`."""
        return self._running().run(lambda: self._mission.approve(item, reason))

    def offer(
        self, item: str, to: Sequence[str] | None = None, *, mode: OfferMode = "preferred", seconds: float | None = None
    ) -> None:
        """As `Mission.offer`."""
        self._running().run(lambda: self._mission.offer(item, to, mode=mode, seconds=seconds))

    def prioritise(
        self,
        item: str,
        *,
        urgency: Urgency | UrgencyName | None = None,
        deadline: datetime | Literal["none"] | None = None,
        business_impact: int | None = None,
    ) -> ItemState:
        """As `Mission.prioritise`."""
        return self._running().run(
            lambda: self._mission.prioritise(item, urgency=urgency, deadline=deadline, business_impact=business_impact)
        )

    def revoke(self, agent: str, reason: str = REASON) -> Ended:
        """As `Mission.revoke`."""
        return self._running().run(lambda: self._mission.revoke(agent, reason))

    def admit(self, agent: str) -> bool:
        """As `Mission.admit`."""
        return self._running().run(lambda: self._mission.admit(agent))


class SyncJob(Generic[R]):
    """A handle on one job, as `Job`, without `await`."""

    def __init__(self, job: Job[R], running: Running) -> None:
        self._job, self._running = job, running

    def __repr__(self) -> str:
        return f"SyncJob({self.address!r})"

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def account(self) -> str:
        return self._job.account

    @property
    def mission(self) -> str:
        return self._job.mission

    @property
    def receipt(self) -> JobReceipt | None:
        return self._job.receipt

    @property
    def address(self) -> str:
        """As `Job.address`."""
        return self._job.address

    def view(self) -> ItemView:
        """As `Job.view`."""
        return self._running().run(self._job.view)

    def state(self) -> ItemState:
        """As `Job.state`."""
        return self._running().run(self._job.state)

    def result(self, timeout: float | None = None) -> R:
        """As `Job.result`."""
        return self._running().run(lambda: self._job.result(timeout))

    def cancel(self, reason: str = REASON) -> ItemState:
        """As `Job.cancel`."""
        return self._running().run(lambda: self._job.cancel(reason))

    def retry(self) -> None:
        """As `Job.retry`."""
        self._running().run(self._job.retry)

    def unblock(self, resolution: Any = None) -> ItemState:
        """As `Job.unblock`."""
        return self._running().run(lambda: self._job.unblock(resolution))


class SyncClient:
    """A connection of one actor to one store, as `Client`, without `await`, for all threads of one process.

    It opens when it is entered or first used, and closes with its `with`, by `close()`, or with the program.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._background: Background | None = None
        self._is_closed = False
        self._opening = threading.Lock()

    @classmethod
    def connect(cls, url: str | Endpoint | None = None, *, actor: str | None = None, prefix: str | None = None) -> Self:
        """As `Client.connect`; nothing is opened yet."""
        return cls(Client.connect(url, actor=actor, prefix=prefix))

    @property
    def actor(self) -> str:
        return self._client.actor

    def open(self) -> Self:
        """Open it now and not at its first use; Unavailable or Misuse where that cannot be."""
        self._running()
        return self

    def close(self) -> None:
        """Close it, for good; twice is fine. Calls that other threads have under way end with Misuse."""
        with self._opening:
            background, self._background, self._is_closed = self._background, None, True
        if background is not None:
            _end(background, self._client)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> Background:
        background = self._background
        if background is not None:
            return background
        with self._opening:
            if self._is_closed:
                raise Misuse("client: it is closed; make another one with SyncClient.connect(...)")
            if self._background is None:
                background = Background("client")
                try:
                    background.run(self._client.__aenter__)
                except BaseException:
                    background.stop()
                    raise
                self._background = background
                weakref.finalize(self, _end, background, self._client)
            return self._background

    # --- Missions ---

    def submit(self, spec: MissionSpec, *, loaded: Callable[[int], None] | None = None) -> SyncMission:
        """As `Client.submit`; `loaded` is called in the client's own thread."""
        return SyncMission(self._running().run(lambda: self._client.submit(spec, loaded=loaded)), self._running)

    def mission(self, id: str) -> SyncMission:
        """As `Client.mission`."""
        return SyncMission(self._client.mission(id), self._running)

    # --- one-off jobs ---

    @overload
    def enqueue(
        self,
        work: Call[R],
        inputs: None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> SyncJob[R]: ...
    @overload
    def enqueue(
        self,
        work: str | WorkSpec,
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> SyncJob[Any]: ...
    @overload
    def enqueue(
        self,
        work: Marked[R],
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> SyncJob[R]: ...
    def enqueue(
        self,
        work: Any,
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> SyncJob[Any]:
        """As `Client.enqueue`."""
        job = self._running().run(lambda: self._client.enqueue(work, inputs, account=account, key=key, **options))
        return SyncJob(job, self._running)

    @overload
    def enqueue_many(self, work: Iterable[Call[R]], *, account: str | None = None) -> list[SyncJob[R]]: ...
    @overload
    def enqueue_many(self, work: Iterable[WorkSpec], *, account: str | None = None) -> list[SyncJob[Any]]: ...
    def enqueue_many(self, work: Iterable[Any], *, account: str | None = None) -> list[SyncJob[Any]]:
        """As `Client.enqueue_many`."""
        jobs: list[SyncJob[Any]] = []
        left = iter(work)  # walked here and not on the loop, as in `SyncMission.add`
        while piece := list(islice(left, BATCH_MAX)):
            made = self._enqueue_piece(piece, account)
            jobs += [SyncJob(job, self._running) for job in made]
        return jobs

    def _enqueue_piece(self, piece: list[Any], account: str | None) -> list[Job[Any]]:
        return self._running().run(lambda: self._client.enqueue_many(piece, account=account))

    def job(self, key: str, *, account: str | None = None) -> SyncJob[Any]:
        """As `Client.job`."""
        return SyncJob(self._client.job(key, account=account), self._running)

    # --- schedules and pauses ---

    def schedule(
        self,
        id: str,
        work: str | Call[Any] | Marked[Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        zone: str = "UTC",
        missed: str = "one",
        replace: bool = False,
        account: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Scheduled:
        """As `Client.schedule`."""
        return self._running().run(
            lambda: self._client.schedule(
                id,
                work,
                inputs,
                cron=cron,
                every=every,
                zone=zone,
                missed=missed,
                replace=replace,
                account=account,
                **options,
            )
        )

    def schedules(self, *, account: str | None = None) -> list[ScheduleView]:
        """As `Client.schedules`."""
        return self._running().run(lambda: self._client.schedules(account=account))

    def unschedule(self, id: str, *, account: str | None = None) -> bool:
        """As `Client.unschedule`."""
        return self._running().run(lambda: self._client.unschedule(id, account=account))

    def pause(self, what: str) -> bool:
        """As `Client.pause`."""
        return self._running().run(lambda: self._client.pause(what))

    def resume(self, what: str) -> bool:
        """As `Client.resume`."""
        return self._running().run(lambda: self._client.resume(what))

    def paused(self) -> list[str]:
        """As `Client.paused`."""
        return self._running().run(self._client.paused)


def _end(background: Background, client: Client) -> None:
    with suppress(Misuse):  # a forked process, or ended already
        background.run(lambda: client.__aexit__(None, None, None))
    background.stop()
