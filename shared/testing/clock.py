"""A virtual clock: an asyncio loop whose time moves only when nothing is left to do, and processes on it that stop and die.

    loop = VirtualLoop(seed=7)
    with patched_clocks(loop):
        loop.run_until_complete(main())      # ten virtual minutes pass in the time the work itself takes

Everything that runs inside `process.spawn(...)`, and all it starts, belongs to that process: it can be paused as by
SIGSTOP, or killed as by SIGKILL, between any two steps, and nothing of it runs on. Which process goes first at one
instant is drawn from the seed; inside a process the order is asyncio's own.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple, Unpack
from unittest import mock

EPOCH_S = 1_800_000_000.0
"""What `time.time()` says when a virtual loop begins."""
STEPS_MAX = 2_000_000
"""Beyond that many steps a run has no end, whatever its clock says."""
THREAD_PATIENCE_S = 30.0
"""How long, in real seconds, a loop that allows threads stands still for one."""
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_process: ContextVar[Process | None] = ContextVar("treadle_virtual_process", default=None)


class Deadlock(RuntimeError):
    """Everything waits for everything: no step is ready and no timer is set."""


class Process:
    """What stops and dies together. It is made by `VirtualLoop.process`."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.on_death: Callable[[], None] = lambda: None
        self._fuse = 0
        self._loop = loop
        self._is_paused = False
        self.ready: deque[asyncio.Handle] = deque()
        """Its next steps, in order."""
        self.started: dict[asyncio.Task[Any], None] = {}
        """Its tasks that have not ended: a loop knows them weakly only."""

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def is_running(self) -> bool:
        return not self._is_paused and not self.is_dead

    @staticmethod
    def current() -> Process | None:
        """The process whose step this is; None outside of any."""
        return _process.get()

    def spawn(self, work: Coroutine[Any, Any, _T], *, name: str | None = None) -> asyncio.Task[_T]:
        """Starts a task in this process."""
        context = copy_context()
        context.run(_process.set, self)
        return context.run(self._loop.create_task, work, name=name or self.name)

    def pause(self) -> None:
        """Holds every step from here on, as SIGSTOP does; time goes on without it."""
        self._is_paused = True
        self._loop.shift(self)

    def resume(self) -> None:
        """Lets it go on where it was; what became due meanwhile is due now."""
        self._is_paused = False
        self._loop.shift(self)

    def kill(self, *, after_steps: int = 0) -> None:
        """Ends it between two steps, as SIGKILL does: nothing of it runs again before `VirtualLoop.bury`.

        `after_steps`: so many more of its steps run first. `on_death` is called when it is over.
        """
        self._fuse = after_steps
        if after_steps == 0 and not self.is_dead:
            self.is_dead = True
            self._loop.shift(self)
            self.on_death()

    def kill_not(self) -> None:
        """Takes back a death that was to come after some steps more."""
        self._fuse = 0

    def burns(self) -> bool:
        """Counts a step; whether it dies instead of taking it."""
        if self._fuse:
            self._fuse -= 1
            if self._fuse == 0:
                self.kill()
        return self.is_dead

    def tasks(self) -> list[asyncio.Task[Any]]:
        """What was started and has not ended, in the order it was started."""
        return [task for task in self.started if not task.done()]

    def bury(self) -> None:
        """Lets what is left of it run on, as a dead one: see `VirtualLoop.bury`."""
        self.is_dead = True
        self._is_paused = False
        self._loop.shift(self)


