"""The client of programs without an event loop: the same names, from any thread, and a clear word after a fork."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import anyio
import fakeredis
import pytest
from store.by_hand import HandWorker
from treadle.coordinator import (
    Client,
    Job,
    JobCancelled,
    JobFailed,
    Mission,
    MissionSpec,
    SyncClient,
    SyncJob,
    SyncMission,
    WorkSpec,
)
from treadle.shared.errors import Misuse, Refused, Unavailable
from treadle.shared.model import EventKind, ItemState, MissionState
from treadle.shared.store import Store
from treadle.shared.testing.faults import FaultyEndpoint
from treadle.shared.testing.store import FakeEndpoint


@pytest.fixture
def endpoint() -> Iterator[FaultyEndpoint]:
    made = FaultyEndpoint(FakeEndpoint(fakeredis.FakeServer()))
    threads = threading.active_count()
    yield made
    assert made.open == 0, f"{made.open} connections were left open"
    assert threading.active_count() == threads, "a thread was left running"


@pytest.fixture
def client(endpoint: FaultyEndpoint) -> Iterator[SyncClient]:
    with SyncClient.connect(endpoint, actor="ann") as made:
        yield made


def work(endpoint: FaultyEndpoint, mission: str, count: int = 1, *, fails: str = "") -> None:
    """End the next items of a Mission, as a Worker elsewhere does."""

    async def end() -> None:
        store = await Store.connect(endpoint)
        hand = await HandWorker.open(store)
        for _ in range(count):
            grant = await hand.take(Client.connect(endpoint).mission(mission))
            await hand.end(grant, {"done": grant.item}, fails=fails)
        await hand.authority.close_session(hand.session)
        await store.aclose()

    anyio.run(end)


def spec(id_: str = "nightly", **fields: Any) -> MissionSpec:
    return MissionSpec(id=id_, objective="index", work=[WorkSpec(id="a", capability="index")], **fields)


def test_a_mission_without_await(client: SyncClient, endpoint: FaultyEndpoint) -> None:
    mission = client.submit(spec())
    assert mission.receipt is not None
    assert (mission.id, mission.view().total, list(mission.items())) == ("nightly", 1, ["a"])
    with pytest.raises(TimeoutError, match="0 of 1 items are verified"):
        mission.results(timeout=0)
    work(endpoint, "nightly")
    assert mission.results(timeout=5) == {"a": {"done": "a"}}
    kinds = [event.kind for event in client.mission("nightly").events()]
    assert (kinds[0], kinds[-1]) == (EventKind.MISSION_CREATED, EventKind.MISSION_APPROVED)
    for event in mission.events(after=2):
        assert event.seq == 3
        break


def test_a_growing_mission_without_await(client: SyncClient) -> None:
    mission = client.submit(spec(open=True))
    assert mission.add(WorkSpec(id=name, capability="index") for name in "bcd").created == 3
    assert mission.cancel_item("b") is ItemState.CANCELLED
    mission.fail("c", "withdrawn")
    mission.retry("c")
    mission.seal()
    assert mission.cancel() is MissionState.CANCELLED


def test_a_job_without_await(client: SyncClient, endpoint: FaultyEndpoint) -> None:
    job = client.enqueue("index", {"n": 1}, account="acme", key="a", retry=0)
    assert (job.id, job.account, job.mission, job.address) == ("a", "acme", "jobs:acme", "jobs:acme/a")
    assert (job.state(), job.view().width) == (ItemState.OFFERED, 1)
    assert job.receipt is not None
    work(endpoint, "jobs:acme", fails="no such file")
    with pytest.raises(JobFailed, match="no such file"):
        job.result(timeout=5)
    job.retry()
    work(endpoint, "jobs:acme")
    assert client.job("a", account="acme").result(timeout=5) == {"done": "a"}
    many = client.enqueue_many((WorkSpec(id=f"k{n}", capability="index") for n in range(300)), account="acme")
    assert [one.id for one in many] == [f"k{n}" for n in range(300)]
    assert many[0].cancel() is ItemState.CANCELLED
    with pytest.raises(JobCancelled):
        many[0].result()
    with pytest.raises(Refused, match="other content"):
        client.enqueue("index", account="acme", key="a")


def test_schedules_and_pauses_without_await(client: SyncClient) -> None:
    assert [client.pause("account:acme"), client.pause("account:acme")] == [True, False]
    assert client.paused() == ["account:acme"]
    assert client.resume("account:acme")
    made = client.schedule(
        "nightly", "index", {"n": 1}, cron="30 2 * * *", zone="Europe/Berlin", account="acme", retry=1
    )
    assert [one.next_ms for one in client.schedules(account="acme")] == [made.next_ms]
    assert client.unschedule("nightly", account="acme")
    assert client.schedules() == []


@pytest.mark.parametrize(("sync", "plain"), [(SyncClient, Client), (SyncMission, Mission), (SyncJob, Job)])
def test_the_names_and_their_parameters_are_the_same(sync: type, plain: type) -> None:
    def face(kind: type) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_"):
                found[name] = list(inspect.signature(member).parameters) if callable(member) else []
        return found

    ours, theirs = face(sync), face(plain)
    for name, parameters in theirs.items():
        assert ours.get(name) == parameters, name
    assert ours.keys() - theirs.keys() <= {"actor", "open", "close", "id", "account", "mission", "receipt"}


def test_many_threads_share_one_client(client: SyncClient) -> None:
    def ask(number: int) -> bool | None:
        job = client.enqueue("index", {"n": number % 40}, account="acme", key=f"k{number % 40}")
        assert job.state() is ItemState.OFFERED
        assert job.receipt is not None
        return job.receipt.repeated

    client.enqueue("index", account="acme", key="first")
    with ThreadPoolExecutor(16) as pool:
        repeated = list(pool.map(ask, range(80)))
    assert (repeated.count(False), repeated.count(True)) == (40, 40)
    assert len(client.mission("jobs:acme").items()) == 41


def test_threads_that_wait_hold_no_other_up(client: SyncClient, endpoint: FaultyEndpoint) -> None:
    mission = client.submit(spec())
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(mission.results, 30) for _ in range(8)]
        assert client.submit(spec("other")).id == "other"
        work(endpoint, "nightly")
        assert [one.result(10) for one in waiting] == [{"a": {"done": "a"}}] * 8


async def test_it_works_where_an_event_loop_runs_in_the_calling_thread(endpoint: FaultyEndpoint) -> None:
    """As in a notebook's cell."""
    assert asyncio.get_running_loop().is_running()
    with SyncClient.connect(endpoint, actor="ann") as client:
        job = client.enqueue("index", key="a")
        assert job.state() is ItemState.OFFERED
        events = client.mission("jobs:ann").events()
        assert next(events).kind is EventKind.MISSION_CREATED
        events.close()


