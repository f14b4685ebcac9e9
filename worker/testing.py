"""What this wing brings to `treadle.shared.testing`: Workers on the store in memory, each a process that stops and dies."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, cast
from unittest import mock

import anyio
from treadle.shared.errors import Misuse
from treadle.shared.model import AgentId, Capability
from treadle.shared.names import token
from treadle.shared.testing.kit import PARTITIONS, PREFIX, Kit, Seat
from treadle.shared.testing.wires import NetworkEndpoint

from . import shift
from .credentials import Provider
from .handlers import Handler, handler
from .loading import collect
from .shift import carry_out
from .slots.slot import Run
from .slots.tools import collect_tools
from .worker import Replaced, Worker

SLOTS_MAX = 1_024
LEASE_TTL_S = (0.5, 3_600.0)
GRACE_S_MAX = 3_600.0
READY_WITHIN_S = 60.0


class WorkerHandle:
    """A Worker that was started. `await` it to have it ready; without that it gets ready while the test waits."""

    def __init__(self, kit: Kit, seat: Seat, worker: Worker, task: asyncio.Task[None], *, patience_s: float) -> None:
        self.name = seat.name
        self._kit, self._seat, self._worker, self._task = kit, seat, worker, task
        self._patience_s = patience_s

    def __repr__(self) -> str:
        return f"<Worker {self._seat.shown}>"

    def __await__(self) -> Generator[Any, None, WorkerHandle]:
        return self._ready().__await__()

    @property
    def is_alive(self) -> bool:
        """Whether it was neither killed nor has ended; a paused one is alive."""
        return self._seat.is_alive

    @property
    def was_replaced(self) -> bool:
        """Whether it ended because a newer one of its name had come."""
        return self._task.done() and not self._task.cancelled() and isinstance(self._task.exception(), Replaced)

    @property
    def running(self) -> tuple[str, ...]:
        """The handler runs that go on in it, as MISSION/ITEM."""
        return tuple(self._seat.runs)

    async def stop(self) -> None:
        """Stop it as one SIGTERM does, and wait until it has ended: what it holds is given back at its last checkpoint.

        One that was killed or has ended is left as it is. TimeoutError where it has not ended when its grace, its lease
        and 60 virtual seconds are over.
        """
        if not self.is_alive:
            return
        self._worker.stop()
        with anyio.fail_after(self._patience_s):
            await asyncio.wait([self._task])

    async def _ready(self) -> WorkerHandle:
        with anyio.move_on_after(READY_WITHIN_S):
            while not self._worker.ready.is_set() and self.is_alive:  # noqa: ASYNC110 - it may die instead
                await asyncio.sleep(0.01)
        self._kit.raise_broken()
        if not self._worker.ready.is_set():
            raise TimeoutError(f"Worker {self._seat.shown} is not ready after {READY_WITHIN_S:g} virtual seconds")
        return self


class Workers:
    """Starts Workers; for the fixture `treadle_worker`."""

    def __init__(self, kit: Kit, module: ModuleType) -> None:
        self._kit = kit
        self._module = module
        kit.around(lambda: _gated(kit))

    def __call__(
        self,
        handlers: ModuleType | Mapping[str, Any] | Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        slots: int = 1,
        resources: Mapping[str, int] | None = None,
        lease_ttl_s: float = 10.0,
        grace_s: float = 20.0,
        groups: str = "*",
        credentials: Mapping[str, str] | Provider | None = None,
        tools: Mapping[str, Callable[..., Any]] | None = None,
    ) -> WorkerHandle:
        """Start a Worker, on virtual time, in a process of its own that `faults` finds by its name.

        handlers: a module, a mapping of capability to function (plain or a handler), or one handler; default: those of
          the test's own module.
        name: its identity; default w1, w2, ... A second one of a name is the newer process of that Agent: the older
          one, if it lives, is fenced and ends.
        slots: 1 to 1024. resources: what it has besides, as {"gpu": 2}. lease_ttl_s: 0.5 to 3600. grace_s: 0 to 3600.
        groups: a pattern of Mission ids.
        credentials: what each run is given, by name, or who is asked for it.
        tools: functions by name; default: what stands in the module, or in the test's own, under @tool.
        A handler with `runtime="process"` runs as a task here: virtual time is of one process.
        Misuse for anything else. A Worker that ends by an error fails the test (WorkerBroke).
        """
        found = handlers_of(self._module if handlers is None else handlers)
        module = handlers if isinstance(handlers, ModuleType) else self._module
        _check("slots", slots, 1, SLOTS_MAX, whole=True)
        _check("lease_ttl_s", lease_ttl_s, *LEASE_TTL_S)
        _check("grace_s", grace_s, 0, GRACE_S_MAX)
        kit = self._kit
        if name is None:
            numbers = (f"w{number}" for number in range(1, len(kit.seats) + 2))
            name = next(one for one in numbers if one not in kit.seats)
        agent = AgentId(token(name, field="name"))
        seat = kit.seat(name, is_worker=True, capabilities=tuple(str(capability) for capability in found))
        # On virtual time there are no processes: all run on its loop.
        here = {name: replace(one, runtime="task") for name, one in found.items()}
        worker = Worker(
            here,
            endpoint=NetworkEndpoint(kit.network, seat.process),
            name=agent,
            prefix=PREFIX,
            partitions=PARTITIONS,
            slots=slots,
            resources=resources,
            groups=groups,
            lease_ttl_s=lease_ttl_s,
            grace_s=grace_s,
            renew_in="task",
            seed=kit.drawn_seed(),
            credentials=_Same(credentials) if isinstance(credentials, Mapping) else credentials,
            tools=collect_tools(module) if tools is None else tools,
        )
        kit.at_end(worker.dispose)  # one that is dead on virtual time has left a folder and its keeper on this machine
        task = seat.process.spawn(worker.run(), name=name)

        def over(task: asyncio.Task[None]) -> None:
            seat.is_over = True
            kit.network.left(seat.process)
            error = None if task.cancelled() else task.exception()
            if not isinstance(error, Replaced) and not seat.process.is_dead:
                seat.error = error

        task.add_done_callback(over)
        return WorkerHandle(kit, seat, worker, task, patience_s=grace_s + lease_ttl_s + READY_WITHIN_S)


class _Same:
    """The same credentials for whatever work."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)

    async def credentials(self, _mission: str, _capability: str) -> Mapping[str, str]:
        return self._secrets


