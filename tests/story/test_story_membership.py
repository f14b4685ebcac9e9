"""Story: a Worker is a member of each Group it works in, and of nothing else; it is kept out of one and works on in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from fleet import until
from inside import Start
from servers import LEGS, emptied
from treadle.coordinator import Client, Ended, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.store import RedisEndpoint
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

GROUPS = 1_000
told: list[tuple[str, str, str]] = []
"""Who did what, and how it ended: mission, worker, what was said."""


@handler("long")
async def long(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
    told.append((context.mission, context.worker, "begins"))
    try:
        for step in range(context.checkpoint_state.get("next", 0), 400):
            if (context.mission, "goes on") in released:
                return context.worker
            await context.checkpoint({"next": step + 1})
            await anyio.sleep(0.01)
    except anyio.get_cancelled_exc_class():
        told.append((context.mission, context.worker, f"stopped, lost={context.cancelled}"))
        raise
    return context.worker


released: set[tuple[str, str]] = set()


def check_own(context: Context) -> None:
    """Whatever is there is this item's own: what an earlier attempt of it saved, and what it was given."""
    assert context.checkpoint_state.get("of", [context.mission, context.item]) == [context.mission, context.item]
    assert context.inputs == {"of": context.mission}


@handler("first")
async def first(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    check_own(context)
    await context.checkpoint({"of": [context.mission, "a"]})
    return {"of": context.mission, "given": inputs["of"]}


@handler("second")
async def second(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    check_own(context)
    await context.checkpoint({"of": [context.mission, "b"]})
    return {"of": context.mission, "given": inputs["of"], "before": dict(context.results)}


async def test_r06_who_is_kept_out_of_one_mission_stops_there_at_once_and_works_on_in_others(
    store: FakeEndpoint, start: Start
) -> None:
    told.clear()
    released.clear()
    async with Client.connect(store, actor="ann") as client, start("one", slots=2):
        here = await client.submit(MissionSpec(id="here", objective="o", work=[WorkSpec(id="a", capability="long")]))
        there = await client.submit(MissionSpec(id="there", objective="o", work=[WorkSpec(id="a", capability="long")]))
        await until(lambda: len(told) == 2, description="both are begun")
        assert await here.revoke("one", reason="not its business") == Ended(was_member=True, items=1, repeated=False)
        await until(lambda: len(told) == 3, description="its handler is stopped")
        assert told[-1] == ("here", "one", "stopped, lost=True")
        async with start("two"):
            await until(lambda: len(told) == 4, description="another one has it")
            assert told[-1] == ("here", "two", "begins")
            released.update({("here", "goes on"), ("there", "goes on")})
            assert await here.results(timeout=5) == {"a": "two"}
            assert await there.results(timeout=5) == {"a": "one"}, "elsewhere nothing was disturbed"
        ended = [event async for event in here.events() if event.kind is EventKind.MEMBERSHIP_ENDED]
    assert [(event.by, event.get("agent"), event.get("reason")) for event in ended] == [
        ("ann", "one", "not%20its%20business")
    ]


async def test_r06_who_is_let_in_again_takes_work_again_without_a_new_session(
    store: FakeEndpoint, start: Start
) -> None:
    told.clear()
    released.clear()
    async with Client.connect(store, actor="ann") as client, start("one"):
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="long")]))
        await until(lambda: len(told) == 1, description="it is begun")
        await mission.revoke("one")
        await until(lambda: len(told) == 2, description="its handler is stopped")
        await anyio.sleep(0.3)
        assert len(told) == 2, "it does not come back by itself"
        released.add(("m", "goes on"))
        assert await mission.admit("one")
        assert not await mission.admit("one")
        assert await mission.results(timeout=5) == {"a": "one"}


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_c1_a_thousand_groups_in_one_worker_never_see_each_others_contexts(
    running: Callable[[str], EmbeddedServer], start: Start
) -> None:
    """The same item ids in all of them, so that whatever were mixed would be found there. On a real server: it is much."""
    url = emptied(running(LEGS[0]))
    async with Client.connect(url, actor="ann") as client:
        missions = []
        for number in range(GROUPS):
            name = f"m-{number}"
            work = [
                WorkSpec(id="a", capability="first", inputs={"of": name}),
                WorkSpec(id="b", capability="second", inputs={"of": name}, after=["a"]),
            ]
            missions.append(await client.submit(MissionSpec(id=name, objective="o", work=work)))
        async with start("one", slots=32, through=RedisEndpoint(url)):
            for mission in missions:
                given = {"of": mission.id, "given": mission.id}
                wanted = {"a": given, "b": {**given, "before": {"a": given}}}
                assert await mission.results(timeout=200) == wanted
