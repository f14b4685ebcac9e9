"""A store somebody tampered with: what of it is gone or no Event's halts one Group or is said, and nobody else stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from builders import CAPABILITY, GROUP, a_new_item
from store.world import SHORT_MS, Hand, World, a_submit, a_take
from treadle.shared.errors import Corrupt, TreadleError
from treadle.shared.model import Capability, GroupId
from treadle.shared.store import keys
from treadle.shared.store.authority import capability_set

SET = capability_set([Capability(CAPABILITY)])


@pytest.fixture
async def hand(world: World) -> Hand:
    """A hand at a store with a Group whose items will be harmed, `c` waiting for `a`, and a good one."""
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", after=("a",)))
    await world.mission("good")
    return await world.hand(ttl_ms=SHORT_MS)


async def lose(world: World, item: str) -> None:
    assert await world.raw.delete(world.key(f"{GROUP}:i:{item}")) == 1


async def record(world: World) -> str:
    raw = await world.raw.hget(world.key("@groups"), GROUP)
    return str(raw.decode().split()[0])


async def test_an_offered_item_that_is_gone_halts_its_group_and_the_others_are_taken(world: World, hand: Hand) -> None:
    await lose(world, "b")
    before = await world.log()
    reply = await hand.turn(a_take(GROUP, 2), a_take("good"), slots=4)
    assert [(outcome.code, len(outcome.grants)) for outcome in reply.outcomes] == [("LOG_FOREIGN", 0), ("OK", 1)]
    assert await record(world) == "halted:LOG_FOREIGN"
    assert await world.state(item="a") == "offered", "taken before the harm was met, and not written"
    assert await world.log() == before
    assert (await hand.again()).outcomes == reply.outcomes
    assert await world.raw.zscore(world.key("@dir:index"), GROUP) is None


async def test_a_dependent_that_is_gone_halts_its_group_and_the_other_results_are_kept(
    world: World, hand: Hand
) -> None:
    (grant,), (other,) = await hand.take(), await hand.take("good")
    await lose(world, "c")
    reply = await hand.turn(a_submit(grant), a_submit(other))
    assert [outcome.code for outcome in reply.outcomes] == ["LOG_FOREIGN", "OK"]
    assert await record(world) == "halted:LOG_FOREIGN"
    assert await world.state(item="a") == "active"


async def test_a_mission_that_is_gone_halts_its_group(world: World, hand: Hand) -> None:
    (grant,), (other,) = await hand.take(), await hand.take("good")
    await world.raw.delete(world.key(f"{GROUP}:mission"))
    reply = await hand.turn(a_submit(grant), a_submit(other))
    assert [outcome.code for outcome in reply.outcomes] == ["LOG_FOREIGN", "OK"]
    assert await record(world) == "halted:LOG_FOREIGN"


@pytest.mark.parametrize("harmed", ["index", "held set"])
async def test_an_entry_no_store_wrote_halts_its_group_and_a_session_is_installed(
    harmed: str, world: World, hand: Hand
) -> None:
    await hand.take("good")
    if harmed == "index":
        await world.raw.zadd(world.key("@take:index"), {f"{GROUP} 0": 0})
        assert (await hand.do(a_take(GROUP), slots=1)).code == "LOG_FOREIGN"
    else:
        await world.raw.zadd(world.key("@held:worker-1"), {f"{GROUP} nothing": 0})
    new = await world.hand(nonce="new")
    assert [grant.group for grant in new.requeued] == ["good"]
    assert await record(world) == "halted:LOG_FOREIGN"


async def _installs(world: World, _: Hand) -> None:
    assert [grant.group for grant in (await world.hand(nonce="new")).requeued] == ["good"]


async def _closes(world: World, hand: Hand) -> None:
    await hand.close()
    assert await world.raw.hgetall(world.key("@sessions")) == {}
    assert await world.state(GroupId("good")) == "offered"


async def _ticks(world: World, _: Hand) -> None:
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await world.state(GroupId("good")) == "offered"
    await world.authority.tick(0)
    due = [member.decode() for member in await world.raw.zrange(world.key("@due"), 0, -1)]
    assert due == ["x worker-1 1"], "nothing of the halted Group comes due again and again"


@pytest.mark.parametrize("act", [_installs, _closes, _ticks])
async def test_a_held_item_that_is_gone_halts_its_group_and_a_session_goes_on(
    act: Callable[[World, Hand], Awaitable[None]], world: World, hand: Hand
) -> None:
    await hand.take()
    await hand.take("good")
    await lose(world, "a")
    await act(world, hand)
    assert await record(world) == "halted:LOG_FOREIGN"


# --- rings that nobody of ours rang ---


@pytest.mark.parametrize("entry", [b"hello", b"\xff\xfe", b"g 1 2 x", b"g 1 2 3 4", b" 1 2 3", "g 1 2 \u0663".encode()])
@pytest.mark.parametrize("list_", ["inbox", "wake"])
async def test_a_foreign_entry_of_an_inbox_or_a_token_list_is_corrupt_and_names_its_key(
    list_: str, entry: bytes, world: World
) -> None:
    world.audited = False
    hand = await world.hand()
    base = world.store.base(0)
    key = keys.inbox(base, hand.session.agent) if list_ == "inbox" else keys.wake(base, SET)
    await world.raw.delete(key, keys.wake(base, SET))
    await world.raw.rpush(key, entry)
    with pytest.raises(Corrupt) as caught:
        await world.authority.wait(hand.session, tokens=True, timeout_s=0.05)
    assert key in str(caught.value)
    assert await world.authority.wait(hand.session, tokens=True, timeout_s=0.05) is None, "it is not met twice"


async def test_an_inbox_of_another_type_is_said(world: World) -> None:
    world.audited = False
    hand = await world.hand()
    await world.raw.set(keys.inbox(world.store.base(0), hand.session.agent), "x")
    with pytest.raises(TreadleError, match="of another type than the store made it"):
        await world.authority.wait(hand.session, tokens=True, timeout_s=0.05)
    await world.raw.delete(keys.inbox(world.store.base(0), hand.session.agent))
