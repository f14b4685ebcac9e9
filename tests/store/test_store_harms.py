"""Whatever is done to a Group behind the store's back is found by the next that writes or reads, and no other Group stops."""

from __future__ import annotations

import logging

import pytest
from builders import CAPABILITY, GROUP, OTHER, a_new_item, an_event
from store.harms import DAMAGE, garble
from store.world import SHORT_MS, Hand, World, a_submit, a_take, a_word
from treadle.shared import codec
from treadle.shared.errors import Corrupt
from treadle.shared.model import AgentId, EventKind, Grant, GroupId
from treadle.shared.store import snapshots, verifying
from treadle.shared.store.authority import capability_set
from treadle.worker.core.inbox import HELD_EVENTS_MAX, LINKS_MAX, Inbox

GOOD = GroupId("good")


async def begun(world: World, *, ttl_ms: int = SHORT_MS) -> tuple[Hand, Grant, Grant]:
    """A Group to be harmed with one item that runs, and one of a Group that nobody harms."""
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", after=("a",)))
    await world.mission(GOOD, a_new_item("a"), a_new_item("b"))
    hand = await world.hand(ttl_ms=ttl_ms)
    (bad,), (good,) = await hand.take(), await hand.take(GOOD)
    return hand, bad, good


async def halted(world: World) -> str:
    raw = await world.raw.hget(world.key("@groups"), GROUP)
    return str(raw.decode().split()[0])


@pytest.mark.parametrize("name", DAMAGE)
async def test_s12_whoever_writes_next_is_told_and_the_group_is_halted_and_others_go_on(
    name: str, world: World
) -> None:
    hand, bad, good = await begun(world)
    await DAMAGE[name].harm(world)
    reply = await hand.turn(a_submit(bad), a_submit(good), a_take(GOOD))
    assert [outcome.code for outcome in reply.outcomes] == [DAMAGE[name].writer, "OK", "OK"]
    if DAMAGE[name].writer.startswith("LOG_"):
        assert await halted(world) == f"halted:{DAMAGE[name].writer}"
    assert [event.seq for event in await world.log(GOOD)] == list(range(1, len(await world.log(GOOD)) + 1))


@pytest.mark.parametrize("name", DAMAGE)
async def test_s12_a_reader_says_the_sequences_and_never_skips_one(name: str, world: World) -> None:
    await begun(world)
    await DAMAGE[name].harm(world)
    if DAMAGE[name].reader:
        with pytest.raises(Corrupt, match=DAMAGE[name].reader) as caught:
            await world.store.read_log(GROUP)
        assert f"group {GROUP}" in str(caught.value)
    else:
        events = await world.log()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("name", DAMAGE)
async def test_no_damage_keeps_ticks_and_sessions_from_other_groups(name: str, world: World) -> None:
    """The lease of both running items lapses: the tick ends the good one, and comes to its end each time it is called."""
    await begun(world)
    await DAMAGE[name].harm(world)
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await world.state(GOOD) == "offered"
    await world.authority.tick(0)
    new = await world.hand("worker-2")
    assert len(await new.take(GOOD, 2)) == 2
    await new.close()


async def test_a_client_is_told_that_its_mission_is_halted(world: World) -> None:
    hand, bad, _ = await begun(world)
    await DAMAGE["a deleted log"].harm(world)
    await hand.turn(a_submit(bad))
    view, other = await world.store.mission(GROUP), await world.store.mission(GOOD)
    assert view is not None
    assert other is not None
    assert (view.halted, view.state, other.halted) == ("LOG_REBORN", "active", "")
    listed = {one.group: one.halted for one in await world.store.missions()}
    assert listed == {GROUP: "LOG_REBORN", GOOD: ""}


