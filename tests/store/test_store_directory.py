"""How Workers learn that there is work: the versioned directory, wake tokens, doorbells (design.md 3.6, 3.7)."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from servers import LEGS
from store.world import SHORT_MS, Hand, World, a_fail, a_release, a_save, a_submit, a_take, a_yield
from treadle.shared.model import Capability, GroupId, Usage
from treadle.shared.store import Look, Operation
from treadle.shared.store.authority import capability_set

INDEX = [Capability("index")]


async def look(world: World, since: int = 0, *capabilities: str) -> Look:
    named = [Capability(name) for name in capabilities] or INDEX
    return (await world.authority.look({0: since}, named))[0]


def shown(found: Look) -> dict[str, int]:
    return {entry.group: entry.takeable for entry in found.entries}


async def tokens(world: World, hand: Hand) -> list[str]:
    key = world.key(f"@wake:{capability_set(hand.session.capabilities)}")
    return [token.decode() for token in await world.raw.lrange(key, 0, -1)]


async def emptied(world: World, *hands: Hand) -> None:
    """Take the tokens away: a new session is told that something is due, its own end."""
    for hand in hands:
        await world.raw.delete(world.key(f"@wake:{capability_set(hand.session.capabilities)}"))


# --- look ---


async def test_looking_from_nothing_gives_everything_takeable(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a"]))
    await world.mission("m-2", a_new_item("a", capability="audit"), a_new_item("b"), weight=2.5, account="beta")
    found = await look(world)
    assert (found.full, shown(found)) == (True, {"m-1": 2, "m-2": 1})
    entry = next(entry for entry in found.entries if entry.group == "m-2")
    assert (entry.account, entry.weight, entry.priority_class, entry.code) == ("beta", 2.5, "standard", "")
    assert entry.usage == Usage(entry=1, entry_ms=entry.usage.entry_ms)
    assert shown(await look(world, 0, "audit")) == {"m-2": 1}
    both = await look(world, 0, "audit", "index")
    assert [(entry.group, entry.capability) for entry in both.entries] == [
        ("m-2", "audit"),
        ("m-1", "index"),
        ("m-2", "index"),
    ]


async def test_looking_again_gives_only_what_changed_since(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b"))
    await world.mission("m-2")
    known = await look(world)
    again = await look(world, known.version)
    assert (again.full, again.entries, again.version) == (False, (), known.version)
    hand = await world.hand()
    await hand.take("m-1")
    changes = await look(world, known.version)
    assert (changes.full, shown(changes)) == (False, {"m-1": 1})
    assert changes.entries[0].usage.running == 1
    assert (await look(world, changes.version)).entries == ()


async def test_a_group_that_was_emptied_leaves_a_tombstone_and_comes_back_as_a_new_entry(world: World) -> None:
    await world.mission()
    known = await look(world)
    hand = await world.hand()
    grant = await hand.started()
    gone = await look(world, known.version)
    assert shown(gone) == {GROUP: 0}
    assert shown(await look(world)) == {}, "who knows nothing needs no tombstones"
    await world.pass_ms(3)
    await hand.do(a_release(grant))
    back = await look(world, gone.version)
    assert shown(back) == {GROUP: 1}
    assert len((await look(world, known.version)).entries) == 1, "its tombstone is gone"
    before, after = known.entries[0].usage, back.entries[0].usage
    assert after.entry == before.entry + 1, "an entry of its own, so that it gets a tag of its own"
    assert after.entry_ms > before.entry_ms
    assert not after.served


@pytest.mark.parametrize("how", ["submit", "fail", "yield", "only save"])
async def test_the_service_of_a_group_is_fresh_in_the_directory_whenever_a_run_ends(how: str, world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.started()
    known = await look(world)
    await world.pass_ms(7)
    operations: dict[str, Operation] = {
        "submit": a_submit(grant),
        "fail": a_fail(grant),
        "yield": a_yield(grant),
        "only save": a_save(grant),
    }
    await hand.turn(operations[how])
    changed = (await look(world, known.version)).entries
    if how == "only save":
        assert changed == ()
    else:
        assert changed[0].usage.running == 0
        assert changed[0].usage.used_ms >= 7


async def test_the_first_accept_after_an_entry_lifts_the_group_and_no_later_one(world: World) -> None:
    """Scheduler, rule 3: once an entry, and never down."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), weight=2.0)
    hand = await world.hand()
    await hand.turn(a_take(offset=5000), slots=1)
    usage = (await look(world)).entries[0].usage
    assert (usage.offset, usage.served) == (5000, True)
    await hand.turn(a_take(offset=9000), slots=1)
    packed = (await world.raw.hget(world.key("@usage"), f"g:{GROUP}")).split()
    assert packed[5] == b"5000", "the second accept of the same entry carries none"