class _Ready:
    """What asyncio takes for its queue of ready handles: one queue a process."""

    def __init__(self, chance: random.Random | None) -> None:
        self.outside: deque[asyncio.Handle] = deque()
        self.active: dict[Process | None, deque[asyncio.Handle]] = {}
        self.burying = False
        self._chance = chance

    def append(self, handle: asyncio.Handle) -> None:
        context: Any = handle._context  # type: ignore[attr-defined]  # no public way to a handle's context
        process: Process | None = context.get(_process)
        queue = self.outside if process is None else process.ready
        queue.append(handle)
        if process is None or self._may_run(process):
            self.active[process] = queue

    def shift(self, process: Process) -> None:
        if process.ready and self._may_run(process):
            self.active[process] = process.ready
        else:
            self.active.pop(process, None)

    def next(self) -> asyncio.Handle | None:
        while self.active:
            processes = list(self.active)
            if len(processes) > 1 and self._chance is not None:
                process = processes[self._chance.randrange(len(processes))]
            else:
                process = processes[0]
            queue = self.active[process]
            if process is not None and process.burns() and not self.burying:
                continue
            handle = queue.popleft()
            if not queue:
                del self.active[process]
            if not handle.cancelled():
                return handle
        return None

    def clear(self) -> None:
        self.active.clear()
        self.outside.clear()

    def _may_run(self, process: Process) -> bool:
        return process.is_running or (self.burying and not process.is_paused)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without a selector: it never sleeps, and says Deadlock where a real one would wait for ever.

    An exception in a callback leaves the loop at once: nothing that happens in a simulation is only logged. A thread has
    no virtual time; with `threads` the clock stands still while one runs that was entered by `in_threads`.
    """

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(
        self,
        *,
        seed: int | None = None,
        steps_max: int = STEPS_MAX,
        epoch_s: float = EPOCH_S,
        threads: bool = False,
    ) -> None:
        super().__init__()
        self.epoch_s = epoch_s
        """What `time.time()` says when this loop begins."""
        self.in_threads: Counter[Process | None] = Counter()
        """How many threads run for each process, of those that are waited for."""
        self._threads_allowed = threads
        self._arrived: deque[asyncio.Handle] = deque()
        self._rung = threading.Event()
        self.steps = 0
        self.steps_max = steps_max
        self.processes: list[Process] = []
        self._now_s = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._queues = _Ready(None if seed is None else random.Random(seed))
        self._ready = self._queues
        self.set_exception_handler(_raise_it)

    def time(self) -> float:
        return self._now_s

    def wall_time(self) -> float:
        """What `time.time()` says on this loop."""
        return self.epoch_s + self._now_s

    def process(self, name: str) -> Process:
        """A new process, of which nothing runs yet."""
        process = Process(self, name)
        self.processes.append(process)
        return process

    def shift(self, process: Process) -> None:
        """Takes notice that a process may run, or may not any more."""
        self._queues.shift(process)

    def bury(self, *, limit_s: float = 120.0) -> None:
        """Cancels everything that is left and lets it unwind; for the end of a simulation, after all checks.

        What it still asks of the outside must fail by itself: `Process.is_dead` says so to a network.
        """
        self._queues.burying = True
        self.steps = 0
        for process in self.processes:
            process.bury()
        left = self.run_until_complete(self._unwind(limit_s))
        if left:
            raise Deadlock(f"did not unwind when cancelled: {left}")

    async def _unwind(self, limit_s: float) -> list[str]:
        def running() -> list[asyncio.Task[Any]]:
            here = asyncio.current_task()
            outside = [task for task in self._tasks if task is not here and not task.done()]
            return [*outside, *(task for process in self.processes for task in process.tasks())]

        tasks = running()
        for _ in range(STEPS_MAX):  # one that is cancelled before its first step leaves a coroutine nobody awaited
            if not any(_is_new(task) for task in tasks):
                break
            await asyncio.sleep(0)
        end_s = self.time() + limit_s
        # Twice: one that comes in the very step in which a time-out of the task's own is over, is taken for that.
        for part in (0.5, 1.0):
            for task in tasks:
                task.cancel()
            while tasks and self.time() < end_s - limit_s * (1.0 - part):
                await asyncio.wait(tasks, timeout=1.0)
                tasks = running()
        return sorted(task.get_name() for task in tasks)

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **named)
        process = _process.get()
        # A loop knows its tasks weakly: what a killed process left must not be collected in the middle of a run.
        tasks = self._tasks if process is None else process.started
        tasks[task] = None
        task.add_done_callback(tasks.pop)
        return task

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> asyncio.Future[_T]:
        if not self._threads_allowed:
            raise RuntimeError("a thread has no virtual time")
        process = _process.get()
        self.in_threads[process] += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: self.in_threads.subtract([process]))
        return future

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Keeps what comes from a thread until the loop looks: its queues are not for two threads."""
        handle = asyncio.Handle(callback, list(args), self, context)
        self._arrived.append(handle)
        self._rung.set()
        return handle

    def close(self) -> None:
        self._scheduled.clear()
        super().close()

    # --- what BaseEventLoop asks of its kinds ---

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > self.steps_max:
            raise Deadlock(f"no end after {self.steps_max} steps, {self._now_s:.3f} virtual seconds")
        handle = self._next()
        while handle is None and not self._stopping_now():
            if any(n > 0 and (process is None or process.is_running) for process, n in self.in_threads.items()):
                self._await_threads()
            else:
                self._pass_time()
            handle = self._next()
        if handle is not None:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # see append

    def _next(self) -> asyncio.Handle | None:
        while self._arrived:
            self._ready.append(self._arrived.popleft())
        return self._queues.next()

    def _await_threads(self) -> None:
        if not self._arrived and not self._rung.wait(THREAD_PATIENCE_S):
            raise Deadlock(f"at {self._now_s:.3f} s a thread runs for more than {THREAD_PATIENCE_S:g} real seconds")
        self._rung.clear()

    def _stopping_now(self) -> bool:
        return bool(getattr(self, "_stopping", False))

    def _pass_time(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False  # type: ignore[attr-defined]  # as the base loop does
        if not self._scheduled:
            raise Deadlock(f"at {self._now_s:.3f} s no step is ready and no timer is set")
        self._now_s = max(self._now_s, self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self._now_s:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # as the base loop does
            if not timer.cancelled():
                self._ready.append(timer)

    def _write_to_self(self) -> None:
        """Wakes a selector, which there is none of."""

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError("there is no selector")


def _is_new(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


def _raise_it(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        raise error
    raise RuntimeError(str(context.get("message")))


@contextmanager
def patched_clocks(loop: VirtualLoop) -> Generator[None]:
    """`time.time` and `time.monotonic` follow the loop: fakeredis takes its own time, key expiry and TIME from them."""
    with (
        mock.patch("time.time", loop.wall_time),
        mock.patch("time.monotonic", loop.time),
    ):
        yield


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]], *, seed: int | None = None) -> _T:
    """Runs `main(loop)` to its end on a virtual clock of its own; processes that are left are buried."""
    loop = VirtualLoop(seed=seed)
    try:
        with patched_clocks(loop):
            try:
                return loop.run_until_complete(main(loop))
            finally:
                loop.bury()
    finally:
        loop.close()
