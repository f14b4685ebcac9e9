"""The table of refusals, continued: asking Workers why an item waits, and answering."""

from __future__ import annotations

from builders import GROUP
from store.refused import Call, plain, refusal
from store.world import World


@refusal("question", "GROUP_NOT_FOUND")
async def an_unknown_mission_is_asked_about(world: World) -> Call:
    return plain(world, "question", world.store.replid, "nowhere", "a", "why.1")


@refusal("question", "INVALID_COMMAND")
async def an_unknown_item_is_asked_about(world: World) -> Call:
    await world.mission()
    return plain(world, "question", world.store.replid, GROUP, "nobody", "why.1")


@refusal("answer", "AUTH_STALE_SESSION")
async def a_replaced_session_answers(world: World) -> Call:
    old = await world.hand(nonce="old")
    await world.hand(nonce="new")
    return plain(world, "answer", world.store.replid, "worker-1", old.session.epoch, "why.1", "NEXT - - -")


@refusal("answer", "SCHEMA_VALIDATION_FAILED")
async def an_answer_of_more_than_4_kib(world: World) -> Call:
    hand = await world.hand()
    return plain(world, "answer", world.store.replid, "worker-1", hand.session.epoch, "why.1", "N" * 4097)
