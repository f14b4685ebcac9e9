"""What Workers learn of accounts, classes and the policy besides each reply: node lines and the envelope's version."""

from __future__ import annotations

import pytest
from builders import a_new_item
from servers import LEGS
from store.world import World, a_release, a_submit, a_take
from treadle.shared.model import Capability, NodeUsage
from treadle.shared.store import Look
from treadle.shared.store.replies import parse_usage

INDEX = [Capability("index")]


async def look(world: World, since: int = 0) -> Look:
    return (await world.authority.look({0: since}, INDEX))[0]


async def stored(world: World) -> set[NodeUsage]:
    """The service of every account and class, as the store has it."""
    packed = await world.raw.hgetall(world.key("@usage"))
    return {
        NodeUsage(0, node.decode(), parse_usage(value.decode().split()))
        for node, value in packed.items()
        if not node.startswith(b"g:")
    }


@pytest.mark.parametrize("leg", LEGS)
async def test_a_turn_tells_the_service_of_the_accounts_and_classes_it_changed(world: World) -> None:
    await world.mission("m-1", account="acme")
    await world.mission("m-2", account="beta", priority_class="batch")
    hand = await world.hand()
    assert (await hand.turn()).nodes == ()
    reply = await hand.turn(a_take("m-1"), slots=1)
    assert {one.node for one in reply.nodes} == {"a:standard:acme", "c:standard"}
    assert set(reply.nodes) == await stored(world)
    (grant,) = reply.outcomes[0].grants
    ended = await hand.turn(a_submit(grant), a_take("m-2"), slots=1)
    assert set(ended.nodes) == await stored(world)
    assert [one.node for one in ended.nodes] == ["a:batch:beta", "a:standard:acme", "c:batch", "c:standard"], (
        "in an order of their own"
    )
    assert ended.nodes[1].usage.running == 0


async def test_a_look_tells_the_nodes_that_changed_since_and_a_full_one_all(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b"), account="acme")
    await world.mission("m-2", a_new_item("a"), a_new_item("b"), account="beta")
    assert (await look(world)).nodes == (), "nobody had any"
    hand = await world.hand()
    await hand.take("m-1")
    known = await look(world)
    assert {one.node for one in known.nodes} == {"a:standard:acme", "c:standard"}
    grant = (await hand.take("m-2"))[0]
    changed = await look(world, known.version)
    assert {one.node for one in changed.nodes} == {"a:standard:beta", "c:standard"}
    assert set((await look(world)).nodes) == await stored(world)
    assert (await look(world, changed.version)).nodes == ()
    await hand.do(a_release(grant))
    assert {one.node for one in (await look(world, changed.version)).nodes} == {"a:standard:beta", "c:standard"}


async def test_a_change_that_no_directory_shows_is_told_all_the_same(world: World) -> None:
    """The last item of a Group ends: no capability has an entry to touch, and still the account's run is over."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    known = await look(world)
    await hand.do(a_submit(grant))
    changed = await look(world, known.version)
    assert changed.version > known.version
    assert {one.node: one.usage.running for one in changed.nodes} == {"a:standard:acme": 0, "c:standard": 0}


@pytest.mark.parametrize("leg", LEGS)
async def test_more_accounts_than_a_page_holds_are_told_whole(world: World) -> None:
    world.audited = False  # its rows are written beside the library
    usage = "1 0 0 0 1 0 0 0 0"
    names = [f"a:standard:account-{number:04}" for number in range(2500)]
    await world.raw.hset(world.key("@usage"), mapping=dict.fromkeys(names, usage))
    await world.raw.zadd(world.key("@nodes"), {name: 1 + number // 3 for number, name in enumerate(names)})
    await world.raw.hset(world.key("@meta"), "version", 1000)
    assert {one.node for one in (await look(world)).nodes} == set(names)
    assert len({one.node for one in (await look(world, 800)).nodes}) == 2500 - 2400


async def test_every_reply_says_which_policy_was_noted_in_its_partition(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    assert (await hand.turn()).envelope.policy == 0
    await world.raw.hset(world.key("@meta"), "policy", 7)
    assert (await hand.turn()).envelope.policy == 7
    assert (await look(world)).envelope.policy == 7
    assert (await world.authority.tick(0))[0].policy == 7