@pytest.mark.parametrize(
    ("sets", "to", "reached"), [(5000, 200, 200), (5000, -700, -700), (5000, 8000, 8000), (4999, 200, 5000)]
)
async def test_a_lag_is_set_at_any_accept_that_finds_the_offset_as_it_was(
    world: World, sets: int, to: int, reached: int
) -> None:
    """Scheduler, rule 7: up or down, and once: whoever reckoned from another offset changes nothing."""
    await world.mission(GROUP, *(a_new_item(item) for item in "abcd"), weight=2.0)
    hand = await world.hand()
    await hand.turn(a_take(offset=5000), slots=1)
    await hand.turn(a_take(most=2, offset=to, sets=sets), slots=2)
    usage = (await look(world)).entries[0].usage
    assert (usage.offset, usage.served) == (reached, True)
    await hand.turn(a_take(offset=9000, sets=sets), slots=1)
    packed = (await world.raw.hget(world.key("@usage"), f"g:{GROUP}")).split()
    assert int(packed[5]) == (9000 if reached == sets else reached)


async def test_a_lag_lifts_where_it_cannot_be_set_but_the_entry_is_new(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await hand.turn(a_take(offset=300, sets=77), slots=1)
    usage = (await look(world)).entries[0].usage
    assert (usage.offset, usage.served) == (300, True)


@pytest.mark.slow
@pytest.mark.parametrize("leg", LEGS)
async def test_a_directory_longer_than_a_page_is_read_whole(world: World) -> None:
    names = [f"g-{number:04}" for number in range(1100)]
    for name in names:
        await world.mission(name)
    known = await look(world)
    assert known.full
    assert sorted({entry.group for entry in known.entries}) == names
    assert len(known.entries) <= 1100 + 3, "where a page ends, an entry may come twice"
    assert (await look(world, known.version)).entries == ()
    hand = await world.hand()
    for start in range(0, 1088, 64):
        await hand.turn(*(a_take(name) for name in names[start : start + 64]), slots=64)
    changes = await look(world, known.version)
    assert (changes.full, len(changes.entries)) == (True, 12), "more tombstones than are kept: the list comes whole"


async def test_a_directory_of_many_rows_and_capabilities_is_read_whole(world: World) -> None:
    """More pages than one, and more rows in a page than `unpack` takes at once."""
    world.audited = False  # its rows are written beside the library, which takes seconds for so many
    capabilities = [f"c{number}" for number in range(21)]
    for capability in capabilities:
        await world.raw.zadd(world.key(f"@dir:{capability}"), {f"{capability}-{n}": n + 1 for n in range(600)})
    await world.raw.hset(world.key("@meta"), "version", 600)
    found = await look(world, 0, *capabilities)
    assert (found.full, found.version) == (True, 600)
    assert len({(entry.group, entry.capability) for entry in found.entries}) == 600 * 21
    assert (await look(world, 600, *capabilities)).entries == ()
    assert len((await look(world, 590, *capabilities)).entries) == 10 * 21


async def test_a_reader_below_the_floor_of_tombstones_gets_the_whole_list(world: World) -> None:
    await world.mission("stays")
    await world.mission("goes")
    known = await look(world)
    hand = await world.hand()
    await hand.take("goes")
    assert not (await look(world, known.version)).full
    await world.raw.hset(world.key("@meta"), "floor", known.version + 1)
    again = await look(world, known.version)
    assert (again.full, shown(again)) == (True, {"stays": 1})
    assert not (await look(world, known.version + 1)).full


# --- tokens ---


async def test_new_work_pushes_one_token_onto_an_empty_list_and_no_more(world: World) -> None:
    hand = await world.hand()
    await emptied(world, hand)
    await world.mission("m-1")
    await world.mission("m-2")
    assert await tokens(world, hand) == ["index m-1 0"]


async def test_each_set_of_capabilities_that_offers_it_is_woken_and_no_other(world: World) -> None:
    one, two, other = (
        await world.hand("worker-1", "index"),
        await world.hand("worker-2", "audit", "index"),
        await world.hand("worker-3", "audit"),
    )
    await emptied(world, one, two, other)
    await world.mission()
    assert [await tokens(world, hand) for hand in (one, two, other)] == [[f"index {GROUP} 0"]] * 2 + [[]]


async def test_who_takes_some_and_leaves_some_pushes_on(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await emptied(world, hand)
    await hand.turn(a_take(), slots=1, token=f"index {GROUP} 0")
    assert await tokens(world, hand) == [f"index {GROUP} 0"]
    await emptied(world, hand)
    await hand.turn(a_take(), slots=1)
    assert f"index {GROUP} 0" not in await tokens(world, hand), "nothing was left"


async def test_released_dependents_wake_somebody(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", after=["a"]))
    hand = await world.hand()
    grant = await hand.started()
    await emptied(world, hand)
    await hand.do(a_submit(grant))
    assert await tokens(world, hand) == [f"index {GROUP} 0"]


async def test_a_token_that_leads_to_nothing_is_handed_on_and_ends_after_every_live_session(world: World) -> None:
    """Else two Workers that may not take hand one token round for ever (design.md 3.7)."""
    hands = [await world.hand(f"worker-{number}") for number in range(3)]
    await emptied(world, *hands)
    await world.mission()
    seen = []
    for number in range(9):
        (token,) = await tokens(world, hands[0]) or [""]
        if not token:
            break
        seen.append(token)
        await emptied(world, hands[0])
        await hands[number % 3].turn(token=token)
    assert seen == [f"index {GROUP} {hop}" for hop in range(3)]


@pytest.mark.parametrize("token", ["index nowhere 0", "audit m-1 0", "- - 0", "nonsense", "index m-1 x"])
async def test_a_token_for_nothing_is_not_handed_on(token: str, world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await world.hand("worker-2")
    await emptied(world, hand)
    await hand.turn(token=token)
    assert await tokens(world, hand) == []


async def test_waiting_gives_the_token_and_each_doorbell(world: World) -> None:
    hand = await world.hand()
    await emptied(world, hand)
    await world.mission()
    wake = await world.authority.wait(hand.session, tokens=True, timeout_s=5)
    assert wake is not None
    assert (wake.partition, wake.token, wake.bell) == (0, f"index {GROUP} 0", None)
    await world.raw.rpush(world.key("@inbox:worker-1"), f"{GROUP} 5 6 7")
    await world.raw.pexpire(world.key("@inbox:worker-1"), 60_000)
    wake = await world.authority.wait(hand.session, tokens=True, timeout_s=5)
    assert wake is not None
    assert wake.bell is not None
    assert (wake.token, wake.bell.previous, wake.bell.first, wake.bell.last) == (None, 5, 6, 7)
    assert await world.authority.wait(hand.session, tokens=True, timeout_s=0.05) is None


async def test_a_busy_worker_leaves_the_token_for_an_idle_one(world: World) -> None:
    hand = await world.hand()
    await emptied(world, hand)
    await world.mission()
    assert await world.authority.wait(hand.session, tokens=False, timeout_s=0.05) is None
    assert await tokens(world, hand) == [f"index {GROUP} 0"]


async def test_a_longer_wait_than_the_first_is_waited_out(world: World) -> None:
    """The socket's time-out is the block time and a margin, of each wait and not of the first."""
    hand = await world.hand()
    await emptied(world, hand)
    assert await world.authority.wait(hand.session, tokens=True, timeout_s=0.01) is None
    await world.mission()
    wake = await world.authority.wait(hand.session, tokens=True, timeout_s=30)
    assert wake is not None
    assert wake.token == f"index {GROUP} 0"


async def test_an_inbox_is_bounded_and_ends_by_itself(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(f"i{number}", start_by_s=1) for number in range(4)))
    key = world.key("@inbox:worker-1")
    await world.raw.rpush(key, *["old 0 1 1"] * 1000)
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.take(most=4)
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await world.raw.llen(key) == 1000
    assert (await world.raw.lrange(key, -1, -1))[0].startswith(GROUP.encode())
    assert 0 < await world.raw.pttl(key) <= 3_600_000


async def test_items_of_several_groups_ring_one_doorbell_a_group(world: World) -> None:
    for name in ("m-1", "m-2"):
        await world.mission(name, a_new_item("a"), a_new_item("b"))
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.take("m-1", 2)
    await hand.take("m-2", 2)
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    rung = [entry.split()[0] for entry in await world.raw.lrange(world.key("@inbox:worker-1"), 0, -1)]
    assert sorted(rung) == [b"m-1", b"m-2"]
    for name in ("m-1", "m-2"):
        assert (await world.kinds(GroupId(name))).count("work.lease_lapsed") == 2
