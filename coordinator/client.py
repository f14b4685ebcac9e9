"""The SDK: submit Missions, enqueue jobs, follow them, wait for their results.

    async with Client.connect("redis://...") as client:
        mission = await client.submit(MissionSpec(...))
        results = await mission.results(timeout=600)
        job = await client.enqueue("thumbnails", {"files": ["1.jpg"]}, account="acme", key="photo-17")
        result = await job.result(timeout=60)

Its methods may be used by several tasks at once. Waiting (`events`, `results`, `result`) has connections of its own, so
that it never holds up a submit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from treadle.shared.errors import Misuse, Refused, Unavailable
from treadle.shared.inputs import Call, as_it_is
from treadle.shared.model import Capability
from treadle.shared.names import name_of, token
from treadle.shared.schedules import ScheduleView
from treadle.shared.settings import Settings
from treadle.shared.store import Endpoint, controls
from treadle.shared.store.timetable import Scheduled
from treadle.shared.versions import spoken

from .asking import default_actor, new_id
from .core.granting import check_granted, gated, over_quota
from .core.missions import plan_mission
from .core.wording import lacked, quoted
from .enqueuing import Marked, asked, enqueue_all, enqueue_one
from .failures import MissionFailed as MissionFailed
from .job import Job
from .line import Line
from .mission import Mission as Mission
from .scheduling import schedule, schedules, ticks, unschedule
from .specs import MissionSpec, WorkOptions, WorkSpec
from .waiting import CAPABILITIES_SHOWN

WARNED_MAX = 1_000
"""Capabilities that a client has warned about, each once."""

_log = logging.getLogger("treadle.client")
R = TypeVar("R")


class Client:
    """A connection of one actor to one store, for as long as its `async with` lasts."""

    def __init__(self, endpoint: str | Endpoint, prefix: str, actor: str, partitions: int | None = None) -> None:
        token(actor, field="actor")
        self.actor = actor
        self._line = Line(endpoint, prefix, actor, partitions)
        self._warned: set[Capability] = set()

    @classmethod
    def connect(cls, url: str | Endpoint | None = None, *, actor: str | None = None, prefix: str | None = None) -> Self:
        """A client to enter with `async with`; what is not given comes from the environment (TREADLE_URL, TREADLE_PREFIX).

        Entering raises Unavailable where the store cannot be reached, Misuse where it has another format.
        """
        if not (url is None or isinstance(url, str) or hasattr(url, "sync_client")):
            kind = type(url)
            raise Misuse(
                f"url: a value of type {kind.__module__}.{kind.__qualname__} is no address; pass the URL, redis://..., "
                "rediss://... or unix://...: a client makes connections of its own"
            )
        settings = Settings(url=url if isinstance(url, str) else None, prefix=prefix)
        endpoint = settings.url if url is None or isinstance(url, str) else url
        if isinstance(endpoint, str) and "decode_responses" in endpoint:
            raise Misuse("url (TREADLE_URL): decode_responses has no place in it: the store keeps bytes; take it out")
        return cls(endpoint, settings.prefix, default_actor() if actor is None else actor, settings.partitions)

    async def __aenter__(self) -> Self:
        await self._line.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._line.aclose()

    # --- Missions ---

    async def submit(self, spec: MissionSpec, *, loaded: Callable[[int], None] | None = None) -> Mission:
        """Submit a Mission; on return it is durable. Repeated with the same id and content it gives the first receipt.

        Misuse names what is wrong in `spec`, or is more than the policy grants, and nothing was written. Refused:
        ACTION_ID_COLLISION where its id has other content, QUOTA_EXCEEDED where its account or it may not have so many
        items. A lost reply or an unavailable store is tried again, some seconds. Of a large Mission `loaded` is told now and
        then how many items are there.
        """
        if not isinstance(spec, MissionSpec):
            raise Misuse(f"submit: takes a MissionSpec, not a value of type {type(spec).__name__}")
        mission_id = new_id("m") if spec.id is None else spec.id
        now_ms = await self._line.ask(lambda store: store.now_ms())
        plan = plan_mission(spec, mission_id=mission_id, actor=self.actor, now_ms=now_ms)
        policy = await self._line.policy(anew=True)
        try:
            check_granted(policy, plan)
        except Misuse:  # one that is there already gets its receipt, whatever is granted by now
            if await self._line.ask(lambda store: store.mission(plan.group)) is None:
                raise
        queued = policy.queued(plan.account, plan.group)
        plan = gated(policy, plan)
        try:
            receipt = await self._line.ask(lambda store: store.create(plan, queued=queued, loaded=loaded))
        except Refused as refused:
            if refused.code == "QUOTA_EXCEEDED":
                raise over_quota(refused) from None
            if refused.code != "ACTION_ID_COLLISION":
                raise
            raise Refused(
                f"id: mission {quoted(mission_id)} is in the store with other content (account {quoted(name_of(plan.account))} "
                "counts as content); submit it unchanged to get its first receipt, or give this one another id",
                code=refused.code,
            ) from None
        except Unavailable as problem:
            problem.add_note(f"submit: it may have arrived; submitted again with id={mission_id!r} it is there once")
            raise
        self._warn(f"mission {quoted(mission_id)}", receipt.no_worker, receipt.unschedulable, receipt.lacking)
        return Mission(self._line, mission_id, receipt)

    def mission(self, id: str) -> Mission:
        """A handle on a Mission that was submitted earlier or elsewhere; nothing is asked yet."""
        return Mission(self._line, id)

    # --- one-off jobs ---

    @overload
    async def enqueue(
        self,
        work: Call[R],
        inputs: None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Job[R]: ...
    @overload
    async def enqueue(
        self,
        work: str | WorkSpec,
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Job[Any]: ...
    @overload
    async def enqueue(
        self,
        work: Marked[R],
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Job[R]: ...
    async def enqueue(
        self,
        work: str | WorkSpec | Call[Any] | Marked[Any],
        inputs: Mapping[str, Any] | None = None,
        *,
        account: str | None = None,
        key: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Job[Any]:
        """Enqueue one job of an account (default: the actor's); on return it is durable, after one round trip.

        `work` is a capability's name with `inputs`, a typed call `thumbnails.spec(files=[...])`, a handler, or a WorkSpec.
        With a `key` it is done once however often it is enqueued: the same key and content give the same job, and
        `job.receipt.repeated`; other content under that key is Refused (ACTION_ID_COLLISION), and so are more items than the
        account may have (QUOTA_EXCEEDED). Misuse names what is wrong, and nothing was written. A lost reply or an unavailable
        store is tried again, some seconds.
        """
        one = asked(work, inputs, key, options)
        try:
            job = await enqueue_one(self._line, self._account(account), one)
        except Unavailable as problem:
            problem.add_note(f"enqueue: it may have arrived; enqueued again with key={one.spec.id!r} it is there once")
            raise
        self._warn_of([job])
        return job

    @overload
    async def enqueue_many(self, work: Iterable[Call[R]], *, account: str | None = None) -> list[Job[R]]: ...
    @overload
    async def enqueue_many(self, work: Iterable[WorkSpec], *, account: str | None = None) -> list[Job[Any]]: ...
    async def enqueue_many(self, work: Iterable[WorkSpec | Call[Any]], *, account: str | None = None) -> list[Job[Any]]:
        """Enqueue thousands of jobs of one account, 256 in a round trip; the jobs come back in the order of `work`.

        A WorkSpec's id is the job's key, and makes it safe to enqueue all of it again where this stopped halfway: what was
        enqueued before an error stays. A batch with a wrong job in it is refused whole.
        """
        jobs: list[Job[Any]] = []
        async for some in enqueue_all(self._line, self._account(account), work):
            self._warn_of(some[:1])
            jobs += some
        return jobs

    def job(self, key: str, *, account: str | None = None) -> Job[Any]:
        """A handle on a job that was enqueued earlier or elsewhere; nothing is asked yet."""
        return Job(self._line, account=self._account(account), key=key, decode=as_it_is)

    # --- schedules ---

    async def schedule(
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
        """Have a job enqueued at each tick of a cron expression in a time zone, or each so many seconds, for an account.

        The same again changes nothing; other content under that id is Refused (ACTION_ID_COLLISION) unless it is to
        `replace` it. Of ticks that were missed while nobody was there one is made up for, or `missed="all"`. Misuse names
        what is wrong, a cron expression that never fires included. The job of a tick has the key `ID@MILLISECONDS`.
        """
        one = asked(work, inputs, id, options)
        when = ticks(cron, every, zone)
        return await schedule(self._line, self._account(account), id, when, one, missed=missed, replace_=replace)

    async def schedules(self, *, account: str | None = None) -> list[ScheduleView]:
        """The schedules of an account as the store has them now; without one, all of the store."""
        return await schedules(self._line, account)

    async def unschedule(self, id: str, *, account: str | None = None) -> bool:
        """Delete a schedule; the jobs of its ticks stay. False where there is none of that id."""
        return await unschedule(self._line, self._account(account), id)

    # --- pauses ---

    async def pause(self, what: str) -> bool:
        """Let nothing new of `what` start, anywhere, until it is resumed; what runs goes on. False where it was paused.

        `what` is `all`, `account:NAME`, `capability:NAME` or `mission:ID`.
        """
        return await self._line.ask(lambda store: controls.pause(store, what, actor=self.actor))

    async def resume(self, what: str) -> bool:
        """Take back a pause of just this `what`. False where it was not paused."""
        return await self._line.ask(lambda store: controls.resume(store, what, actor=self.actor))

    async def paused(self) -> list[str]:
        """What is paused, as `pause` takes it, sorted."""
        return await self._line.ask(controls.paused)

    def _account(self, account: str | None) -> str:
        return self.actor if account is None else account

    # --- warnings ---

    def _warn_of(self, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            if job.receipt is not None:
                said = job.receipt
                self._warn(f"job {quoted(job.address)}", said.no_worker, said.unschedulable, said.lacking)

    def _warn(
        self,
        what: str,
        no_worker: Iterable[Capability],
        unschedulable: Mapping[Capability, int],
        lacking: Mapping[Capability, Mapping[str, int]],
    ) -> None:
        missing = self._news(no_worker)
        if missing:
            more = f" and {len(missing) - CAPABILITIES_SHOWN:,} more" if len(missing) > CAPABILITIES_SHOWN else ""
            names = ", ".join(map(spoken, missing[:CAPABILITIES_SHOWN]))
            _log.warning("%s: no live Worker offers %s%s; its items wait (NO_WORKER) until one does", what, names, more)
        wide = self._news(unschedulable)
        for name in wide[:CAPABILITIES_SHOWN]:
            _log.warning(
                "%s: an item needs more slots than any live Worker that offers %s has, %d at most; it waits "
                "(UNSCHEDULABLE) until a larger one does",
                what,
                spoken(name),
                unschedulable[name],
            )
        if len(wide) > CAPABILITIES_SHOWN:
            _log.warning("%s: UNSCHEDULABLE for %s capabilities more", what, f"{len(wide) - CAPABILITIES_SHOWN:,}")

        for name in self._news(lacking)[:CAPABILITIES_SHOWN]:
            _log.warning("%s: %s; it waits (UNSCHEDULABLE) until one has them", what, lacked(name, lacking[name]))

    def _news(self, names: Iterable[Capability]) -> list[Capability]:
        if len(self._warned) >= WARNED_MAX:
            return []
        news = [name for name in names if name not in self._warned]
        self._warned.update(news[: WARNED_MAX - len(self._warned)])
        return news
