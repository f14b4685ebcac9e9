"""How an effect is done: noted as begun with its WorkItem, done at its gate, its result noted. For a loop, and for a thread.

Each step may be the last one of this process. Begun and nothing more: the next run does it, and a gate sees to it that
what was begun is undone. Done at its gate and not noted: the next run finds it there, notes it, and does nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack, cast

import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import checkpoint as let_others_run
from treadle.shared import codec
from treadle.shared.errors import Misuse, Refused
from treadle.shared.inputs import packed
from treadle.shared.names import token as name_token
from treadle.shared.redaction import Secrets

from ..context import Fail, Keyed, Stopped
from .effect import Effect
from .gate import Gate, Passage
from .token import Token, effect_key, effect_name

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Told = tuple[str, bytes]
"""An outcome's code, and the result of an effect that was recorded."""
OF_THE_CALLER = {
    "QUOTA_EXCEEDED": "its WorkItem has 256 already, the most one may have; split it, or keep more in one effect",
    "SCHEMA_VALIDATION_FAILED": "the store does not take its name or its result",
    "REVISION_CONFLICT": "the store does not know that it was begun",
}
"""What is refused and does not end the run."""


class Notes(Protocol):
    """Who notes effects with the WorkItem of a run: its Service."""

    @property
    def is_over(self) -> bool: ...

    @property
    def why(self) -> str: ...

    async def begin_effect(self, effect: str) -> Told:
        """OK: it is new. REPEATED: begun before. STORED: its result. Else the code of a refusal."""
        ...

    async def commit_effect(self, effect: str, result: bytes) -> Told:
        """OK, REPEATED, STORED with another result, or the code of a refusal."""
        ...


@dataclass(frozen=True, slots=True)
class Doer:
    """The run that does something."""

    mission: str
    item: str
    token: Token
    name: str
    """As messages show it."""


