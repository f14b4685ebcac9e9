"""Each function appends the Events that its contract lists, and no others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.contracts import OPERATIONS, contracts
from store.scheduled import a_schedule, standing
from store.world import (
    PREFIX,
    World,
    a_block,
    a_disclosure,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_word,
    a_yield,
    an_ask,
)
from treadle.shared.errors import TreadleError
from treadle.shared.model import AgentId, Event, GroupId, ItemId, Priority, Urgency
from treadle.shared.schedules import Interval
from treadle.shared.store import Accept, Decline, Store, archiving, commands, repairing, snapshots
from treadle.shared.store.connection import Call
from treadle.shared.store.timetable import schedule

Happy = Callable[[World], Awaitable[None]]


async def _take(world: World) -> None:
    await world.mission()
    await (await world.hand()).started()


async def _start(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.restarted(await hand.accepted())


async def _progress(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_word(await hand.started(), phase="upload"))


async def _disclose(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_disclosure(await hand.started()))


async def _save(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_save(await hand.started()))


async def _yield(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_yield(grant))
    await hand.do(a_yield(await hand.restarted(grant), 2, keep=False))


async def _ask_yield(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(an_ask(await hand.started()))


async def _release(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_release(await hand.accepted()))
    await hand.do(a_release(await hand.started()))
    await hand.do(a_release(await hand.started(), "CHECKPOINT"))


async def _submit(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b", after=["a"]))
    await world.mission("m-2", a_new_item("a"), a_new_item("b"))
    await world.mission("m-3", a_new_item("a"), a_new_item("b", after=["a"], gates="approval"))
    hand = await world.hand()
    for _ in range(2):
        await hand.do(a_submit(await hand.started()))
    await hand.do(a_fail(await hand.started("m-2")))
    await hand.do(a_submit(await hand.started("m-2")))
    await hand.do(a_submit(await hand.started("m-3")))


async def _block(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_block(await hand.started()))


async def _unblock(world: World) -> None:
    said = {"actor": "ana", "digest": "d", "resolution": b"r"}
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_block(grant, ttl_ms=1000))
    await commands.unblock(world.store, GROUP, ItemId("a"), action="1", **said)  # type: ignore[arg-type]
    await hand.do(a_block(await hand.restarted(grant), 2, ttl_ms=1000))
    await world.pass_ms(1001)
    await commands.unblock(world.store, GROUP, ItemId("a"), action="2", **said)  # type: ignore[arg-type]


async def _fail(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="1 0 0"))
    hand = await world.hand()
    again = replace(a_fail(await hand.started()), retryable=True)
    await hand.do(again)
    await hand.do(a_fail(await hand.started()))


async def _create(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b", gates="approval"))


async def _install_session(world: World) -> None:
    await world.mission()
    await (await world.hand(nonce="old")).accepted()
    await world.hand(nonce="new")
    await world.mission("m-2", replace(a_new_item("b"), retry="1 0 0"))
    for number in range(5):
        hand = await world.hand("killed", nonce=str(number))
        for grant in hand.requeued or await hand.take("m-2"):
            if grant.lease is None:
                await hand.do(a_start(grant))
    await world.hand("killed", nonce="last")


async def _add(world: World) -> None:
    mission = replace(a_new_mission(), items=(), open=True)
    await world.store.create(mission)
    await commands.add(world.store, GROUP, [replace(a_new_item(), digest="d")], actor="ana")
    unapproved = replace(a_new_item("b", gates="approval"), digest="d")
    await commands.add(world.store, GROUP, [unapproved], actor="ana")


async def _approve(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval"))
    assert await commands.approve(world.store, GROUP, ItemId("a"), actor="ana", reason="seen")


async def _seal(world: World) -> None:
    for name, item in (("m-1", None), ("m-2", "a")):
        group = (await world.store.create(replace(a_new_mission(name), items=(), open=True))).group
        if item is not None:
            await commands.add(world.store, group, [replace(a_new_item(item), digest="d")], actor="ana")
            await _failed_by_command(world, group)
        await commands.seal(world.store, group, actor="ana")


async def _failed_by_command(world: World, group: GroupId) -> None:
    await commands.fail_item(world.store, group, ItemId("a"), actor="ana", digest="d", evidence=b"e")


async def _fail_item(world: World) -> None:
    await _cancel_or_fail(world, _failed_by_command)


async def _cancel(world: World) -> None:
    async def cancel(world: World, group: GroupId) -> None:
        await commands.cancel(world.store, group, ItemId("a"), actor="ana", reason="r")

    await _cancel_or_fail(world, cancel)
    await world.mission("m-3")
    await commands.cancel(world.store, GroupId("m-3"), None, actor="ana", reason="r")


async def _cancel_or_fail(world: World, command: Callable[[World, GroupId], Awaitable[None]]) -> None:
    """Of one item that waits, the whole of its Mission; of another that waits for its second attempt."""
    await world.mission("m-1")
    await command(world, GroupId("m-1"))
    await world.mission("m-2", replace(a_new_item(), retry="1 60000 60000"))
    hand = await world.hand()
    await hand.do(replace(a_fail(await hand.started("m-2")), retryable=True))
    await command(world, GroupId("m-2"))


async def _retry(world: World) -> None:
    await _add(world)
    await _failed_by_command(world, GROUP)
    await commands.retry(world.store, GROUP, ItemId("a"), actor="ana", action="1")


async def _offer(world: World) -> None:
    await world.mission(GROUP, a_new_item(start_by_s=1))
    await (await world.hand()).accepted()
    await world.pass_ms(1001)
    await commands.offer(world.store, GROUP, ItemId("a"), "- 0", actor="ana", action="1")


async def _prioritise(world: World) -> None:
    await world.mission()
    to = Priority(Urgency.HIGH)
    await commands.prioritise(world.store, GROUP, ItemId("a"), to, actor="ana", action="1")


async def _accept(world: World) -> None:
    await world.mission()
    await (await world.hand()).do(Accept(GROUP, ItemId("a")))


async def _decline(world: World) -> None:
    await world.mission(GROUP, a_new_item(offer="preferred:worker-1 60000"))
    await (await world.hand()).do(Decline(GROUP, ItemId("a"), "capacity"))


async def _archived(world: World) -> None:
    group = await world.mission()
    await commands.cancel(world.store, group, None, actor="ana", reason="r")
    for _ in range(3):
        await world.authority.tick(0)
    seq = (await world.log(group))[-1].seq
    await archiving.record(world.store, group, seq=seq, digest="a1" * 32, actor="ana")


async def _end_membership(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.accepted()
    await commands.end_membership(world.store, GROUP, hand.session.agent, actor="ana", reason="r")


async def _admit(world: World) -> None:
    await _end_membership(world)
    await commands.admit(world.store, GROUP, AgentId("worker-1"), actor="ana")


async def _close_session(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.accepted()
    await hand.close()


async def _repair(world: World) -> None:
    world.audited = False
    await world.mission()
    await repairing.halt(world.store, GROUP)
    await repairing.repair(world.store, GROUP, actor="ana", reason="disk")


async def _tick(world: World) -> None:
    await world.mission("m-1")
    await world.mission("m-2", a_new_item("a"), a_new_item("b", after=["a"]))
    await world.mission("m-3", a_new_item("a"), *(a_new_item(f"d{n}", after=["a"]) for n in range(70)))
    await world.mission("m-4")
    waiting = (a_new_item(f"d{n}", after=["a", "b"]) for n in range(70))
    await world.mission("m-5", a_new_item("a"), a_new_item("b"), *waiting)
    hand = await world.hand()
    one, two = await hand.take("m-5", 2)
    await hand.turn(a_fail(one), a_submit(two))
    await hand.do(a_fail(await hand.started("m-2")))
    await hand.do(a_submit(await hand.started("m-3")))
    await world.mission("m-6", replace(a_new_item(), retry="9 60000 60000"), a_new_item("b"))
    await hand.do(replace(a_fail(await hand.started("m-6")), retryable=True))
    await commands.cancel(world.store, GroupId("m-6"), None, actor="ana", reason="r")
    await world.mission("m-7", replace(a_new_item(), retry="9 0 0"))
    for number in range(5):
        killed = await world.hand("killed", nonce=str(number), ttl_ms=100)
        await killed.started("m-7")
        await world.pass_ms(101)
        await world.authority.tick(0)
    growing = replace(a_new_mission("m-8"), items=(), open=True, keep_results_s=1)
    await world.store.create(growing)
    await commands.add(world.store, growing.group, [replace(a_new_item(), digest="d")], actor="ana")
    await _failed_by_command(world, growing.group)
    sleeper = await world.hand("sleeper", ttl_ms=100)  # opened last: its session must not be over before its lease
    await sleeper.started("m-1")
    await sleeper.accepted("m-4")
    await world.mission("m-9")
    await hand.do(an_ask(await hand.started("m-9"), overdue_ms=100))
    await world.pass_ms(1001)
    for _ in range(20):
        await world.authority.tick(0)


async def _fire(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await world.pass_ms(1000)
    await world.authority.tick(0)


async def _snapshot(world: World) -> None:
    await snapshots.create(world.store, await world.mission())


HAPPY: dict[str, Happy] = {
    "create": _create,
    "fire": _fire,
    "install_session": _install_session,
    "close_session": _close_session,
    "add": _add,
    "seal": _seal,
    "cancel": _cancel,
    "fail_item": _fail_item,
    "retry": _retry,
    "approve": _approve,
    "snapshot": _snapshot,
    "offer": _offer,
    "prioritise": _prioritise,
    "archived": _archived,
    "end_membership": _end_membership,
    "admit": _admit,
    "repair": _repair,
    "tick": _tick,
    "take": _take,
    "accept": _accept,
    "decline": _decline,
    "start": _start,
    "disclose": _disclose,
    "progress": _progress,
    "save": _save,
    "yield": _yield,
    "ask_yield": _ask_yield,
    "block": _block,
    "unblock": _unblock,
    "release": _release,
    "submit": _submit,
    "fail": _fail,
}


def test_everything_that_appends_events_is_tried() -> None:
    appends = {name for name, contract in contracts().items() if contract.words("events")}
    assert appends == HAPPY.keys()


def allowed(calls: Sequence[Call]) -> set[str]:
    """The Events that the contracts of these functions, and of the operations in them, speak of."""
    listed = contracts()
    names = {call[0] for call in calls}
    parts = {part for call in calls if call[0] == "turn" for part in call[2]}
    names |= {name for name in OPERATIONS if name.encode() in parts}
    return {event for name in names for event in listed[name].words("events")}


@pytest.mark.parametrize("name", HAPPY)
async def test_each_function_appends_the_events_of_its_contract_and_no_others(name: str, world: World) -> None:
    carry_out = world.store.link.calls
    reader = await Store.connect(world.endpoint, prefix=PREFIX)

    async def logs() -> list[Event]:
        return [event for view in await reader.missions() for event in await reader.read_log(view.group)]

    async def watched(calls: Sequence[Call]) -> list[list[bytes] | TreadleError]:
        before = await logs()
        answers = await carry_out(calls)
        new = {event.kind.value for event in await logs() if event not in before}
        assert new <= allowed(calls), f"{[call[0] for call in calls]} appended {new - allowed(calls)}"
        return answers

    world.store.link.calls = watched  # type: ignore[method-assign]  # it watches every call of this store
    try:
        await HAPPY[name](world)
        assert set(contracts()[name].words("events")) <= {event.kind.value for event in await logs()}
    finally:
        await reader.aclose()
