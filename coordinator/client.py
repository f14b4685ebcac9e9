"""The SDK: submit Missions, follow their Events, wait for their results.

    async with Client.connect("redis://...") as client:
        mission = await client.submit(MissionSpec(...))
        results = await mission.results(timeout=600)

Its methods may be used by several tasks at once. Waiting (`events`, `results`) has connections of its own, so that it
never holds up a submit.
"""

from __future__ import annotations

import getpass
import logging
import random
import secrets
import socket
import string
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse, Refused, StoreChanged, Unavailable
from treadle.shared.lifecycle import MISSION_MOVES, TERMINAL_MISSIONS
from treadle.shared.model import Capability, Event, GroupId, ItemState, ItemView, MissionState, MissionView, Receipt
from treadle.shared.names import name_of, token
from treadle.shared.settings import Settings
from treadle.shared.store import Endpoint, Store

from .core.missions import plan_mission
from .specs import MissionSpec, quoted

ATTEMPTS_MAX = 12
"""Of one call that finds the store unavailable: 6 to 13 s of waiting altogether."""
BACKOFF_S, BACKOFF_S_MAX = 0.05, 2.0
WAITERS_MAX = 32
"""Connections that wait at the same time; further waits take turns."""
WAIT_S = 5.0
"""How long one wait blocks its connection before it looks at the Mission itself."""
SOCKET_MARGIN_S = 2.0
ID_CHARS = 20
WARNED_MAX = 1_000
"""Capabilities that a client has warned about, each once."""
FAILURES_SHOWN_MAX, TEXT_SHOWN_MAX = 3, 300

_TERMINAL_KINDS = frozenset(kind for kind, (_, state) in MISSION_MOVES.items() if state in TERMINAL_MISSIONS)
_log = logging.getLogger("treadle.client")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one WorkItem failed, as its Worker's Evidence has it."""

    item: str
    type: str
    text: str


class MissionFailed(Refused):
    """There are no results, and never will be. `failures` has each failed item with the type and text of its Evidence."""

    def __init__(self, mission: str, state: MissionState, failures: tuple[Failure, ...]) -> None:
        self.mission, self.state, self.failures = mission, state, failures
        reasons = [f"{one.item}: {one.type}: {one.text[:TEXT_SHOWN_MAX]}" for one in failures[:FAILURES_SHOWN_MAX]]
        if len(failures) > FAILURES_SHOWN_MAX:
            reasons.append(f"and {len(failures) - FAILURES_SHOWN_MAX} more")
        super().__init__(f"mission {quoted(mission)} {state}: {'; '.join(reasons) or 'no item of it failed'}")