class Effects:
    """The effects of one run."""

    def __init__(self, doer: Doer, notes: Notes, credentials: Secrets) -> None:
        self._doer = doer
        self._notes = notes
        self._credentials = credentials
        self._open: dict[str, object] = {}

    @asynccontextmanager
    async def on_loop(self, operation: str, gate: Gate[Any] | None, keyed: Keyed) -> AsyncGenerator[Effect[Any]]:
        """For an async handler; what may block is done in a thread."""
        with self._opened(operation, gate, keyed) as name:
            await self._end_if_over()
            told = await self._agreed(name, self._notes.begin_effect(name))
            passage: Passage[Any] | None = None
            if gate is not None and told[0] != "STORED":
                passage = await _in_thread(gate.enter, self._key(name), self._doer.token)
            try:
                await let_others_run()
                if passage is not None and passage.stored is not None:
                    told = _found(await self._agreed(name, self._notes.commit_effect(name, passage.stored)), passage)
                effect = self._effect(name, told, passage)
                yield effect
                if effect.is_new:
                    raw = self._packed(name, effect.result)
                    if passage is not None:
                        await self._end_if_over()
                        await _in_thread(passage.commit, raw)
                    told = await self._agreed(name, self._notes.commit_effect(name, raw))
                    effect.settle(self._unpacked(name, told[1] if told[0] == "STORED" else raw))
            finally:
                if passage is not None:
                    passage.close()

    @contextmanager
    def in_thread(self, operation: str, gate: Gate[Any] | None, keyed: Keyed) -> Generator[Effect[Any]]:
        """For a plain function, from the thread it was called in."""
        with self._opened(operation, gate, keyed) as name:
            told = self._asked(name, lambda: self._notes.begin_effect(name))
            passage: Passage[Any] | None = None
            if gate is not None and told[0] != "STORED":
                passage = gate.enter(self._key(name), self._doer.token)
            try:
                if passage is not None and (stored := passage.stored) is not None:
                    told = _found(self._asked(name, lambda: self._notes.commit_effect(name, stored)), passage)
                effect = self._effect(name, told, passage)
                yield effect
                if effect.is_new:
                    raw = self._packed(name, effect.result)
                    if passage is not None:
                        self._raise_if_over()
                        passage.commit(raw)
                    told = self._asked(name, lambda: self._notes.commit_effect(name, raw))
                    effect.settle(self._unpacked(name, told[1] if told[0] == "STORED" else raw))
            finally:
                if passage is not None:
                    passage.close()

    @contextmanager
    def _opened(self, operation: str, gate: Gate[Any] | None, keyed: Keyed) -> Generator[str]:
        """The name under which the item notes it; Misuse where this run is doing it just now, or for no gate."""
        if gate is not None and not callable(getattr(gate, "enter", None)):
            raise Misuse(
                f"at: of type {type(gate).__name__}, must be a gate, as SqliteGate(path), FileGate(path) or RedisGate(client)"
            )
        if keyed not in ("item", "ownership"):
            raise Misuse(f'key: {codec.shown(keyed)}, must be "item" or "ownership"')
        name = effect_name(operation, epoch=self._doer.token.epoch if keyed == "ownership" else None)
        self._credentials.refuse_in(name.encode(), "effect: its name")
        mine = object()
        if self._open.setdefault(name, mine) is not mine:
            raise Misuse(
                f"effect {operation!r} of {self._doer.name}: this run is inside of it already; give each operation of a "
                "WorkItem a name of its own"
            )
        try:
            yield name
        finally:
            del self._open[name]

    def _key(self, name: str) -> str:
        doer = self._doer
        return effect_key(name_token(doer.mission, field="mission"), name_token(doer.item, field="item"), name)

    def _effect(self, name: str, told: Told, passage: Passage[Any] | None) -> Effect[Any]:
        is_new = told[0] != "STORED"
        return Effect(
            self._key(name),
            self._doer.token,
            None if passage is None else passage.place,
            is_new=is_new,
            is_doubtful=told[0] == "REPEATED" and passage is None,
            result=None if is_new else self._unpacked(name, told[1]),
        )

    def _packed(self, name: str, result: Any) -> bytes:
        try:
            raw = packed(result, field="effect.result", limit=codec.EFFECT_MAX)
            self._credentials.refuse_in(raw, "effect.result")
            return raw
        except Misuse as error:  # the same code would give it again, and do again what no gate takes back
            raise Fail(f"effect {name}: nothing is recorded: {error}") from None

    def _unpacked(self, name: str, raw: bytes) -> object:
        return codec.unpack(raw, what=f"result of effect {name} of {self._doer.name}", limit=codec.EFFECT_MAX)

    async def _agreed(self, name: str, asked: Awaitable[Told]) -> Told:
        told = await asked
        if told[0] in ("OK", "REPEATED", "STORED"):
            return told
        if told[0] not in OF_THE_CALLER:
            await let_others_run()  # the lease is lost: where that cancels the handler, here
        raise self._refusal(name, told[0])

    def _asked(self, name: str, ask: Callable[[], Awaitable[Told]]) -> Told:
        self._raise_if_over()
        try:
            return anyio.from_thread.run(self._agreed_in_time, name, ask)
        except (asyncio.CancelledError, concurrent.futures.CancelledError):  # the run was stopped meanwhile
            raise self._stopped() from None

    async def _agreed_in_time(self, name: str, ask: Callable[[], Awaitable[Told]]) -> Told:
        self._raise_if_over()  # seen on the loop, where it is decided
        return await self._agreed(name, ask())

    def _refusal(self, name: str, code: str) -> BaseException:
        if code not in OF_THE_CALLER:
            return self._stopped()
        return Refused(f"effect {name} of {self._doer.name}: {OF_THE_CALLER[code]}", code=code)

    def _stopped(self) -> Stopped:
        return Stopped(f"the run of {self._doer.name} is over ({self._notes.why})")

    async def _end_if_over(self) -> None:
        if self._notes.is_over:
            await let_others_run()  # where it is being cancelled, this says so
            raise self._stopped()

    def _raise_if_over(self) -> None:
        if self._notes.is_over:
            raise self._stopped()


async def _in_thread(call: Callable[[Unpack[Arguments]], T], *arguments: *Arguments) -> T:
    """What a thread gives. A cancellation comes when it is done: a passage that nobody holds, or two do, would be torn."""
    work = asyncio.get_running_loop().create_task(anyio.to_thread.run_sync(call, *arguments))
    is_cancelled = False
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:  # asyncio's own, as of `asyncio.timeout`, knows no shield
                is_cancelled = True
    if is_cancelled and (task := asyncio.current_task()) is not None:
        task.uncancel()
        task.cancel()  # comes at the next await, counted once
    return work.result()


def _found(told: Told, passage: Passage[Any]) -> Told:
    """An effect that was done at its gate: the first result noted stands."""
    return told if told[0] == "STORED" else ("STORED", cast("bytes", passage.stored))