def test_it_opens_at_its_first_use_and_is_closed_for_good(endpoint: FaultyEndpoint) -> None:
    client = SyncClient.connect(endpoint, actor="ann")
    assert endpoint.trips == 0
    job = client.enqueue("index", key="a")
    client.close()
    client.close()
    for use in (job.state, lambda: client.submit(spec()), client.open):
        with pytest.raises(Misuse, match=r"^client: it is closed; make another one"):
            use()


def test_one_that_is_forgotten_closes_itself(endpoint: FaultyEndpoint) -> None:
    client = SyncClient.connect(endpoint, actor="ann").open()
    assert endpoint.open == 1
    del client
    gc.collect()
    assert endpoint.open == 0


def test_a_store_out_of_reach_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    client = SyncClient.connect("redis://127.0.0.1:1/0", actor="ann")
    with pytest.raises(Unavailable):
        client.open()
    client.close()
    assert threading.active_count() == threads


def test_closing_ends_what_other_threads_wait_for(endpoint: FaultyEndpoint) -> None:
    client = SyncClient.connect(endpoint, actor="ann")
    mission = client.submit(spec())
    with ThreadPoolExecutor(2) as pool:
        waiting: list[Future[Any]] = [pool.submit(mission.results), pool.submit(lambda: list(mission.events()))]
        time.sleep(0.2)
        client.close()
        for one in waiting:
            with pytest.raises(Misuse, match=r"^client: it"):
                one.result(10)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """As in a terminal: who was started in the background by a shell ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupted_wait_is_given_up(client: SyncClient) -> None:
    mission = client.submit(spec())
    main = threading.main_thread().ident
    assert main is not None
    began = time.monotonic()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mission.results(timeout=30)
    timer.join()
    assert time.monotonic() - began < 10
    assert mission.view().total == 1


def test_a_client_that_is_used_after_a_fork_says_what_to_do() -> None:
    program = """
import os, sys
from treadle.coordinator import SyncClient
from treadle.shared.errors import Misuse
from treadle.shared.testing.store import FakeEndpoint
client = SyncClient.connect(FakeEndpoint(), actor="ann").open()
job = client.enqueue("index", key="a")
child = os.fork()
if child == 0:
    try:
        job.state()
    except Misuse as misuse:
        print(misuse, flush=True)
    client.close()
    os._exit(0)
os.waitpid(child, 0)
print(job.state())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert ran.returncode == 0, ran.stderr
    said, state = ran.stdout.splitlines()
    assert "which was forked from it" in said
    assert said.endswith("open another one after the fork")
    assert state == "offered"
