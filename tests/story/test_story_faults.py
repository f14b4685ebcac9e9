"""Story 6. What a test of yours can do to its house: every fault on demand, and no real time passes.

The fixtures come with treadle's pytest plug-in. Each test has a store in memory, with the real function library, and a
clock of its own that moves only when nobody has anything left to do. docs/testing.md tells it from the beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.errors import Misuse, Unavailable
from treadle.shared.model import EventKind
from treadle.shared.testing.idle import NotIdle
from treadle.shared.testing.injection import Faults
from treadle.shared.testing.kit import StoreInMemory, WorkerBroke
from treadle.worker import Context, handler
from treadle.worker.testing import Workers

Idle = Callable[..., Awaitable[float]]
AtMost = Callable[..., Awaitable[int]]

walked: list[tuple[str, int]] = []
"""Which Worker took which step: what a handler does to the world."""


@handler("walk")
async def walk(context: Context, inputs: dict[str, Any]) -> str:
    """A step each ten seconds, each saved."""
    for step in range(context.checkpoint_state.get("next", 0), inputs["steps"]):
        await asyncio.sleep(10)
        walked.append((context.worker, step))
        await context.checkpoint({"next": step + 1})
    return f"finished by {context.worker} at attempt {context.attempt}"


@pytest.fixture(autouse=True)
def _nothing_walked() -> None:
    walked.clear()


def a_walk(*items: str, steps: int = 3) -> MissionSpec:
    work = [WorkSpec(id=item, capability="walk", inputs={"steps": steps}) for item in items or ("a",)]
    return MissionSpec(id="walk", objective="a walk", work=work)


async def kinds_of(client: Client, mission: str = "walk") -> list[EventKind]:
    return [event.kind async for event in client.mission(mission).events()]


async def test_time_is_virtual(treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle) -> None:
    began_s, real_s = time.time(), time.perf_counter()
    treadle_worker(name="w1")  # the handlers of this file, as none are named
    await treadle_client.submit(a_walk(steps=20))
    assert 200 < await run_until_idle() < 205
    assert time.time() - began_s > 200, "the clock says so to everybody"
    assert time.perf_counter() - real_s < 20
    assert await treadle_client.mission("walk").results() == {"a": "finished by w1 at attempt 1"}


async def test_killed(treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle) -> None:
    """As by kill -9: nothing is given back. The lease of a minute runs out, and the work goes on from its checkpoint."""
    await treadle_worker(name="unlucky", lease_ttl_s=60)
    mission = await treadle_client.submit(a_walk())
    await asyncio.sleep(25)
    faults.kill("unlucky")
    lucky = treadle_worker(name="lucky", lease_ttl_s=60)
    assert 60 < await run_until_idle() < 80
    assert await mission.results() == {"a": "finished by lucky at attempt 2"}
    assert walked == [("unlucky", 0), ("unlucky", 1), ("lucky", 2)]
    assert (await kinds_of(treadle_client)).count(EventKind.LAPSED) == 1
    assert (lucky.is_alive, lucky.running) == (True, ())


async def test_killed_in_the_middle_of_a_handler(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    """A handler that ends its own Worker, between what it did and its checkpoint: that step is done twice."""
    done: list[int] = []

    async def careless(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        for step in range(context.checkpoint_state.get("next", 0), 3):
            done.append(step)
            if context.attempt == 1 and step == 1:
                faults.kill(context.worker)
            await context.checkpoint({"next": step + 1})
        return "done"

    treadle_worker({"walk": careless}, name="w1")
    treadle_worker({"walk": careless}, name="w2")
    await treadle_client.submit(a_walk())
    await run_until_idle()
    assert done == [0, 1, 1, 2]


async def test_paused(treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle) -> None:
    """Stopped for longer than its lease it is a zombie: it goes on, and what it does is refused."""
    zombie = await treadle_worker(name="zombie")
    mission = await treadle_client.submit(a_walk())
    await asyncio.sleep(15)
    faults.pause("zombie", 60)
    await treadle_worker(name="other")
    await run_until_idle()  # until it has gone on as well
    assert await mission.results() == {"a": "finished by other at attempt 2"}
    # It may have taken its second step before it heard: what was saved is the other one's.
    assert [step for worker, step in walked if worker == "other"] == [1, 2]
    kinds = await kinds_of(treadle_client)
    assert (kinds.count(EventKind.LAPSED), kinds.count(EventKind.RESULT_ACCEPTED)) == (1, 1)
    assert zombie.is_alive, "and as good as any other from here on"


async def test_cut_off(treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle) -> None:
    """Nothing gets through, and nobody is told. By its own clock it knows when its lease is over, and stops."""
    alone = await treadle_worker(name="alone")
    mission = await treadle_client.submit(a_walk())
    await asyncio.sleep(15)
    faults.cut("alone")
    await treadle_worker(name="other")
    await run_until_idle()
    assert await mission.results() == {"a": "finished by other at attempt 2"}
    assert alone.running == ()
    faults.heal("alone")
    faults.kill("other")
    again = await treadle_client.submit(
        MissionSpec(objective="again", work=[WorkSpec(id="a", capability="walk", inputs={"steps": 1})])
    )
    await run_until_idle()
    assert await again.results() == {"a": "finished by alone at attempt 1"}


async def test_a_client_that_is_cut_off_goes_on_when_it_is_healed(
    treadle_client: Client, treadle_worker: Workers, faults: Faults
) -> None:
    treadle_worker()
    mission = await treadle_client.submit(a_walk())
    faults.cut("client")
    asyncio.get_running_loop().call_later(20, faults.heal)
    assert await mission.results(timeout=120) == {"a": "finished by w1 at attempt 1"}


async def test_a_lost_reply(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    """The submit is carried out and its answer lost, and so is each of a Worker's first calls: nothing is done twice."""
    await treadle_worker(name="w1")
    faults.lose_reply(of="client")
    for number in range(1, 5):
        faults.lose_reply(after=number, of="w1")
    mission = await treadle_client.submit(a_walk())
    assert mission.receipt is not None
    assert mission.receipt.repeated, "it was asked twice, and is one Mission"
    await run_until_idle()
    assert sorted(faults.lost) == ["create of client", *["turn of w1"] * 4]
    assert walked == [("w1", 0), ("w1", 1), ("w1", 2)]
    assert (await kinds_of(treadle_client)).count(EventKind.SUBMITTED) == 1