class Mission:
    """A handle on one Mission; it holds nothing open."""

    def __init__(self, client: Client, mission_id: str, receipt: Receipt | None = None) -> None:
        self.id = mission_id
        self.group = GroupId(token(mission_id, field="mission"))
        self.receipt = receipt
        """What its submission was answered; None for a handle that did not submit."""
        self._client = client

    def __repr__(self) -> str:
        return f"Mission({self.id!r})"

    async def view(self) -> MissionView:
        """The Mission as the store has it now; Refused (GROUP_NOT_FOUND) where there is none of this id."""
        view = await self._client._ask(lambda store: store.mission(self.group))
        if view is None:
            raise Refused(
                f"mission {quoted(self.id)} is not in this store; check the id, and TREADLE_URL and TREADLE_PREFIX",
                code="GROUP_NOT_FOUND",
            )
        return view

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Its Events with a sequence above `after`, in order, each once, as they come; ends behind the terminal one.

        Corrupt where Events that the store counts are not in the log.
        """
        view = await self.view()
        if not 0 <= after <= view.last_seq:
            raise Misuse(f"after: {after}, must be 0 to {view.last_seq}, where the log of {quoted(self.id)} ends now")
        while view.state not in TERMINAL_MISSIONS or after < view.last_seq:
            events = await self._events_after(after)
            for event in events:
                after = event.seq
                yield event
                if event.kind in _TERMINAL_KINDS:
                    return
            if not events:
                known, view = view.last_seq, await self.view()
                if after < min(known, view.last_seq):
                    raise Corrupt(
                        f"mission {quoted(self.id)}: its log has no Event after {after}, but the store counts "
                        f"{view.last_seq}: the log was deleted or cut"
                    )

    async def _events_after(self, after: int) -> list[Event]:
        return await self._client._wait(lambda store: store.wait_log(self.group, after=after, timeout_s=WAIT_S))

    async def results(self, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109 - the public face
        """The result of each item by its id, once the Mission is approved.

        MissionFailed where it ended otherwise; TimeoutError where it has not ended within `timeout` seconds (None: waits
        for ever), with how far it has come; it goes on all the same.
        """
        view = await self.view()
        with anyio.move_on_after(timeout):
            while view.state not in TERMINAL_MISSIONS:
                view = await self._client._wait(lambda store: store.wait_finished(self.group, timeout_s=WAIT_S))
        if view.state not in TERMINAL_MISSIONS:
            view = await self.view()
        if view.state not in TERMINAL_MISSIONS:
            raise TimeoutError(
                f"mission {quoted(self.id)} has not ended within {timeout} s: {view.verified} of {view.total} items "
                f"are verified, {view.failed} failed; it goes on, ask again"
            )
        items = await self._client._wait(lambda store: store.items(self.group, bodies=True))
        if view.state is not MissionState.APPROVED:
            failed = tuple(_failure(item) for item in items if item.state is ItemState.FAILED)
            raise MissionFailed(self.id, view.state, failed)
        return {name_of(item.item): _result(item) for item in items}


class Client:
    """A connection of one actor to one store, for as long as its `async with` lasts."""

    def __init__(self, endpoint: str | Endpoint, prefix: str, actor: str, partitions: int | None = None) -> None:
        token(actor, field="actor")
        self.actor = actor
        self._endpoint, self._prefix, self._partitions = endpoint, prefix, partitions
        self._calls: Store | None = None
        self._waiting: set[Store] = set()
        self._idle: list[Store] = []
        self._warned: set[Capability] = set()
        self._turns = anyio.Semaphore(WAITERS_MAX)

    @classmethod
    def connect(
        cls, url: str | Endpoint | None = None, *, actor: str | None = None, prefix: str | None = None
    ) -> Client:
        """A client to enter with `async with`; what is not given comes from the environment (TREADLE_URL, TREADLE_PREFIX).

        Entering raises Unavailable where the store cannot be reached, Misuse where it has another format.
        """
        settings = Settings(url=url if isinstance(url, str) else None, prefix=prefix)
        endpoint = settings.url if url is None or isinstance(url, str) else url
        return cls(endpoint, settings.prefix, _default_actor() if actor is None else actor, settings.partitions)

    async def __aenter__(self) -> Self:
        if self._calls is not None:
            raise Misuse("client: it is open already; make another one with Client.connect(...)")
        self._calls = await Store.connect(self._endpoint, prefix=self._prefix, partitions=self._partitions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls, self._calls = self._calls, None
        stores = [*self._waiting, *([calls] if calls else [])]
        self._waiting.clear()
        self._idle.clear()
        for store in stores:
            await store.aclose()

    async def submit(self, spec: MissionSpec) -> Mission:
        """Submit a Mission; on return it is durable. Repeated with the same id and content it gives the first receipt.

        Misuse names what is wrong in `spec`, and nothing was written. Refused (ACTION_ID_COLLISION) where its id has
        other content. A lost reply or an unavailable store is tried again, some seconds.
        """
        if not isinstance(spec, MissionSpec):
            raise Misuse(f"submit: takes a MissionSpec, not a value of type {type(spec).__name__}")
        mission_id = _new_id() if spec.id is None else spec.id
        now_ms = await self._ask(lambda store: store.now_ms())
        plan = plan_mission(spec, mission_id=mission_id, actor=self.actor, now_ms=now_ms)
        try:
            receipt = await self._ask(lambda store: store.create(plan))
        except Refused as refused:
            if refused.code != "ACTION_ID_COLLISION":
                raise
            raise Refused(
                f"id: mission {quoted(mission_id)} is in the store with other content (account {quoted(name_of(plan.account))} "
                "counts as content); submit it unchanged to get its first receipt, or give this one another id",
                code=refused.code,
            ) from None
        self._warn(mission_id, receipt)
        return Mission(self, mission_id, receipt)

    def _warn(self, mission_id: str, receipt: Receipt) -> None:
        news = [name for name in receipt.no_worker if name not in self._warned]
        if news and len(self._warned) < WARNED_MAX:
            self._warned.update(news)
            _log.warning(
                "mission %s: no live Worker offers %s; its items wait (NO_WORKER) until one does",
                quoted(mission_id),
                ", ".join(news),
            )

    def mission(self, id: str) -> Mission:
        """A handle on a Mission that was submitted earlier or elsewhere; nothing is asked yet."""
        return Mission(self, id)

    async def _ask(self, question: Callable[[Store], Awaitable[_T]]) -> _T:
        """Ask on the connection for calls; `question` must be safe to repeat."""

        async def ask() -> _T:
            return await question(self._opened())

        async def adopt() -> None:
            await self._opened().adopt()

        return await _repeated(ask, adopt)

    async def _wait(self, question: Callable[[Store], Awaitable[_T]]) -> _T:
        """Ask on a connection that nothing else uses meanwhile: `question` may block it, for at most WAIT_S."""

        async def ask() -> _T:
            async with self._turns:
                store = await self._borrow()
                try:
                    answer = await question(store)
                except BaseException:  # cut off in the middle, it is in doubt
                    self._waiting.discard(store)
                    await store.aclose()
                    raise
                if store in self._waiting:
                    self._idle.append(store)
                return answer

        return await _repeated(ask, None)

    async def _borrow(self) -> Store:
        partitions = self._opened().partitions
        if self._idle:
            return self._idle.pop()
        store = await Store.connect(
            self._endpoint, prefix=self._prefix, partitions=partitions, timeout_s=WAIT_S + SOCKET_MARGIN_S
        )
        self._waiting.add(store)
        return store

    def _opened(self) -> Store:
        if self._calls is None:
            raise Misuse("client: it is not open; write `async with Client.connect(...) as client:`")
        return self._calls


async def _repeated(ask: Callable[[], Awaitable[_T]], adopt: Callable[[], Awaitable[None]] | None) -> _T:
    """Ask until there is an answer, at most ATTEMPTS_MAX times, waiting longer each time, never in step with others."""
    other_server = False
    for attempt in range(ATTEMPTS_MAX):
        try:
            if other_server and adopt is not None:
                await adopt()
                other_server = False
            return await ask()
        except (Unavailable, StoreChanged) as problem:
            if attempt == ATTEMPTS_MAX - 1:
                raise
            other_server = other_server or isinstance(problem, StoreChanged)
            _log.info("asking again: %s", problem)
        await anyio.sleep(random.uniform(0.5, 1.0) * min(BACKOFF_S_MAX, BACKOFF_S * 2**attempt))
    raise AssertionError("the last attempt returns or raises")


def _default_actor() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no such user: usual in containers
        return "anonymous"


def _new_id() -> str:
    return "m-" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(ID_CHARS))


def _result(item: ItemView) -> object:
    what = f"result of {item.mission}/{name_of(item.item)}"
    return codec.unpack(b"" if item.result is None else item.result, what=what)


def _failure(item: ItemView) -> Failure:
    name = name_of(item.item)
    evidence = codec.unpack(item.failure, what=f"Evidence of {item.mission}/{name}") if item.failure else None
    if not isinstance(evidence, dict):
        return Failure(name, "unknown", "its Evidence is not in the store")
    return Failure(name, str(evidence.get("type", "unknown")), str(evidence.get("text", "")))
