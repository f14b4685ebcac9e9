"""A Worker and its store, with faults between the two at the very call: inside one process, on a store in memory."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

import anyio
import fakeredis
import pytest
from fleet import until
from inside import Mortal, a_worker, at_work
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.model import AgentId, Capability, EventKind, GroupId
from treadle.shared.names import token
from treadle.shared.store import Authority, Store, keys
from treadle.shared.testing.faults import Fault, FaultyEndpoint, Trip
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

K = EventKind
TTL_S = 0.4
COMMANDS_MAX, AT_ONCE = 200, 8


def spec(*work: WorkSpec, id: str = "m") -> MissionSpec:
    return MissionSpec(id=id, objective="one process", work=work)


def item(id: str, capability: str = "work", **fields: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=capability, **fields)


async def kinds(endpoint: Any, mission: str = "m") -> Counter[EventKind]:
    store = await Store.connect(endpoint)
    try:
        return Counter(event.kind for event in await store.read_log(GroupId(token(mission, field="mission"))))
    finally:
        await store.aclose()


async def test_a_store_that_cannot_give_what_a_run_begins_with_is_no_failure_of_its_item() -> None:
    inner = FakeEndpoint()
    refused: list[int] = []

    def fault(trip: Trip) -> Fault:
        if trip.functions == ("read",) and len(refused) < 3:
            refused.append(trip.number)
            return Fault.UNSENT
        return Fault.NONE

    async def work(context: Context, inputs: dict[str, Any]) -> list[Any]:  # noqa: ARG001
        return [context.attempt, dict(context.results)]

    async with at_work(a_worker(FaultyEndpoint(inner, fault), work=work)), Client.connect(inner, actor="ann") as client:
        mission = await client.submit(spec(item("a"), item("b", after=["a"])))
        assert await mission.results(timeout=30) == {"a": [1, {}], "b": [1, {"a": [1, {}]}]}
    assert len(refused) == 3


async def test_a_write_whose_lease_is_over_is_refused_and_its_handler_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing renews while the loop is blocked (`renew_in="task"`), so the handler's own write comes first."""
    endpoint = FakeEndpoint()
    said: list[str] = []

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        if context.attempt == 1:
            time.sleep(0.6)  # noqa: ASYNC251 - the point of it
            try:
                await context.checkpoint({"late": True})
                said.append("stored")
            finally:
                said.append(f"cancelled: {context.cancelled}")
        assert context.checkpoint_state == {}
        return context.attempt

    worker = a_worker(endpoint, ttl_s=0.3, renew_in="task", work=work)
    with caplog.at_level(logging.WARNING):
        async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
            mission = await client.submit(spec(item("a")))
            assert await mission.results(timeout=30) == {"a": 2}
    assert said == ["cancelled: True"]
    assert [record.message for record in caplog.records if "m/a: lease lost" in record.message]


async def test_what_led_to_a_run_does_not_end_it_when_it_is_read_late() -> None:
    """The doorbell of a lapse is never heard, so the Group's log is read behind the start of the next run in it."""
    inner = FakeEndpoint()
    endpoint = FaultyEndpoint(inner, lambda trip: Fault.UNSENT if trip.commands[0][0] == "BLPOP" else Fault.NONE)
    runs: Counter[str] = Counter()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        runs[context.item] += 1
        await anyio.sleep(30 if runs.total() == 1 else 0.3)
        return context.attempt

    async with at_work(a_worker(endpoint, slots=1, work=work)), Client.connect(inner, actor="ann") as client:
        mission = await client.submit(spec(item("a"), item("b")))
        await until(lambda: runs, description="a run")
        heard, endpoint.fault = endpoint.fault, lambda _: Fault.UNSENT
        store = await Store.connect(inner)

        async def has_lapsed() -> bool:
            await store.call("tick", store.partition_of(mission.group), (256,))
            return (await kinds(inner))[K.LAPSED] == 1

        await until(has_lapsed, description="the lease lapsed while its holder was cut off")
        await store.aclose()
        endpoint.fault = heard
        assert await mission.results(timeout=30) == {"a": 2, "b": 1}