async def test_a_payload_that_is_left_out_is_said_with_its_digest(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(world)
    await DAMAGE["a malformed payload"].harm(world)
    with caplog.at_level(logging.WARNING):
        events = await world.log()
    assert (events[2].payload, events[2].is_void) == (b"", False)
    assert (
        f"group {GROUP}: the payload of Event 3 (work.offer.created, entry 3-0 of its log) is left out: " in caplog.text
    )
    (left_out,) = (await verifying.verify(world.store, GroupId(GROUP))).quarantined
    assert (left_out.seq, left_out.quarantined.startswith("65,537 bytes")) == (3, True)


@pytest.mark.parametrize(
    "data", [b"\xc1\xff\n\x00", b"", b"1 " + b"x" * codec.EVENT_MAX], ids=["bytes", "none", "long"]
)
async def test_s12_an_event_that_bears_no_state_and_cannot_be_read_is_left_out_and_its_group_goes_on(
    data: bytes, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sequence, entry and digest are said; a Snapshot of the log, and what is replayed of it, are as if it were whole."""
    hand, bad, _ = await begun(world, ttl_ms=60_000)
    assert (await hand.do(a_word(bad, phase="one"))).code == "OK"
    (said,) = [event.seq for event in await world.log() if event.kind is EventKind.PROGRESSED]
    whole = await snapshots.fold(world.store, GroupId(GROUP))
    await garble(world, said, data)
    with caplog.at_level(logging.WARNING):
        events = await world.log()
    event = events[said - 1]
    assert (event.seq, event.kind, event.item, event.is_void) == (said, EventKind.PROGRESSED, "a", True)
    assert f"Event {said} (work.progressed, entry {said}-0 of its log) is left out: {len(data):,} bytes" in caplog.text
    assert f"digest {codec.digest(data)}" in caplog.text
    assert (await snapshots.fold(world.store, GroupId(GROUP))).canonical() == whole.canonical()
    found = await verifying.verify(world.store, GroupId(GROUP))
    assert ([one.seq for one in found.quarantined], found.differences, found.halted) == ([said], (), "")
    for number in range(2):
        assert (await hand.do(a_submit([bad, *await hand.take()][number]))).code == "OK"
    assert len(await world.log()) > said + 3
    assert not (await halted(world)).startswith("halted")


async def test_s12_an_event_that_bears_state_and_cannot_be_read_is_told_with_sequence_and_digest(world: World) -> None:
    await begun(world)
    await garble(world, 3, b"\xc1")
    with pytest.raises(
        Corrupt, match=rf"log entry b'3-0' is not an Event: .*1 bytes, digest {codec.digest(bytes([0xC1]))}"
    ):
        await world.log()


async def test_a_command_on_a_damaged_item_halts_its_group(world: World) -> None:
    await begun(world)
    await DAMAGE["an item of another type"].harm(world)
    with pytest.raises(Exception, match="LOG_FOREIGN"):
        await world.store.call("cancel", 0, (GROUP, "a", "ana", "reason"))
    assert await halted(world) == "halted:LOG_FOREIGN"


async def test_an_entry_of_a_kind_that_this_version_does_not_know_waits_and_blocks_nobody(world: World) -> None:
    world.audited = False
    await begun(world)
    await world.raw.zadd(world.key("@due"), {f"Z {GROUP} a": 1})
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await world.state(GOOD) == "offered"
    assert await world.raw.zscore(world.key("@due"), f"Z {GROUP} a") > await world.store.now_ms() + 50_000


@pytest.mark.parametrize("list_", ["@inbox:worker-2", f"@wake:{capability_set([CAPABILITY])}"])
async def test_a_ring_goes_over_what_is_no_list(list_: str, world: World) -> None:
    """A foreign key where a doorbell is to go must not leave a call half done behind its first Event."""
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    other = await world.hand("worker-2")
    await other.take(most=1)
    await world.raw.delete(world.key(list_))
    await world.raw.set(world.key(list_), "foreign")
    await world.mission(GOOD)
    await world.store.call("cancel", 0, (GROUP, "-", "ana", "reason"))
    await world.authority.tick(0)
    assert await world.raw.type(world.key(list_)) == b"list"
    assert [event.seq for event in await world.log()] == list(range(1, len(await world.log()) + 1))


# --- a Worker's own Cursor ---


async def test_br33_a_worker_resumes_at_its_own_cursor_whatever_the_store_forgot_of_it(world: World) -> None:
    """Neither the beginning nor the end: exactly what is new, repeats dropped by Event ID."""
    world.audited = False
    await world.mission(GROUP, *(a_new_item(f"i{number}") for number in range(4)))
    inbox = Inbox(AgentId("worker-1"))
    first = await world.log()
    inbox.receive(GROUP, 0, 1, len(first), first)
    hand = await world.hand()
    await hand.take(most=1, slots=0, ahead=1)
    await hand.take(most=1)
    await world.raw.delete(world.key("@joined:worker-1"), world.key("@inbox:worker-1"))
    received = inbox.receive(GROUP, len(first) + 1, len(first) + 2, len(first) + 3)
    assert (received.fresh, received.read_after) == ((), len(first))
    fresh = inbox.replay(GROUP, await world.store.read_log(GROUP, after=inbox.cursor(GROUP))).fresh
    assert [event.seq for event in fresh] == [len(first) + 1, len(first) + 2, len(first) + 3]
    assert inbox.replay(GROUP, await world.log()).fresh == ()


async def test_br35_what_a_foreign_trim_took_is_said_by_its_sequences_and_nothing_loops(world: World) -> None:
    await begun(world)
    await DAMAGE["a log cut at its beginning"].harm(world)
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"sequences 1\.\.3 are missing, 4 follows; halt this Group"):
            await world.store.read_log(GROUP, count=5)
    assert [event.seq for event in await world.store.read_log(GROUP, after=3, count=2)] == [4, 5]


async def test_s24_a_cursor_ahead_of_the_log_is_said(world: World) -> None:
    """Fault 28: a store that lost its tail would else be waited on for ever, and its next Events be skipped."""
    await begun(world)
    last = len(await world.log())
    assert await world.store.read_log(GROUP, after=last) == []
    with pytest.raises(Corrupt, match=f"read after {last + 5}, but only {last} were written; it went back"):
        await world.store.read_log(GROUP, after=last + 5)


def test_what_comes_out_of_order_is_kept_up_to_a_bound_and_then_read_from_the_log() -> None:
    inbox = Inbox(OTHER)
    events = [an_event(EventKind.STARTED, seq) for seq in range(1, 4 * HELD_EVENTS_MAX)]
    for start in range(100, 2 * HELD_EVENTS_MAX, 100):
        link = events[start : start + 90]
        received = inbox.receive(GROUP, start, link[0].seq, link[-1].seq, link)
        assert received.fresh == ()
        assert received.read_after == 0, "what is missing before them is read, not waited for"
        assert inbox.held() <= HELD_EVENTS_MAX
    assert inbox.held() > HELD_EVENTS_MAX - 90
    assert LINKS_MAX > 2 * HELD_EVENTS_MAX // 100
    assert [event.seq for event in inbox.replay(GROUP, events[:150]).fresh] == [*range(1, 191)]
