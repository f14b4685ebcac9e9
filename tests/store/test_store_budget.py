"""A Mission's budget of slot-time: nothing more of it starts once it is spent, and what runs goes on."""

from __future__ import annotations

from builders import CAPABILITY, GROUP, a_new_item
from store.world import World, a_submit, a_take
from treadle.coordinator.core.gates import Code, explain
from treadle.shared.model import GroupId, ItemId, MissionState
from treadle.shared.store import commands, pictures


async def gates(world: World, item: str) -> list[Code]:
    facts = await pictures.why(world.store, GroupId(GROUP), ItemId(item))
    assert facts is not None
    return [gate.code for gate in explain(facts)]


async def test_what_runs_ends_well_and_nothing_more_starts_of_what_has_spent_its_budget(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name, width=2) for name in "abc"), budget_ms=100)
    hand = await world.hand()
    one, two = await hand.take(most=2)
    await world.pass_ms(26)
    assert Code.BUDGET in await gates(world, "c"), "two runs of two slots each"
    reply = await hand.turn(a_submit(one), a_submit(two), a_take(), slots=9)
    assert [outcome.code for outcome in reply.outcomes] == ["OK", "OK", "BUDGET_EXCEEDED"]
    (entry,) = reply.entries
    assert (entry.takeable, entry.code) == (0, "BUDGET_EXCEEDED"), "so that a Worker goes on with other Groups"
    look = (await world.authority.look({0: 0}, [CAPABILITY]))[0]
    assert [(one.takeable, one.code) for one in look.entries] == [(0, "BUDGET_EXCEEDED")]
    (view,) = await world.store.missions()
    assert (view.state, view.verified, view.budget_ms) == (MissionState.ACTIVE, 2, 100)


async def test_one_without_a_budget_and_one_with_some_left_go_on(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b"))
    await world.mission("m-2", a_new_item("a"), a_new_item("b"), budget_ms=600_000)
    hand = await world.hand()
    for group in ("m-1", "m-2"):
        await hand.started(group)
        await world.pass_ms(20)
        await hand.started(group)


async def test_a_budget_is_kept_while_others_are_kept_out_and_let_in(world: World) -> None:
    """Both stand in the record of the Group."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), budget_ms=10)
    hand = await world.hand()
    await hand.started()
    await commands.end_membership(world.store, GroupId(GROUP), hand.session.agent, actor="ana", reason="r")
    await world.pass_ms(11)
    other = await world.hand("worker-2")
    await other.started()
    await world.pass_ms(11)
    assert (await other.do(a_take(), slots=1)).code == "BUDGET_EXCEEDED"
