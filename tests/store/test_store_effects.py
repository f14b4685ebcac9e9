"""What an item's runs do outside the store is noted with it: begun once, recorded once, told to whoever repeats it."""

from __future__ import annotations

from builders import GROUP, a_new_item
from store.world import SHORT_MS, World, a_begin, a_commit, a_fail, a_release, a_submit, a_take, a_yield, differences
from treadle.shared import codec
from treadle.shared.model import GroupId
from treadle.shared.store import commands, events_of, repairing, sizes, verifying

KEY = f"{GROUP}:ef:a"


async def test_an_effect_is_new_then_begun_and_in_the_end_recorded_with_its_result(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    codes = [(await hand.do(a_begin(grant))).code for _ in range(2)]
    assert codes == ["OK", "REPEATED"]
    assert (await hand.do(a_commit(grant, result=b"no. 17"))).code == "OK"
    told = await hand.do(a_begin(grant))
    assert (told.code, told.result, told.done, told.seq) == ("STORED", b"no. 17", True, None)


async def test_s6_the_first_result_stands_and_is_told_to_whoever_brings_another(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    reply = await hand.turn(a_begin(grant), a_commit(grant), a_commit(grant), a_commit(grant, result=b"again"))
    assert [outcome.code for outcome in reply.outcomes] == ["OK", "OK", "REPEATED", "STORED"]
    assert reply.outcomes[-1].result == b"sent"


async def test_effects_of_one_turn_are_told_with_its_grants_each_with_its_own_bytes(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", inputs=b"b" * 100))
    hand = await world.hand()
    grant = await hand.started()
    long = bytes(range(256)) * 256
    await hand.turn(a_begin(grant), a_commit(grant), a_begin(grant, "other"), a_commit(grant, "other", long))
    reply = await hand.turn(a_begin(grant, "other"), a_take(), a_begin(grant), slots=1)
    other, taken, sent = reply.outcomes
    assert (other.result, sent.result) == (long, b"sent")
    assert [granted.inputs for granted in taken.grants] == [b"b" * 100]


async def test_a_lost_reply_is_answered_alike_with_the_result(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.turn(a_begin(grant), a_commit(grant))
    first = await hand.turn(a_begin(grant), a_commit(grant, result=b"another"))
    before = await world.dump()
    assert (await hand.again()).outcomes == first.outcomes
    assert differences(before, await world.dump()) == []


async def test_s6_the_next_run_is_told_whatever_ended_the_one_before(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    grant = await hand.started()
    await hand.turn(a_begin(grant), a_commit(grant), a_begin(grant, "unknown"))
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    rival = await world.hand("worker-2")
    for end in (lambda grant: a_yield(grant, keep=False), a_release):
        again = await rival.started()
        told = await rival.turn(a_begin(again), a_begin(again, "unknown"))
        assert [(outcome.code, outcome.result) for outcome in told.outcomes] == [
            ("STORED", b"sent"),
            ("REPEATED", None),
        ]
        await rival.do(end(again))
    assert (await hand.do(a_commit(grant, "unknown"))).code == "WORK_STALE_OWNERSHIP", "a zombie records nothing"


async def test_effects_stay_where_a_failed_item_is_tried_again_by_a_person(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.started()
    await hand.turn(a_begin(grant), a_commit(grant), a_fail(grant))
    await commands.retry(world.store, grant.group, grant.item, actor="ana", action="1")
    assert (await hand.do(a_begin(await hand.started()))).result == b"sent"


async def test_a_name_with_an_epoch_is_another_effect_in_each_ownership(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.turn(a_begin(grant, "send/1"), a_commit(grant, "send/1"), a_release(grant))
    again = await hand.started()
    assert [(await hand.do(a_begin(again, name))).code for name in ("send/2", "send", "send/1")] == [
        "OK",
        "OK",
        "STORED",
    ]


async def test_s27_an_item_has_256_effects_and_those_it_has_are_still_told(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    codes: list[str] = []
    for start in range(0, 300, 50):
        reply = await hand.turn(*(a_begin(grant, f"effect-{number}") for number in range(start, start + 50)))
        codes += [outcome.code for outcome in reply.outcomes]
    assert codes == ["OK"] * 256 + ["QUOTA_EXCEEDED"] * 44
    assert (await hand.do(a_commit(grant, "effect-255", b"x" * codec.EFFECT_MAX))).code == "OK"
    assert (await hand.do(a_begin(grant, "effect-255"))).result == b"x" * codec.EFFECT_MAX


async def test_effects_append_no_event_and_are_none_of_the_callers(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    before = await world.kinds()
    reply = await hand.turn(a_begin(grant), a_commit(grant))
    assert await world.kinds() == before
    assert hand.last is not None
    assert events_of(hand.last, hand.session, reply) == {}


async def test_an_item_without_effects_has_no_key_of_them_and_one_with_them_loses_it_when_it_is_buried(
    world: World,
) -> None:
    group = await world.mission(keep_results_s=0)
    hand = await world.hand()
    grant = await hand.started()
    assert await world.raw.exists(world.key(KEY)) == 0
    await hand.turn(a_begin(grant), a_commit(grant, result=b"x" * 1000))
    measured = await sizes.sizes(world.store, [group])
    await hand.do(a_submit(grant))
    for _ in range(9):
        await world.authority.tick(0)
    assert await world.raw.exists(world.key(KEY)) == 0
    assert not measured or measured[group] > 1000


async def test_a_group_whose_effects_are_gone_is_found_by_verify_and_its_item_is_failed_by_repair(world: World) -> None:
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.started()
    await hand.turn(a_begin(grant), a_commit(grant))
    await world.raw.delete(world.key(KEY))
    found = await verifying.verify(world.store, GroupId(GROUP))
    assert [(one.where, one.found) for one in found.differences if one.where == "a"] == [("a", "damaged")]
    assert (await hand.do(a_begin(grant))).code == "LOG_FOREIGN"
    await repairing.repair(world.store, GroupId(GROUP), actor="ana", reason="asked", drop_damaged=True)
    assert (await world.state(), await world.state(item="b")) == ("failed", "offered")