async def test_no_library(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    """The server forgets the function library, as after a restart without it: whoever calls next brings it again."""
    await treadle_worker()
    faults.no_library()
    mission = await treadle_client.submit(a_walk())
    await asyncio.sleep(15)
    faults.no_library()
    await run_until_idle()
    assert await mission.results() == {"a": "finished by w1 at attempt 1"}


async def test_run_at_most(treadle_client: Client, treadle_worker: Workers, run_at_most: AtMost) -> None:
    """So many handler runs and no more: what is to be seen in between can be seen."""
    treadle_worker(slots=2)
    mission = await treadle_client.submit(a_walk("a", "b", "c", steps=1))
    assert await run_at_most(2) == 2
    view = await mission.view()
    assert (view.verified, len(walked)) == (2, 2)
    await asyncio.sleep(100)
    assert len(walked) == 2, "the third one waits until it is let"
    assert await run_at_most(5) == 1
    assert len(walked) == 3


async def test_a_worker_that_is_stopped_gives_its_work_back(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    morning = await treadle_worker(name="morning")
    await treadle_client.submit(a_walk())
    await asyncio.sleep(15)
    await morning.stop()
    assert not morning.is_alive
    treadle_worker(name="evening")
    await run_until_idle()
    assert walked == [("morning", 0), ("morning", 1), ("evening", 2)]
    assert EventKind.LAPSED not in await kinds_of(treadle_client)


async def test_a_second_worker_of_a_name_is_the_newer_process_of_it(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    older = await treadle_worker(name="w")
    await treadle_client.submit(a_walk())
    await asyncio.sleep(15)
    newer = await treadle_worker(name="w")
    await run_until_idle()
    assert (older.was_replaced, older.is_alive, newer.is_alive) == (True, False, True)
    assert [step for _, step in walked][-2:] == [1, 2]


async def test_what_never_gets_idle_says_what_waits(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    await treadle_worker({"rest": walk_nowhere}, name="w1")
    await treadle_worker(name="w2")
    faults.kill("w2")
    await treadle_client.submit(a_walk("a", "b"))
    with pytest.raises(NotIdle) as found:
        await run_until_idle(within_s=90)
    assert str(found.value).splitlines() == [
        "not idle after 90 virtual seconds (within_s= allows more); still waiting:",
        "  walk/a: offered, needs 'walk', which no Worker that is alive offers",
        "  walk/b: offered, needs 'walk', which no Worker that is alive offers",
        "  Workers: w1 (alive), w2 (killed)",
    ]


async def walk_nowhere(context: Context, inputs: dict[str, Any]) -> None:
    """A handler that is given by a mapping needs no mark."""


async def test_two_clients_and_only_one_is_cut_off(
    treadle_store: StoreInMemory, treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    treadle_worker()
    async with Client.connect(treadle_store.named("bob"), actor="bob") as bob:
        faults.cut("bob")
        with pytest.raises(Unavailable):
            await bob.mission("walk").view()
        mission = await treadle_client.submit(a_walk())
        faults.heal("bob")
        async for event in bob.mission("walk").events():
            if event.kind is EventKind.STARTED:
                break
    await run_until_idle()
    async for _ in mission.events():
        break  # a look that is broken off leaves nothing behind


async def test_a_wrong_name_or_number_is_told_with_what_would_do(
    treadle_store: StoreInMemory, treadle_worker: Workers, faults: Faults, run_until_idle: Idle, run_at_most: AtMost
) -> None:
    with pytest.raises(Misuse, match=r"kill: nobody here is called 'w1'; known are: 'client'"):
        faults.kill("w1")
    await treadle_worker(name="w1")
    await treadle_worker(name="w2")
    with pytest.raises(Misuse, match=r"kill: nobody here is called 'w3'; known are: 'client', 'w1', 'w2'"):
        faults.kill("w3")
    with pytest.raises(Misuse, match=r"pause: 'client' lives in the test itself; it can be cut off, not paused"):
        faults.pause("client", 1)
    faults.kill("w2")
    with pytest.raises(Misuse, match=r"pause: Worker w2 \(killed\) is not alive; start it again"):
        faults.pause("w2", 1)
    for seconds in (0, -1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(Misuse, match=r"pause: seconds is .*, must be a number above 0"):
            faults.pause("w1", seconds)  # type: ignore[arg-type]
    for after in (0, -1, 1.5, True):
        with pytest.raises(Misuse, match=r"lose_reply: after is .*, must be an int of 1 to 1000000"):
            faults.lose_reply(after)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="lose_reply: nobody here is called 'w9'"):
        faults.lose_reply(of="w9")
    with pytest.raises(Misuse, match=r"run_at_most: -1 is no number of handler runs"):
        await run_at_most(-1)
    with pytest.raises(Misuse, match=r"within_s: 0, must be a number of seconds above 0"):
        await run_until_idle(within_s=0)
    for wrong, said in (
        ({"slots": 0}, "slots is 0, must be 1 to 1024"),
        ({"lease_ttl_s": 0.1}, r"lease_ttl_s is 0.1, must be 0.5 to 3600"),
        ({"name": "client"}, "name: 'client' is a client in this test already"),
        ({"handlers": {}}, "handlers: 'handlers' holds no handler"),
        ({"handlers": {"walk": 7}}, "handlers: 'walk': 7 is no mapping of a capability to a function"),
        ({"handlers": {"fly": walk}}, "the function under 'fly' is the handler of another capability"),
    ):
        with pytest.raises(Misuse, match=said):
            treadle_worker(**wrong)
    async with Client.connect(treadle_store, actor="bob") as bob:
        assert bob.actor == "bob"
    with pytest.raises(Misuse, match="name: 'w1' is a Worker in this test"):
        treadle_store.named("w1")


async def test_a_worker_that_breaks_fails_the_test(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise Misuse("something nobody foresaw")

    await treadle_worker(name="w1")
    monkeypatch.setattr("treadle.worker.tenure.Tenure.turns", broken)
    await treadle_client.submit(a_walk())
    with pytest.raises(WorkerBroke, match="Worker 'w1' ended by Misuse: something nobody foresaw"):
        await run_until_idle()


async def test_a_turn_whose_reply_was_lost_is_repeated_at_once_and_not_at_the_next_sweep(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    await treadle_worker(name="w1")
    await asyncio.sleep(1)
    for after in (1, 2, 3):
        faults.lose_reply(after, of="w1")
    await treadle_client.submit(a_walk(steps=1))
    assert await run_until_idle() < 10 + 2
