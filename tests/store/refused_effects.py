"""The table of refusals goes on: what effects of items are refused with, besides what all operations of a run are."""

from __future__ import annotations

from builders import GROUP
from store.refused import HALT, LANE, Call, refusal
from store.refused_operations import outcome_of
from store.world import Hand, World, a_begin, a_commit
from treadle.shared import codec
from treadle.shared.model import Grant

EFFECTS_MAX = 256


async def _begun(world: World) -> tuple[Hand, Grant]:
    """A started item that has begun an effect."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    assert (await hand.do(a_begin(grant))).code == "OK"
    return hand, grant


def _halted(name: str) -> None:
    @refusal(name, "LOG_REBORN", *LANE)
    async def of_a_group_whose_log_was_gone(world: World) -> Call:
        hand, grant = await _begun(world)
        await world.raw.hset(world.key("@groups"), GROUP, "halted:LOG_REBORN 1 acme standard 1")
        make = a_begin if name == "effect" else a_commit
        return lambda: outcome_of(hand, make(grant))

    @refusal(name, "LOG_FOREIGN", *HALT)
    async def of_an_item_whose_effects_are_gone(world: World) -> Call:
        """What was done could be done again."""
        world.audited = False
        hand, grant = await _begun(world)
        await world.raw.delete(world.key(f"{GROUP}:ef:a"))
        make = a_begin if name == "effect" else a_commit
        return lambda: outcome_of(hand, make(grant))


for _name in ("effect", "commit"):
    _halted(_name)


@refusal("effect", "LOG_FOREIGN", *HALT)
async def of_an_item_whose_effects_are_of_another_type(world: World) -> Call:
    world.audited = False
    hand, grant = await _begun(world)
    await world.raw.delete(world.key(f"{GROUP}:ef:a"))
    await world.raw.set(world.key(f"{GROUP}:ef:a"), "something else")
    return lambda: outcome_of(hand, a_begin(grant))


@refusal("effect", "LOG_FOREIGN", *HALT)
async def of_an_effect_that_stands_as_no_store_wrote_it(world: World) -> Call:
    world.audited = False
    hand, grant = await _begun(world)
    await world.raw.hset(world.key(f"{GROUP}:ef:a"), "send-invoice", "perhaps")
    return lambda: outcome_of(hand, a_begin(grant))


def _named(name: str, effect: str) -> None:
    async def wrong(world: World) -> Call:
        hand, grant = await _begun(world)
        return lambda: outcome_of(hand, a_begin(grant, effect))

    wrong.__name__ = name
    refusal("effect", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_named("an_effect_without_a_name", "")
_named("an_effect_whose_name_is_no_token", "two words")
_named("an_effect_with_an_epoch_that_is_no_number", "send/one")
_named("an_effect_whose_name_is_beyond_its_bound", "n" * 2401)


@refusal("effect", "QUOTA_EXCEEDED", *LANE)
async def one_effect_more_than_an_item_may_have(world: World) -> Call:
    hand, grant = await _begun(world)
    for start in range(1, EFFECTS_MAX, 51):
        reply = await hand.turn(*(a_begin(grant, f"effect-{number}") for number in range(start, start + 51)))
        assert {outcome.code for outcome in reply.outcomes} == {"OK"}
    return lambda: outcome_of(hand, a_begin(grant, "one-more"))


@refusal("commit", "REVISION_CONFLICT", *LANE)
async def an_effect_that_was_never_begun(world: World) -> Call:
    hand, grant = await _begun(world)
    return lambda: outcome_of(hand, a_commit(grant, "another"))


@refusal("commit", "SCHEMA_VALIDATION_FAILED", *LANE)
async def a_result_of_an_effect_beyond_its_bound(world: World) -> Call:
    hand, grant = await _begun(world)
    return lambda: outcome_of(hand, a_commit(grant, result=b"x" * (codec.EFFECT_MAX + 1)))