def _check(field: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or (whole and not isinstance(number, int)) or not low <= number <= high:
        raise Misuse(f"treadle_worker: {field} is {value!r}, must be {low:g} to {high:g}")


def handlers_of(given: object) -> dict[Capability, Handler]:
    """The handlers of a module, a mapping, or one handler; Misuse where there is none."""
    if isinstance(given, ModuleType):
        found, module = collect(given), given.__name__
    else:
        made = ModuleType("handlers")
        mapping = _mapping(given)
        named = {"handler": given} if mapping is None else mapping
        for number, (capability, function) in enumerate(named.items()):
            setattr(made, f"handler_{number}", _marked(capability, function, is_one_of_many=mapping is not None))
        found, module = collect(made), "handlers"
        for capability in mapping or ():
            if capability not in found:
                raise Misuse(f"handlers: the function under {capability!r} is the handler of another capability")
    if not found:
        raise Misuse(
            f'handlers: {module!r} holds no handler; mark a function with @handler("capability"), or give a module, a '
            "mapping of capability to function, or a handler"
        )
    return found


def _mapping(given: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", given) if isinstance(given, Mapping) else None


def _marked(capability: object, function: Any, *, is_one_of_many: bool) -> Any:
    """A handler as it is; a plain function of a mapping as the handler of its capability, itself unchanged."""
    probe = ModuleType("handlers")
    vars(probe)["function"] = function
    if collect(probe) or not is_one_of_many:
        return function
    if not callable(function) or not isinstance(capability, str):
        raise Misuse(f"handlers: {capability!r}: {function!r} is no mapping of a capability to a function")
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(context: Any, inputs: Any) -> Any:
            return await function(context, inputs)

        return handler(capability)(call)

    @functools.wraps(function)
    def call_sync(context: Any, inputs: Any) -> Any:
        return function(context, inputs)

    return handler(capability)(call_sync)


@contextmanager
def _gated(kit: Kit) -> Generator[None]:
    """Every handler run passes the kit's gate first, and is known to its seat while it goes on."""

    async def gated(run: Run, *given: Any) -> None:
        seat = kit.here()
        await kit.gate.enter(lambda: run.end is not None)
        seat.runs.append(run.name)
        try:
            await carry_out(run, *given)
        finally:
            seat.runs.remove(run.name)

    with mock.patch.object(shift, "carry_out", gated):
        yield
