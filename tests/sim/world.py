"""One run of the whole house on a virtual clock: real Workers and Clients, one server, bad weather, then a calm.

First phase: faults between any two steps. Second: all is healed, and everything must end within a bound. The checker
looks at the store now and then while it lasts, and at everything when it is over.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

import anyio
from sim import dump
from sim.editing import TIGHT, edited
from sim.mutations import Mutation
from sim.people import answer, come_true, draw_wishes, resolution_of
from sim.scenario import CAPABILITIES, Errand, draw_errands, result_of
from sim.weather import OF_PROCESSES, OF_SERVERS, Fault, Weather
from treadle.coordinator.client import Client, MissionFailed
from treadle.shared import codec
from treadle.shared.answers import Receipt
from treadle.shared.errors import CursorTooOld, StoreChanged, TreadleError, Unavailable
from treadle.shared.model import AgentId, Event, GroupId
from treadle.shared.store import Store
from treadle.shared.testing.chance import Chance, logs_noted
from treadle.shared.testing.clock import EPOCH_S, Process, VirtualLoop, patched_clocks
from treadle.shared.testing.network import Command, Network
from treadle.shared.testing.wires import NetworkEndpoint
from treadle.worker import Blocked, Context, Fail, Worker, handler
from treadle.worker.handlers import Handler
from treadle.worker.shift import Shift
from treadle.worker.slots.contexts import LoopContext
from treadle.worker.slots.service import RunService
from treadle.worker.worker import Replaced

PREFIX = "sim"
CHAOS_S = 12.0
SETTLE_S = 9.0
FLAKY_TRIES = 2
STEPS_MAX = 100_000
"""A run takes 2,000 to 10,000: what takes so many asks the store all the time."""
ALWAYS = "w0"
"""The Agent that offers everything, whenever it is there; after the calm it is."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one handler did, with the token of its lease, at a moment of the store's time."""

    at_ms: int
    runtime: str
    what: str
    """`begin`, `effect`, `end`."""
    mission: str
    item: str
    lease: str
    token: tuple[int, int, int, str]
    width: int
    detail: str = ""


@dataclass(eq=False)
class Runtime:
    """One process of an Agent, from its start to its end."""

    agent: str
    process: Process
    slots: int
    worker: Worker | None = None
    task: asyncio.Task[None] | None = None
    shifts: list[Shift] = field(default_factory=list)
    stopped_at_s: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.process.is_dead or (self.task is not None and self.task.done())

    def was_stopped(self, from_s: float, to_s: float) -> bool:
        """Whether it was paused at some moment of a span."""
        return any(low < to_s and from_s < high for low, high in self.pauses)


@dataclass
class Told:
    """What a client was told of its Mission."""

    receipts: list[Receipt] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """The sequences of the Events it followed, through all its own crashes."""
    results: dict[str, Any] | None = None
    failures: tuple[tuple[str, str, str], ...] | None = None

    @property
    def is_told(self) -> bool:
        return self.results is not None or self.failures is not None


