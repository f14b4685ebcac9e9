"""Story 8. Work may be offered to some Workers by name: they decline what they cannot do, and others are not asked in vain."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import Event, EventKind, ItemState, Session
from treadle.shared.store import Accept, Authority, Take, Turn
from treadle.worker import Context, handler
from treadle.worker.testing import Workers

Idle = Callable[..., Awaitable[float]]


@handler("piece")
async def piece(context: Context, inputs: dict[str, Any]) -> str:
    await asyncio.sleep(inputs.get("seconds", 0))
    return context.item


@handler("other")
async def other(context: Context, _: dict[str, Any]) -> str:
    return context.item


async def told(client: Client, mission: str, kind: EventKind) -> list[Event]:
    found = client.mission(mission)
    view = await found.view()
    return [event for event in await _all(found.events(), view.last_seq) if event.kind is kind]


async def _all(events: Any, last: int) -> list[Event]:
    found: list[Event] = []
    async for event in events:
        found.append(event)
        if event.seq >= last:
            break
    return found


async def test_what_is_offered_by_name_is_done_by_those_who_are_named(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    for name in ("w1", "w2", "w3"):
        await treadle_worker(name=name)
    work = [WorkSpec(id=f"i{n}", capability="piece", offer_to=["w2", "w3"], offer="named") for n in range(6)]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="by name", work=work))
    await run_until_idle()
    assert len(await mission.results()) == 6
    accepted = await told(treadle_client, "m", EventKind.ACCEPTED)
    assert {event.by.partition("@")[0] for event in accepted} <= {"w2", "w3"}
    assert {event.get("basis") for event in accepted} == {"named"}


async def test_what_a_worker_cannot_do_it_declines_at_once_and_says_why(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    await treadle_worker({"piece": piece}, name="narrow")
    await treadle_worker(name="wide", slots=2)
    soon = datetime.now(UTC) + timedelta(hours=1)
    work = [
        WorkSpec(id="unknown", capability="other", offer_to=["narrow"], offer_s=600),
        WorkSpec(id="wide", capability="piece", slots=2, offer_to=["narrow"], offer_s=600),
        WorkSpec(id="good", capability="piece", deadline=soon, offer_to=["narrow"], offer_s=600),
    ]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="by name", work=work))
    assert await run_until_idle() < 60, "nobody waits for an offer that was declined"
    assert len(await mission.results()) == 3
    declined = {
        str(event.item): event.get("reason") for event in await told(treadle_client, "m", EventKind.OFFER_DECLINED)
    }
    assert declined == {"unknown": "capability", "wide": "capacity"}
    by = {str(event.item): event.by.partition("@")[0] for event in await told(treadle_client, "m", EventKind.ACCEPTED)}
    assert by == {"unknown": "wide", "wide": "wide", "good": "narrow"}


async def test_a_mission_a_worker_does_not_work_for_is_declined_as_not_authorized(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    await treadle_worker(name="theirs", groups="team/*")
    work = [WorkSpec(id="a", capability="piece", offer_to=["theirs"], offer="named")]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="by name", work=work))
    with pytest.raises(TimeoutError):
        await mission.results(timeout=5)
    (event,) = await told(treadle_client, "m", EventKind.OFFER_DECLINED)
    assert event.get("reason") == "authorization"
    assert (await mission.items())["a"].state is ItemState.OFFERED
    await treadle_worker(name="ours")
    await mission.offer("a", ["ours"])
    await run_until_idle()
    assert (await mission.items())["a"].state is ItemState.VERIFIED


async def test_an_offer_to_workers_that_are_not_there_is_everybodys_when_its_time_is_over(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    await treadle_worker(name="w1")
    work = [WorkSpec(id="a", capability="piece", offer_to=["gone", "lost"], offer_s=30)]
    await treadle_client.submit(MissionSpec(id="m", objective="by name", work=work))
    assert 30 <= await run_until_idle() < 40
    causes = [event.get("cause") for event in await told(treadle_client, "m", EventKind.OFFERED)]
    assert causes == ["created", "expired"]


def _of_version(version: str) -> Any:
    async def newer(context: Context, _: dict[str, Any]) -> str:
        return context.item

    return handler("newer", version=version)(newer)


async def test_work_that_asks_for_a_version_goes_to_workers_that_have_it(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle, caplog: pytest.LogCaptureFixture
) -> None:
    await treadle_worker(_of_version("1.2.9"), name="old")
    wanted = {"any": None, "early": "1.1.0", "late": "1.3.0", "next": "2.0.0"}
    work = [WorkSpec(id=item, capability="newer", version=version) for item, version in wanted.items()]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="versions", work=work))
    assert "no live Worker offers newer 1.3.0 or a later 1.x, newer 2.0.0 or a later 2.x" in caplog.text
    await mission.cancel_item("next")
    await asyncio.sleep(30)
    states = {name: item.state for name, item in (await mission.items()).items()}
    assert (states["any"], states["early"], states["late"]) == (
        ItemState.VERIFIED,
        ItemState.VERIFIED,
        ItemState.OFFERED,
    )
    await treadle_worker(_of_version("1.4.2"), name="new")
    await run_until_idle()
    by = {str(event.item): event.by.partition("@")[0] for event in await told(treadle_client, "m", EventKind.ACCEPTED)}
    assert by == {"any": "old", "early": "old", "late": "new"}


async def test_what_comes_behind_an_item_that_is_too_wide_for_an_idle_worker_is_done(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(name="narrow")
    mission = await treadle_client.submit(MissionSpec(id="m", objective="it grows", work=[], open=True))
    await mission.add([WorkSpec(id="wide", capability="piece", slots=4, urgency="critical")])
    await asyncio.sleep(30)
    await mission.add([WorkSpec(id="small", capability="piece")])
    await asyncio.sleep(30)
    states = {name: item.state for name, item in (await mission.items()).items()}
    assert states == {"wide": ItemState.OFFERED, "small": ItemState.VERIFIED}


async def test_what_was_offered_by_name_while_its_capability_was_paused_is_done_when_it_is_resumed(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(name="w1")
    await treadle_client.pause("capability:piece")
    work = [WorkSpec(id="a", capability="piece", offer_to=["w1"], offer="named")]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="by name", work=work))
    await asyncio.sleep(30)
    assert (await mission.items())["a"].state is ItemState.OFFERED
    await treadle_client.resume("capability:piece")
    assert await mission.results(timeout=30) == {"a": "a"}


async def test_one_new_item_wakes_few_of_many_idle_workers(treadle_client: Client, treadle_worker: Workers) -> None:
    """R24: 32 Workers wait for work of one kind; at most 3 of them ask for the one item that comes."""
    for number in range(32):
        await treadle_worker(name=f"idle{number}")
    await asyncio.sleep(30)
    asked: Counter[str] = Counter()
    turns = Authority.turns

    async def counted(self: Authority, session: Session, sent: Sequence[Turn]) -> Any:
        for turn in sent:
            asked[session.agent] += sum(isinstance(one, Take | Accept) for one in turn.operations)
        return await turns(self, session, sent)

    with mock.patch.object(Authority, "turns", counted):
        job = await treadle_client.enqueue("piece")
        assert await job.result(timeout=60)
        await asyncio.sleep(30)
    assert sum(asked.values()) <= 3, asked
