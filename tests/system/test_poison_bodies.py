"""Bodies beside an item that are gone or of another type: the item is parked or failed by name, its Worker lives (BR-55)."""

from __future__ import annotations

from typing import Any

import pytest
from fleet import until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.damage import Damage
from treadle.shared.model import EventKind, GroupId, ItemId, ItemState
from treadle.shared.store import Store, keys
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context

GROUP, LONG = GroupId("m"), "x" * 200
HOWS = ("gone", "another type")


async def work(context: Context, inputs: dict[str, Any]) -> str:
    del inputs
    if context.item == "asks" and context.resolution is None:
        for number in range(3):
            await context.checkpoint({"n": number, "long": LONG})
        raise Blocked("go on?")
    return LONG


async def harm(store: Store, item: str, body: str, how: str) -> None:
    key = keys.body(store.base(store.partition_of(GROUP)), GROUP, ItemId(item), body)
    assert await store.run(lambda redis: redis.delete(key)) == 1
    if how == "another type":
        await store.run(lambda redis: redis.rpush(key, "mine"))


async def is_in(mission: Mission, item: str, state: ItemState) -> bool:
    return (await mission.items())[item].state is state


@pytest.mark.parametrize("how", HOWS)
async def test_br_55_an_item_without_its_inputs_is_parked_and_says_so(how: str) -> None:
    endpoint = FakeEndpoint()
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        items = [WorkSpec(id=id, capability="work", inputs={"n": LONG}) for id in "abc"]
        mission = await client.submit(MissionSpec(id="m", objective="o", work=items))
        await harm(store, "a", "in", how)
        async with at_work(a_worker(endpoint, work=work)):

            async def are_done() -> bool:
                return (await mission.view()).verified == 2 and bool((await mission.items())["a"].held)

            await until(are_done, description="b and c are done, a is parked")
            view = (await mission.items())["a"]
            assert (view.held, view.damage) == ("POISON", Damage("inputs", 0, ""))
            assert "(inputs: missing)" in str(await mission.why("a"))
        assert not [event for event in await whole_log(store, "m") if event.kind is EventKind.LAPSED]
        await store.aclose()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("body", ["rv", "ck"])
async def test_br_55_an_item_without_what_it_goes_on_from_is_parked_and_says_so(how: str, body: str) -> None:
    endpoint = FakeEndpoint()
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="asks", capability="work")]))
        async with at_work(a_worker(endpoint, work=work)):
            await until(lambda: is_in(mission, "asks", ItemState.BLOCKED), description="it is blocked")
        if body == "ck":
            await harm(store, "asks", "ck0", how)
            await harm(store, "asks", "ck1", how)
        await mission.unblock("asks", LONG)
        if body == "rv":
            await harm(store, "asks", "rv", how)
        async with at_work(a_worker(endpoint, work=work)):

            async def is_parked() -> bool:
                return bool((await mission.items())["asks"].held)

            await until(is_parked, description="it is parked")
        view = (await mission.items())["asks"]
        reason, what = ("POISON", "resolution") if body == "rv" else ("CHECKPOINT", "checkpoint")
        assert (view.held, view.damage) == (reason, Damage(what, 0, ""))
        await store.aclose()


@pytest.mark.parametrize("how", HOWS)
async def test_an_item_without_the_result_it_comes_after_fails_by_name_and_the_others_are_done(how: str) -> None:
    endpoint = FakeEndpoint()
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        items = [
            WorkSpec(id="first", capability="work"),
            WorkSpec(id="next", capability="late", after=["first"]),
            WorkSpec(id="other", capability="late"),
        ]
        mission = await client.submit(MissionSpec(id="m", objective="o", work=items))
        async with at_work(a_worker(endpoint, work=work)):
            await until(lambda: is_in(mission, "first", ItemState.VERIFIED), description="the first is done")
        await harm(store, "first", "rs", how)
        async with at_work(a_worker(endpoint, late=work)):
            await until(lambda: is_in(mission, "next", ItemState.FAILED), description="the next has failed")
            await until(lambda: is_in(mission, "other", ItemState.VERIFIED), description="the other is done")
            assert "the result of 'first'" in str(await mission.why("next"))
        await store.aclose()


@pytest.mark.parametrize(
    ("field", "value"), [("need", b"gpu"), ("ckn", b"nan"), ("ckd", b"1\n2"), ("after", b"\xc1 x"), ("lex", b"soon")]
)
async def test_br_55_an_item_that_no_grant_can_tell_halts_its_group_and_its_worker_goes_on(
    field: str, value: bytes
) -> None:
    endpoint = FakeEndpoint()
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        items = [WorkSpec(id=id, capability="work") for id in "ab"]
        await client.submit(MissionSpec(id="m", objective="o", work=items))
        base = store.base(store.partition_of(GROUP))
        await store.run(lambda redis: redis.hset(keys.item(base, GROUP, ItemId("a")), field, value))
        async with at_work(a_worker(endpoint, work=work)):

            async def is_halted() -> bool:
                view = await store.mission(GROUP)
                return view is not None and view.halted == "LOG_FOREIGN"

            await until(is_halted, description="its Group is halted")
            other = await client.submit(MissionSpec(id="n", objective="o", work=items))
            assert await other.results(timeout=30) == {"a": LONG, "b": LONG}
        await store.aclose()
