"""Schedules and pauses through the SDK: jobs that come by themselves, and work that waits until it is resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from store.by_hand import HandWorker
from store.world import PREFIX, World
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import ItemState
from treadle.shared.names import name_of


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


@pytest.fixture
async def hand(world: World) -> HandWorker:
    return await HandWorker.open(world.store)


async def test_a_schedule_enqueues_a_job_at_each_tick(client: Client, hand: HandWorker, world: World) -> None:
    if world.is_real:
        pytest.skip("a minute of a real server's time is a minute")
    made = await client.schedule("pulse", "index", {"n": 1}, every=timedelta(minutes=1), account="acme", retry=7)
    assert not made.repeated
    (seen,) = await client.schedules(account="acme")
    assert (seen.schedule, seen.next_ms, seen.fired) == ("pulse", made.next_ms, 0)
    for _ in range(2):
        await world.pass_ms(60_000)
        await hand.tick(client.mission("jobs:acme"))
    jobs = [client.job(name, account="acme") for name in await client.mission("jobs:acme").items()]
    assert [job.id for job in jobs] == [f"pulse@{made.next_ms}", f"pulse@{made.next_ms + 60_000}"]
    hand = await HandWorker.open(world.store, nonce="later")
    await hand.end(await hand.take(jobs[0]), fails="busy", retryable=True)
    assert not (await jobs[0].view()).has_ended
    await jobs[0].retry()
    await hand.end_next(jobs[0])
    assert await jobs[0].result(timeout=0) == {"done": jobs[0].id.replace("@", "%40")}
    assert await client.unschedule("pulse", account="acme")
    assert not await client.unschedule("pulse", account="acme")
    assert await client.schedules() == []
    assert await jobs[1].state() is ItemState.OFFERED


async def test_the_same_schedule_again_changes_nothing_and_another_must_be_meant(client: Client) -> None:
    async def make(cron: str = "30 2 * * *", **fields: Any) -> bool:
        return (await client.schedule("nightly", "index", cron=cron, account="acme", **fields)).repeated

    assert [await make(zone="Europe/Berlin"), await make(zone="Europe/Berlin")] == [False, True]
    with pytest.raises(
        Refused, match=r"schedule 'nightly' of account 'acme' is there with other content; give replace=True"
    ):
        await make("0 4 * * *")
    assert not await make("0 4 * * *", replace=True)
    (seen,) = await client.schedules()
    assert (name_of(seen.group), seen.actor) == ("jobs:acme", "ann")
    assert datetime.fromtimestamp(seen.next_ms / 1000, UTC).hour == 4
    assert not await client.unschedule("nightly", account="nobody")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, 'schedule: give one of cron="30 2 * * *" and every=timedelta(minutes=5)'),
        ({"cron": "* * * * *", "every": 60}, "schedule: give one of cron="),
        ({"cron": "0 0 31 2 *"}, "cron: '0 0 31 2 *' never fires"),
        ({"cron": "61 * * * *"}, "cron: minute '61' of '61 * * * *' is not valid; it takes 0 to 59"),
        ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "zone: 'Mars/Olympus' is no time zone"),
        ({"every": 0.5}, "every: 0.5 s, must be 1 s to 366 days"),
        ({"every": float("nan")}, "every: a value of type float must be a timedelta, or a number of seconds"),
        ({"every": "60"}, "every: a value of type str must be a timedelta"),
        ({"every": 60, "missed": "some"}, "missed: 'some', must be one of one, all"),
        ({"every": 60, "deadline": datetime(2100, 1, 1, tzinfo=UTC)}, "deadline: is of one job and not of a schedule"),
        ({"every": 60, "not_before": timedelta(1)}, "not_before: is of one job and not of a schedule; leave it out"),
        ({"every": 60, "slots": 0}, 'WorkSpec (id "nightly"): slots: 0 must be 1 to 1,024'),
        ({"every": 60, "inputs": {"n": 2**64}}, 'job (key "nightly"): inputs.n: 18446744073709551616 is outside'),
    ],
)
async def test_a_wrong_schedule_is_named_and_nothing_is_written(
    client: Client, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misuse) as caught:
        await client.schedule("nightly", "index", account="acme", **fields)
    assert str(caught.value).startswith(said)
    assert await client.schedules() == []


@pytest.mark.parametrize("what", ["all", "account:acme", "capability:index", "mission:m"])
async def test_what_is_paused_does_not_start_until_it_is_resumed(client: Client, hand: HandWorker, what: str) -> None:
    work = [WorkSpec(id=name, capability="index") for name in "ab"]
    mission = await client.submit(MissionSpec(id="m", objective="x", work=work, account="acme"))
    running = await hand.take(mission)
    assert [await client.pause(what), await client.pause(what)] == [True, False]
    assert await client.paused() == [what]
    assert await hand.has_nothing(mission)
    assert (await hand.end(running, 1)).code == "OK"
    with pytest.raises(TimeoutError, match="1 of 2 items are verified"):
        await mission.results(timeout=0)
    assert [await client.resume(what), await client.resume(what)] == [True, False]
    assert await client.paused() == []
    await hand.end_next(mission)
    assert (await mission.results(timeout=5)).keys() == {"a", "b"}


@pytest.mark.parametrize("what", ["everything", "account:", "account", "capability:No Such!", "mission:nope"])
async def test_what_cannot_be_paused_is_said(client: Client, what: str) -> None:
    with pytest.raises((Misuse, Refused)):
        await client.pause(what)
    assert await client.paused() == []


async def test_a_mission_offers_items_to_workers_by_name_and_a_person_offers_them_anew(
    client: Client, world: World
) -> None:
    mission = await client.submit(
        MissionSpec(
            objective="o",
            work=[
                WorkSpec(id="a", capability="index", offer_to=["w é"], offer="named", offer_s=0.1),
                WorkSpec(id="b", capability="index", offer_to=["worker-1"]),
            ],
        )
    )
    items = await mission.items()
    a, b = items["a"].offer, items["b"].offer
    assert a is not None
    assert b is not None
    assert (a.mode, [name_of(agent) for agent in a.asked]) == ("named", ["w é"])
    assert (b.mode, b.asked) == ("preferred", ("worker-1",))
    await world.pass_ms(101)
    over = (await mission.items())["a"].offer
    assert over is not None
    assert over.is_over
    await mission.offer("a", ["worker-1"], mode="named")
    hand = await world.hand()
    await hand.take(mission.group, 2, capability=">worker-1")
    with pytest.raises(Refused, match=r'item "a" of mission ".*" is active at Worker "worker-1"; cancel it, or offer'):
        await mission.offer("a")
    await mission.cancel_item("b")
    with pytest.raises(Refused, match="is cancelled and cannot be offered any more"):
        await mission.offer("b")
    with pytest.raises(Misuse, match='offer: "named" without offer_to'):
        await mission.offer("a", mode="named")


async def test_a_mission_prioritises_its_items(client: Client, world: World) -> None:
    mission = await client.submit(
        MissionSpec(objective="o", work=[WorkSpec(id=item, capability="index") for item in "abc"])
    )
    by = datetime.fromtimestamp(await world.store.now_ms() // 1000, UTC) + timedelta(hours=2)
    assert await mission.prioritise("c", urgency="critical", deadline=by, business_impact=7) == "offered"
    view = (await mission.items())["c"]
    assert (view.urgency, view.deadline_ms // 1000) == ("critical", int(by.timestamp()))
    await mission.prioritise("c", deadline="none")
    view = (await mission.items())["c"]
    assert (view.urgency, view.deadline_ms) == ("critical", 0)
    hand = await world.hand()
    assert [grant.item for grant in await hand.take(mission.group)] == ["c"]
    await mission.cancel_item("b")
    with pytest.raises(Refused, match=r'item "b" of mission ".*" is cancelled and cannot be prioritised any more'):
        await mission.prioritise("b", urgency="high")
    with pytest.raises(Refused, match=r'item "nobody" of mission ".*" is not there'):
        await mission.prioritise("nobody", urgency="high")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "give urgency, deadline or business_impact"),
        ({"urgency": "urgent"}, "urgency: 'urgent' must be one of critical, high, normal, routine"),
        ({"business_impact": 100_000}, "business_impact: 100000 must be 0 to 99,999"),
        ({"deadline": datetime(2030, 1, 1)}, "has no time zone"),
        ({"deadline": datetime(2020, 1, 1, tzinfo=UTC)}, "is in the past"),
        ({"deadline": 5}, "is not a datetime"),
    ],
)
async def test_a_priority_that_is_none_is_said(client: Client, fields: dict[str, Any], said: str) -> None:
    mission = await client.submit(MissionSpec(objective="o", work=[WorkSpec(id="a", capability="index")]))
    with pytest.raises(Misuse, match=said):
        await mission.prioritise("a", **fields)
    assert (await mission.items())["a"].urgency == "normal"


async def test_what_waits_for_others_is_not_offered_before_them(client: Client) -> None:
    work = [WorkSpec(id="a", capability="index"), WorkSpec(id="b", capability="index", after=["a"])]
    mission = await client.submit(MissionSpec(objective="o", work=work))
    with pytest.raises(Refused, match=r"waits for others \(`treadle why` names them\)"):
        await mission.offer("b")


async def test_a_schedule_offers_to_everybody(client: Client) -> None:
    with pytest.raises(Misuse, match="offer_to: what a schedule starts is offered to everybody"):
        await client.schedule("pulse", "index", every=60, account="acme", offer_to=["worker-1"])