@pytest.mark.parametrize("end", ["SystemExit", "KeyError", "no bytes", "its own cancellation"])
async def test_whatever_a_handler_does_is_its_items_outcome_and_never_the_workers(end: str) -> None:
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        match end:
            case "SystemExit":
                raise SystemExit(3)
            case "KeyError":
                raise KeyError("k")
            case "no bytes":
                return object()
            case _:
                raise anyio.get_cancelled_exc_class()

    async def other(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return 7

    async with at_work(a_worker(endpoint, work=work, other=other)), Client.connect(endpoint, actor="ann") as client:
        with pytest.raises(MissionFailed, match='"m" failed: a: '):
            await (await client.submit(spec(item("a", retry=0)))).results(timeout=30)
        assert await (await client.submit(spec(item("a", "other"), id="n"))).results(timeout=30) == {"a": 7}


async def test_a_handler_may_save_from_several_tasks_and_give_up_waiting_for_one() -> None:
    inner = FakeEndpoint()
    slow = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> list[Any]:  # noqa: ARG001
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(context.checkpoint, {"task": number})
        with anyio.move_on_after(0):
            await context.checkpoint({"given up": True})
        await context.checkpoint({"last": True})
        await context.checkpoint({"last": True})
        slow.set()
        return [context.attempt, context.checkpoint_state]

    async with at_work(a_worker(inner, work=work)), Client.connect(inner, actor="ann") as client:
        mission = await client.submit(spec(item("a")))
        assert await mission.results(timeout=30) == {"a": [1, {"last": True}]}
        saved = [event async for event in mission.events() if event.kind is K.PROGRESS_SAVED]
    assert [event.get("number") for event in saved] == [str(number) for number in range(1, 8)]


async def test_a_worker_whose_store_fails_it_while_it_takes_over_an_older_ones_work_goes_on() -> None:
    inner = FakeEndpoint()
    hold = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        if context.attempt == 1:
            await hold.wait()
        return context.attempt

    async with Client.connect(inner, actor="ann") as client:
        mission = await client.submit(spec(item("a")))
        mortal = Mortal(inner, 10_000)
        with anyio.CancelScope() as first:
            async with at_work(a_worker(mortal, work=work, renew_in="task")):

                async def runs() -> bool:
                    return (await kinds(inner))[K.STARTED] == 1

                await until(runs, description="the item runs")
                mortal.spend(10_000)
                first.cancel()
        cut: list[int] = []

        def fault(trip: Trip) -> Fault:
            if "tail" in trip.functions and len(cut) < 2:
                cut.append(trip.number)
                return Fault.UNSENT
            return Fault.NONE

        async with at_work(a_worker(FaultyEndpoint(inner, fault), ttl_s=5, work=work)):
            assert await mission.results(timeout=4) == {"a": 2}
    assert len(cut) == 2


async def test_what_a_new_runtime_cannot_run_is_given_back_at_once() -> None:
    """An older runtime of the same name held an item of a capability, and one of a width, that this one has not."""
    inner = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> int:
        if context.worker == "one" and context.attempt == 1:
            await anyio.sleep_forever()
        return int(inputs["n"])

    mission_spec = spec(
        item("a", "old", inputs={"n": 1}), item("b", inputs={"n": 2}, slots=2), item("c", inputs={"n": 3})
    )
    async with Client.connect(inner, actor="ann") as client:
        mission = await client.submit(mission_spec)
        mortal = Mortal(inner, 10_000)
        with anyio.CancelScope() as first:
            async with at_work(a_worker(mortal, slots=4, work=work, old=work, renew_in="task")):

                async def runs() -> bool:
                    return (await kinds(inner))[K.STARTED] == 3

                await until(runs, description="all run")
                mortal.spend(10_000)
                first.cancel()
        two = a_worker(inner, "two", slots=4, work=work, old=work)
        async with at_work(a_worker(inner, slots=1, work=work), two):
            assert await mission.results(timeout=30) == {"a": 1, "b": 2, "c": 3}


async def test_what_a_full_worker_leaves_wakes_another_that_comes_to_listen_only_then() -> None:
    """The token of what is left must not be swallowed by the Worker that left it, however soon it listens again."""
    inner = FakeEndpoint()
    hold = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        await hold.wait()

    async with Client.connect(inner, actor="ann") as client:
        store = await Store.connect(inner)
        authority = Authority(store)
        session, _ = await authority.open_session(AgentId("two"), [Capability("work")], lease_ttl_ms=10_000, nonce="n")
        async with at_work(a_worker(inner, slots=1, ttl_s=10, work=work)):
            mission = await client.submit(spec(item("a"), item("b")))

            async def runs() -> bool:
                return (await kinds(inner))[K.STARTED] == 1

            await until(runs, description="the first Worker is full")
            woken: set[int] = set()
            home = store.partition_of(mission.group)
            for _ in range(store.partitions):  # a timer's token has its partition looked at like one of work
                wake = await authority.wait(session, tokens=True, timeout_s=2)
                assert wake is not None
                assert wake.token in (f"work {mission.group} 0", "- - 0")
                woken.add(wake.partition)
                if home in woken:
                    break
            assert home in woken
            hold.set()
            await mission.results(timeout=10)
        await authority.aclose()
        await store.aclose()


async def test_a_pattern_of_missions_leaves_the_others_alone_whatever_they_are_called() -> None:
    inner = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        return context.worker

    async with Client.connect(inner, actor="ann") as client:
        odd = await client.submit(spec(item("{1}:i 2/3"), id="team/ä {0}:*"))
        other = await client.submit(spec(item("a"), id="other"))
        async with at_work(a_worker(inner, "wörker {1}", groups="team/*", work=work)):
            assert await odd.results(timeout=30) == {"{1}:i 2/3": "wörker {1}"}
            with pytest.raises(TimeoutError):
                await other.results(timeout=0.1)
        async with at_work(a_worker(inner, work=work)):
            assert await other.results(timeout=30) == {"a": "one"}


# --- BR-11: after each single command of the claim path ---


def standing(endpoint: FakeEndpoint, name: str) -> set[str]:
    """What the store says of an item: everything that is true of it at once."""
    with fakeredis.FakeRedis(server=endpoint.server) as client:
        (key,) = client.keys(f"*:m:i:{name}")
        state = client.hget(key, "st").decode()
        base = key.decode().removesuffix(f"m:i:{name}")
        takeable = [member.decode() for member in client.zrange(f"{base}@take:work", 0, -1)]
        due = {member.decode() for member in client.zrange(f"{base}@due", 0, -1)}
        held = [member.decode() for key in client.keys(f"{base}@held:*") for member in client.zrange(key, 0, -1)]
    found = {
        "runnable": any(member.startswith("m ") and member.endswith(f":{name}") for member in takeable),
        "leased and expiring": f"l m {name}" in due,
        "accepted and expiring": f"s m {name}" in due,
        "held": f"m {name}" in held,
        f"state {state}": True,
    }
    return {what for what, is_so in found.items() if is_so}


ALLOWED: tuple[set[str], ...] = (
    {"runnable", "state offered"},
    {"leased and expiring", "held", "state active"},
    {"accepted and expiring", "held", "state queued"},
    {"state verified"},
)


async def live_and_die(lives: int) -> str:
    """A Worker with so many commands to live, then a healthy one; how the item stood in between."""
    endpoint = FakeEndpoint()
    store = await Store.connect(endpoint, partitions=2)
    await store.aclose()
    ended: list[int] = []

    async def work(context: Context, inputs: dict[str, Any]) -> list[Any]:  # noqa: ARG001
        state = dict(context.checkpoint_state)
        await context.checkpoint({"saved by": context.attempt})
        ended.append(context.attempt)
        return [context.attempt, state]

    async with Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(spec(item("a", start_by_s=1)))
        mortal = Mortal(endpoint, lives)
        worker = a_worker(mortal, ttl_s=TTL_S, renew_in="task", work=work)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await until(lambda: mortal.dead.is_set() or ended_in(endpoint), description="it dies or ends the item")
            tasks.cancel_scope.cancel()
        stood = standing(endpoint, "a")
        assert stood in ALLOWED, f"killed after command {lives}: {stood}"
        # The same name again takes over at once; another waits until the lease is over. Neither waits for more.
        name = "one" if lives % 2 else "two"
        async with at_work(a_worker(endpoint, name, ttl_s=TTL_S, work=work)):
            results = await mission.results(timeout=TTL_S + 5)
        log = [event async for event in mission.events()]
    starts = [event for event in log if event.kind is K.STARTED]
    saves = [event for event in log if event.kind is K.PROGRESS_SAVED]
    attempt, state = results["a"]
    assert attempt == len(starts), f"killed after command {lives}: {results} of {len(starts)} starts"
    assert len(starts) <= 2
    # What was saved before the kill, and only that, was there after it.
    assert state == ({"saved by": 1} if len(saves) == 2 else {}), f"killed after command {lives}"
    assert [event.kind for event in log].count(K.RESULT_ACCEPTED) == 1
    assert standing(endpoint, "a") == {"state verified"}
    return next(what for what in stood if what.startswith("state "))


def ended_in(endpoint: FakeEndpoint) -> bool:
    return standing(endpoint, "a") == {"state verified"}


@pytest.mark.slow
async def test_br_11_killed_after_any_command_of_the_claim_path_the_item_is_runnable_or_leased_never_both_or_neither() -> (
    None
):
    stood: dict[int, str] = {}

    async def live(lives: int) -> None:
        stood[lives] = await live_and_die(lives)

    for first in range(1, COMMANDS_MAX, AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for lives in range(first, first + AT_ONCE):
                tasks.start_soon(live, lives)
        if all(stood[lives] == "state verified" for lives in range(first, first + AT_ONCE)):
            break
    # Not by number: under load a renewal or a sweep may come in between.
    tried = set(stood.values())
    assert tried == {"state offered", "state active", "state verified"}, f"{stood}: not the whole path was tried"


async def test_whatever_stands_in_an_inbox_its_worker_goes_on() -> None:
    """A doorbell is a hint: one that cannot be read is passed over, and the directory says what there is to do."""
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return 1

    async with at_work(a_worker(endpoint, work=work)), Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        raw = fakeredis.FakeAsyncRedis(server=endpoint.server)
        for partition in range(0, store.partitions, 4):
            for entry in (b"not a bell", b"\xff\xfe", b"m 1 x 2", b""):
                await raw.rpush(keys.inbox(store.base(partition), "one"), entry)
        mission = await client.submit(spec(item("a")))
        assert await mission.results(timeout=30) == {"a": 1}
        await raw.aclose()
        await store.aclose()