class World:
    """All that takes part in one run."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.chance = chance = random.Random(seed)
        self.weather = Weather(random.Random(chance.getrandbits(64)))
        self.network = Network(loop, self.weather, random.Random(chance.getrandbits(64)))
        self.network.watch = self._seen
        self.partitions = chance.choice((1, 2, 3))
        self.ttl_s = chance.choice((1.0, 2.0, 4.0))
        self.grace_s = chance.choice((0.3, 2.0))
        self.fleet = {f"w{n}": self._offer(n) for n in range(chance.choice((1, 2, 2, 3, 3, 4)))}
        self.slots = {agent: chance.randint(1, 3) for agent in self.fleet}
        self.slots_min = min(self.slots.values())
        self.errands = draw_errands(chance, self.slots_min)
        self.told = {errand.mission: Told() for errand in self.errands}
        self.runtimes: list[Runtime] = []
        self.journal: list[Line] = []
        self.renewed: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        self.quarantines: dict[str, list[tuple[int, int]]] = {}
        """By a partition's `@meta`: from when until when, each."""
        self.opened: dict[tuple[str, str], str] = {}
        """(Agent, Session Epoch) -> the process for which the store minted it."""
        self.installed: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.wishes = draw_wishes(seed, self.errands, CHAOS_S)
        self.people: list[Process] = []
        self.commanded: dict[str, set[tuple[str, str]]] = {}
        """Mission -> the commands that were given for it, each with its item: it may end otherwise then."""
        self.paused: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(Partition, flag) -> from when to when it was set, as the server carried it out."""
        self.kept: dict[tuple[str, str], list[Event]] = {}
        """(Base, Group) -> its log when its newest Snapshot was installed: nothing above that is trimmed."""
        self.tries: dict[tuple[str, str], int] = {}
        self.faults: list[str] = []
        """What was seen to be wrong."""
        self.clients: list[asyncio.Task[None]] = []
        self.programs: list[Process] = []
        """Every process that a client ever ran in."""
        self.done_s = 0.0

    def _offer(self, number: int) -> tuple[str, ...]:
        return CAPABILITIES if number == 0 else self.chance.choice((CAPABILITIES, CAPABILITIES, CAPABILITIES[:1]))

    @property
    def now_ms(self) -> int:
        """The store's time, as fakeredis tells it."""
        return round((EPOCH_S + self.loop.time()) * 1_000_000) // 1000

    def note(self, text: str) -> None:
        self.network.note(text)

    def wrong(self, text: str) -> None:
        self.note(f"WRONG: {text}")
        self.faults.append(text)

    def digest(self) -> str:
        """Two runs of one seed that agree in this did the same, step by step."""
        return hashlib.sha256("\n".join(self.network.trace).encode()).hexdigest()

    # --- what the network is asked ---

    def _seen(self, process: Process | None, command: Command, answer: Any) -> None:
        """Notes what no log tells: renewals, and when which session was installed where."""
        if command[0] != "FCALL" or not isinstance(answer, list):
            return
        name = str(command[1]).partition("_")[2].partition("_")[2]
        if name == "renew":
            codes = answer[1].decode().split()
            expiry = self.now_ms + int(command[7])
            for code, at in zip(codes, range(8, len(command), 4), strict=True):
                if code == "OK":
                    group, item, _, lease = command[at : at + 4]
                    self.renewed.setdefault((group, item, lease), []).append((self.now_ms, expiry))
        elif name == "pause" and answer[2] == b"1":
            spans = self.paused.setdefault((str(command[3]), str(command[6])), [])
            if command[5] == "pause":
                spans.append((self.now_ms, 1 << 62))
            else:
                spans[-1] = (spans[-1][0], self.now_ms)
        elif name == "open_session" and process is not None:
            self.opened[str(command[5]), answer[1].decode()] = process.name
        elif name == "adopt":
            since, until = self.network.redis.hmget(command[3], "adopted", "quarantine")
            spans = self.quarantines.setdefault(str(command[3]), [])
            if (int(since), int(until)) not in spans:
                spans.append((int(since), int(until)))
        elif name == "snapshot":
            base, group = str(command[3]).removesuffix("@meta"), str(command[5])
            self.kept[base, group] = dump.read_log(self.network.redis, base, GroupId(group), self.kept)
        elif name == "install_session":
            self.installed.setdefault((str(command[3]), str(command[5])), []).append((self.now_ms, int(command[6])))

    # --- the handlers ---

    def handlers(self, runtime: Runtime, capabilities: tuple[str, ...]) -> dict[Any, Handler]:
        async def work(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
            return await self._work(runtime, cast("LoopContext", context), inputs)

        made: dict[Any, Handler] = {}
        for capability in capabilities:
            handler(capability)(work)
        for one in vars(work)["__treadle_handlers__"]:
            made[one.capability] = one
        return made

    async def _work(self, runtime: Runtime, context: LoopContext, inputs: dict[str, Any]) -> dict[str, Any]:
        run = cast("RunService", context._service)._run
        lease = run.lease

        def write(what: str, detail: str = "") -> None:
            line = Line(
                self.now_ms,
                runtime.process.name,
                what,
                context.mission,
                context.item,
                lease.lease_id,
                lease.token,
                run.grant.width,
                detail,
            )
            self.journal.append(line)
            self.note(f"{runtime.process.name:>10} {context.mission}/{context.item} {what} {lease.lease_id} {detail}")

        state = context.checkpoint_state
        raw = codec.pack(state, field="state", limit=1 << 20)
        write("begin", codec.digest(raw))
        try:
            for number in range(state.get("next", 0), len(inputs["steps_ms"])):
                await anyio.sleep(inputs["steps_ms"][number] / 1000)
                write("effect", str(number))
                context.progress(number + 1, len(inputs["steps_ms"]))
                await context.checkpoint({"next": number + 1, "pad": inputs["pad"]})
            if inputs["ending"] == "block":
                self._answered(context)
            if inputs["ending"] == "flaky" and self._tries(context) <= FLAKY_TRIES:
                raise Fail(f"{context.item} does not want to yet", retryable=True)
            if inputs["ending"] == "fail":
                raise Fail(f"{context.item} gives up")
            if inputs["ending"] == "raise":
                raise ArithmeticError(f"{context.item} gives up")
            result = result_of(context.item, inputs, dict(context.results))
            write("result", codec.digest(codec.pack(result, field="result", limit=1 << 20)))
            return result
        finally:
            if not runtime.process.is_dead:
                write("end")

    def _answered(self, context: Context) -> None:
        """Asks a person at its safe point, and goes on only with the answer to that."""
        if context.resolution is None:
            short = random.Random(f"{self.seed} {context.mission} {context.item}").random() < 0.3
            raise Blocked("may I", needs={"item": context.item}, lease_s=1.0 if short else 600.0)
        if context.resolution != resolution_of(context.mission, context.item):
            self.wrong(f"{context.mission}/{context.item}: its resolution is {context.resolution}")

    def _tries(self, context: Context) -> int:
        """How often an item came to its end so far: never more failures than its contract has retries."""
        place = (context.mission, context.item)
        self.tries[place] = self.tries.get(place, 0) + 1
        return self.tries[place]

    # --- processes ---

    def start_worker(self, agent: str) -> Runtime:
        process = self.loop.process(f"{agent}.{len(self.runtimes)}")
        chance = random.Random(self.chance.getrandbits(64))
        runtime = Runtime(agent, process, chance.randint(self.slots_min, self.slots[agent]))
        offers = self.fleet[agent]
        if agent != ALWAYS and self.weather.is_rough and chance.random() < 0.15:
            offers = offers[:1]  # a deploy that drops a capability: what was accepted for it must not be lost
        self.runtimes.append(runtime)

        async def main() -> None:
            runtime.worker = Worker(
                self.handlers(runtime, offers),
                endpoint=NetworkEndpoint(self.network, process),
                name=AgentId(agent),
                prefix=PREFIX,
                slots=runtime.slots,
                lease_ttl_s=self.ttl_s,
                grace_s=self.grace_s,
                renew_in="task",
                seed=chance.getrandbits(32),
            )
            await runtime.worker.run()

        def over(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            self.note(f"{process.name:>10} ended: {error!r}")
            self.network.left(process)
            if isinstance(error, Replaced):
                newest = str(error).rpartition("current=")[2]
                if self.opened.get((agent, newest), process.name) == process.name:
                    self.wrong(f"Worker {process.name} says it was replaced, but by itself or nobody: {error}")
            if error is None or process.is_dead or isinstance(error, Replaced):
                return
            if isinstance(error, Unavailable) and not runtime.shifts:
                return  # the store was not there at its start: whoever started it starts it again
            self.wrong(f"Worker {process.name} died of {type(error).__name__}: {error}")

        def died() -> None:
            self.note(f"{process.name:>10} killed")
            self.network.left(process)

        process.on_death = died
        self.note(f"{process.name:>10} started")
        runtime.task = process.spawn(main())
        runtime.task.add_done_callback(over)
        return runtime

    def start_client(self, errand: Errand) -> None:
        told = self.told[errand.mission]

        async def main(process: Process) -> None:
            endpoint = NetworkEndpoint(self.network, process)
            while not told.is_told:
                try:
                    async with Client(endpoint, PREFIX, "sim", self.partitions) as client:
                        mission = await client.submit(errand.spec())
                        assert mission.receipt is not None
                        told.receipts.append(mission.receipt)
                        if errand.follows:
                            async for event in mission.events(after=len(told.events)):
                                told.events.append(event.seq)
                        told.results = await mission.results()
                except MissionFailed as failed:
                    told.failures = tuple((one.item, one.type, one.text) for one in failed.failures)
                except CursorTooOld as old:  # it goes on behind what was trimmed
                    told.events += range(len(told.events) + 1, int(old.details["first"]))
                except (Unavailable, StoreChanged) as error:
                    self.note(f"{process.name:>10} client: {error!r}")
                    await anyio.sleep(0.5)

        async def lives() -> None:
            """Its program is started again whenever it was killed."""
            await asyncio.sleep(errand.at_s)
            while not told.is_told:
                process = self.loop.process(f"c-{errand.mission}.{len(self.programs)}")
                self.programs.append(process)
                died = asyncio.Event()
                process.on_death = died.set
                ends = [process.spawn(main(process)), self.loop.create_task(died.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                self.network.left(process)
                if ends[0].done():
                    ends[0].result()
                    ends[1].cancel()
                await asyncio.sleep(0.2)

        self.clients.append(self._begin(lives()))

    def alive(self) -> list[Runtime]:
        return [runtime for runtime in self.runtimes if not runtime.is_over]

    def current(self, agent: str) -> Runtime | None:
        """The newest runtime of an Agent that lives."""
        return next(
            (runtime for runtime in reversed(self.runtimes) if runtime.agent == agent and not runtime.is_over), None
        )

    # --- the run ---

    async def run(self) -> None:
        self.weather.is_rough = False
        store = await Store.connect(NetworkEndpoint(self.network, None), prefix=PREFIX, partitions=self.partitions)
        await store.aclose()
        self.weather.is_rough = True
        for agent in self.fleet:
            self.start_worker(agent)
        for errand in self.errands:
            self.start_client(errand)
        for fault in (*OF_PROCESSES, *OF_SERVERS):
            for _ in range(int(self.weather.rates.get(fault, 0))):
                self._begin(self._strike(fault, self.chance.uniform(0.2, CHAOS_S)))
        people = [self._begin(come_true(self, wish)) for wish in self.wishes]
        self._begin(answer(self))
        looks = [self._begin(self._look(self.chance.uniform(0.5, CHAOS_S))) for _ in range(4)]
        await asyncio.sleep(CHAOS_S)
        self._heal()
        await asyncio.gather(*people)
        await self._all_told()
        await asyncio.gather(*looks)
        self.done_s = self.loop.time()
        for _ in range(int(SETTLE_S)):
            await asyncio.sleep(1.0)
            self._refill()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task of the world's own; what it raises is a fault like any other."""

        async def watched() -> None:
            try:
                await work
            except Exception as error:
                self.wrong(f"{type(error).__name__}: {error}")

        return self.loop.create_task(watched())

    async def _all_told(self) -> None:
        limit_s = self.liveness_s
        begun_s = self.loop.time()
        while self.loop.time() < begun_s + limit_s:
            _, pending = await asyncio.wait(self.clients, timeout=1.0)
            if not pending:
                return
            self._refill()
        missing = [mission for mission, told in self.told.items() if not told.is_told]
        self.wrong(f"not ended {limit_s:.0f} s after all was healed: {', '.join(missing)}")

    @property
    def liveness_s(self) -> float:
        """What is left may need all its work, one after the other, a lease that lapses, a start-by and a few sweeps."""
        work_ms = sum(sum(job.steps_ms) for errand in self.errands for job in errand.jobs)
        return 20 + 3 * self.ttl_s + 5 + work_ms / 1000

    async def _strike(self, fault: Fault, at_s: float) -> None:
        chance = random.Random(self.chance.getrandbits(64))
        await asyncio.sleep(at_s)
        if not self.weather.is_rough:
            return
        self.note(f"{'-':>10} strikes: {fault}")
        workers = self.alive()
        match fault:
            case Fault.FLUSH:
                self.network.flush_library()
            case Fault.OTHER_SERVER:
                self.network.change_server()
            case Fault.LOST_TOKENS:
                self.network.lose_tokens()
            case _ if not workers:
                return
            case Fault.CUT:
                self.network.cut(chance.choice(workers).process, chance.choice((0.3, 1.0, 1.0, 3.0)) * self.ttl_s)
            case Fault.PAUSE:
                await self._pause(chance.choice(workers), chance.choice((0.3, 1.2, 2.5, 12.0)) * self.ttl_s)
            case Fault.CRASH if chance.random() < 0.2:
                program = chance.choice(self.programs) if self.programs else None
                if program is not None and not program.is_dead:
                    program.kill(after_steps=chance.randint(0, 60))
            case Fault.CRASH:
                await self._crash(chance, chance.choice(workers))
            case Fault.STOP:
                runtime = chance.choice(workers)
                await self._stop(runtime)
                await asyncio.sleep(chance.uniform(0.0, 3.0))
                if self.current(runtime.agent) is None:
                    self.start_worker(runtime.agent)
            case Fault.TWIN:
                self.start_worker(chance.choice(workers).agent)
            case _:
                raise AssertionError(f"{fault} does not strike")

    async def _pause(self, runtime: Runtime, for_s: float) -> None:
        self.note(f"{runtime.process.name:>10} stopped for {for_s:.2f} s")
        begun_s = self.loop.time()
        runtime.process.pause()
        await asyncio.sleep(min(for_s, max(0.0, CHAOS_S - begun_s)))
        runtime.pauses.append((begun_s, self.loop.time()))
        self.note(f"{runtime.process.name:>10} goes on")
        runtime.process.resume()

    async def _crash(self, chance: random.Random, runtime: Runtime) -> None:
        runtime.process.kill(after_steps=chance.choice((0, chance.randint(1, 300))))
        await asyncio.sleep(chance.choice((0.0, chance.uniform(0.0, 2.0), chance.uniform(0.0, 4 * self.ttl_s))))
        if chance.random() < 0.3:
            agent = f"w{len(self.fleet)}"
            self.fleet[agent], self.slots[agent] = self.fleet[runtime.agent], self.slots[runtime.agent]
        else:
            agent = runtime.agent
        if self.weather.is_rough and self.current(agent) is None:
            self.start_worker(agent)

    async def _stop(self, runtime: Runtime) -> None:
        if runtime.worker is None or runtime.task is None:
            return
        runtime.stopped_at_s = self.loop.time()
        self.note(f"{runtime.process.name:>10} told to stop")
        runtime.worker.stop()
        await asyncio.wait([runtime.task], timeout=30.0)

    def _heal(self) -> None:
        self.note(f"{'-':>10} all is healed")
        self.weather.clear()
        self.network.heal()
        for process in self.loop.processes:
            process.kill_not()
        for runtime in self.runtimes:
            if runtime.process.is_paused:
                runtime.process.resume()
        self._refill()

    def _refill(self) -> None:
        for agent in list(self.fleet):
            if self.current(agent) is None:
                self.start_worker(agent)

    async def _look(self, at_s: float) -> None:
        from sim.checker import look

        await asyncio.sleep(at_s)
        for fault in look(self):
            self.wrong(f"at {self.loop.time():.3f} s: {fault}")

    async def stop_all(self) -> None:
        """Ends the fleet the way a deploy does."""
        workers = self.alive()
        for runtime in workers:
            assert runtime.worker is not None
            runtime.worker.stop()
        tasks = [runtime.task for runtime in workers if runtime.task]
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=self.grace_s + self.ttl_s + 10)
            for task in pending:
                self.wrong(f"Worker {task.get_name()} did not stop")


@contextmanager
def _seams(world: World) -> Iterator[None]:
    """What is drawn from the system elsewhere is drawn from the seed here; each Shift is told to its runtime."""

    class Recorded(Shift):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            process = Process.current()
            for runtime in world.runtimes:
                if runtime.process is process:
                    runtime.shifts.append(self)

    with (
        logs_noted(world.note, only=True),
        mock.patch("treadle.worker.worker.Shift", Recorded),
        Chance(world.seed).drawn(),
    ):
        yield


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed."""

    seed: int
    faults: tuple[str, ...]
    enabled: tuple[Fault, ...]
    trace: tuple[str, ...]
    digest: str
    ended_s: float
    events: int


def simulate(seed: int, mutation: Mutation | None = None) -> Outcome:
    """Runs one seed from the first call to the last check, with a bug on purpose where one is given."""
    tight = random.Random(seed).random() < 0.4
    edits = (*(TIGHT if tight else ()), *(mutation.edits if mutation else ()))
    with edited(edits), mutation.patch() if mutation and mutation.patch else nullcontext():
        return _simulate(seed)


def _simulate(seed: int) -> Outcome:
    from sim.checker import check, check_stopped

    loop = VirtualLoop(seed=seed, steps_max=STEPS_MAX)
    try:
        with patched_clocks(loop):
            world = World(seed, loop)
            with _seams(world):
                try:
                    loop.run_until_complete(world.run())
                    events = check(world)
                    loop.run_until_complete(world.stop_all())
                    check_stopped(world)
                except (TreadleError, RuntimeError, AssertionError, LookupError, ValueError) as error:
                    world.wrong(f"{type(error).__name__}: {error}")
                    events = 0
                digest, trace = world.digest(), tuple(world.network.trace)
                loop.bury()
            world.network.redis.close()
    finally:
        loop.close()
    return Outcome(
        seed,
        tuple(world.faults),
        world.weather.enabled,
        trace,
        digest,
        world.done_s,
        events,
    )
