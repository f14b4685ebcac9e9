"""Every call on every state by everybody: what the table of states has a row for is done, all else is refused (R71).

The table is the only source: `lifecycle.ITEM_MOVES` says which call asks for a row, from which states, and who may.
"""

from __future__ import annotations

import pytest
from store.contracts import contracts
from store.situations import (
    CITATIONS,
    COMMANDS,
    ITEM,
    NEVER_STANDS_IN,
    OPERATIONS,
    RIGHT,
    SESSIONS,
    SITUATIONS,
    Citation,
    Scene,
    Situation,
    call_of,
    tried,
)
from store.world import World, differences
from treadle.shared.lifecycle import (
    GROUP_CALLS,
    ITEM_MOVES,
    MISSION_CALLS,
    MISSION_MOVES,
    Given,
    Move,
    Who,
    is_ownerless,
)
from treadle.shared.model import Event, EventKind, ItemState

NEW_MISSIONS = {"create", "fire"}
"""They bring items of their own and name none that is there."""
NOBODYS = {"tick"}
NEED_TIME = {"start", "disclose"}
"""What an owner may do only before its start-by deadline."""


def asked(name: str, at: Situation) -> Move | None:
    """The row that an attempt asks for in a situation, for those who may."""
    call = call_of(name)
    rows = [row for row in ITEM_MOVES if call in row.by and at.state in row.sources and row.given in (None, at.given)]
    rows = [row for row in rows if at.given not in row.unless]
    if at.is_late:
        rows = [row for row in rows if row.who not in (Who.HOLDER, Who.OFFERED) and call not in NEED_TIME]
    if at.given is Given.NAMED and name == "take":
        return None  # it takes of a capability, and what is offered by name stands elsewhere
    assert len(rows) <= 1, f"{name} on {at}: {rows}"
    return rows[0] if rows else None


def may(row: Move, citation: Citation, at: Situation) -> bool:
    """Whether somebody with a citation is who the row is for."""
    match row.who:
        case Who.OWNER:
            return citation.who == "owner" and "epoch" not in citation.cites
        case Who.HOLDER:
            return citation == RIGHT
        case Who.OFFERED if at.given is Given.NAMED:
            return citation.who == "owner"
        case _:
            return citation.who != "stale"


def path(events: list[Event], call: str, state: ItemState | None) -> ItemState | None:
    """Where the Events of one call take an item: the first by a row that the call asks for, then what may follow it."""
    for number, event in enumerate(events):
        rows = [row for row in ITEM_MOVES if row.cause is event.kind and state in row.sources]
        if event.kind is EventKind.UNBLOCKED:
            rows = [row for row in rows if (row.given is Given.OWNERLESS) is is_ownerless(event)]
        allowed = [row for row in rows if call in (row.then if number else row.by)]
        assert allowed, f"{call}: {event.kind} of an item that is {state}"
        state = allowed[0].target
    return state


def refusal(name: str, at: Situation, item: dict[str, str], citation: Citation, scene: Scene) -> str:
    """The code an operation is refused with: the fences come first, in their order, then the state."""
    grant = citation.grant(scene)
    holds = any(row.who is Who.HOLDER for row in ITEM_MOVES if call_of(name) in row.by)
    if citation.who == "stale":
        return "AUTH_STALE_SESSION"
    if name == "take":
        return "EMPTY"
    if at.state is None:
        return "INVALID_COMMAND"
    if name in ("accept", "decline"):
        return answer_refused(at, item, citation.hand(scene).session.agent)
    if item.get("own") != citation.hand(scene).session.agent or item["oe"] != str(grant.ownership_epoch):
        return "WORK_STALE_OWNERSHIP"
    if name in NEED_TIME and at.state is ItemState.QUEUED and at.is_late:
        return "WORK_STALE_OWNERSHIP"  # its start-by deadline is over
    cited = grant.lease.lease_id if grant.lease else "none"
    if holds and (at.state is ItemState.ACTIVE or item.get("lid") == cited):
        return "WORK_LEASE_EXPIRED"
    return "INVALID_STATE_TRANSITION"


def answer_refused(at: Situation, item: dict[str, str], agent: str) -> str:
    """The code with which an acceptance or a decline is refused."""
    owned = at.state in (ItemState.QUEUED, ItemState.ACTIVE) or at.given is Given.OWNED
    if owned and item["own"] != agent:
        return "WORK_ALREADY_OWNED"
    if at.state is not ItemState.OFFERED:
        return "INVALID_STATE_TRANSITION"
    return "WORK_OFFER_EXPIRED" if at.is_late and agent.startswith("owner") else "AUTH_FORBIDDEN"


ALLOWED = [(at, name) for at in SITUATIONS for name in (*OPERATIONS, *COMMANDS, *SESSIONS) if asked(name, at)]


def events_of(log: list[Event], after: int) -> list[Event]:
    return [event for event in log if event.item == ITEM and event.seq > after]


@pytest.mark.parametrize(("at", "name"), ALLOWED, ids=str)
async def test_r71_a_call_with_a_row_takes_the_item_where_the_table_says(
    at: Situation, name: str, world: World
) -> None:
    scene = await at.scene(world)
    row = asked(name, at)
    assert row is not None
    last = (await world.log(scene.group))[-1].seq
    assert await tried(scene, name) == "OK"
    events = events_of(await world.log(scene.group), last)
    assert events, f"{name} said OK and appended nothing"
    assert events[0].kind is row.cause
    assert await world.state(scene.group, ITEM) == path(events, call_of(name), at.state)


@pytest.mark.parametrize("at", SITUATIONS, ids=str)
async def test_r71_a_call_without_a_row_is_refused_and_writes_nothing(at: Situation, world: World) -> None:
    """Whoever tries it, and whatever is cited: the code, and a store that is key by key what it was."""
    scene = await at.scene(world)
    item, before = await scene.item(), await world.dump()
    for name in OPERATIONS:
        for citation in CITATIONS:
            row = asked(name, at)
            if row is None or not may(row, citation, at):
                expected = refusal(name, at, item, citation, scene)
                assert await tried(scene, name, citation) == expected, f"{name}: {citation}"
                after = await world.dump()
                assert differences(before, after, but_for=["@lanes"]) == [], f"{name}: {citation}"
    for name in COMMANDS:
        if not asked(name, at):
            expected = "INVALID_STATE_TRANSITION" if at.state else "INVALID_COMMAND"
            if name == "add":
                expected = "ACTION_ID_COLLISION"
            elif name in ("retry", "offer") and at.given is Given.UNAPPROVED:
                expected = "APPROVAL_REQUIRED"
            elif name == "offer" and (at.state in (ItemState.QUEUED, ItemState.ACTIVE) or at.given is Given.OWNED):
                expected = "WORK_ALREADY_OWNED"
            elif name == "cancel" and at.state is ItemState.CANCELLED:
                expected = "OK"  # it is what was asked for
            assert await tried(scene, name) == expected, name
            assert differences(before, await world.dump(), but_for=["@lanes"]) == [], name


@pytest.mark.parametrize("at", SITUATIONS, ids=str)
@pytest.mark.parametrize("name", SESSIONS)
async def test_the_end_of_a_session_moves_nothing_that_it_has_no_row_for(
    name: str, at: Situation, world: World
) -> None:
    if asked(name, at):
        return
    scene = await at.scene(world)
    before, last = await scene.item(), (await world.log(scene.group))[-1].seq
    assert await tried(scene, name) == "OK"
    assert await scene.item() == before
    assert events_of(await world.log(scene.group), last) == []


@pytest.mark.parametrize("at", SITUATIONS, ids=str)
async def test_whatever_time_does_to_an_item_is_a_row_of_a_tick(at: Situation, world: World) -> None:
    """Leases and deadlines pass, sessions fall silent, waits end; on a real server only what is due by then."""
    scene = await at.scene(world)
    last = (await world.log(scene.group))[-1].seq
    await world.pass_ms(1 if world.is_real else 700_000)
    for _ in range(8):
        state = (await scene.item()).get("st")
        await world.authority.tick(0)
        log = await world.log(scene.group)
        here = ItemState(state) if state else None
        assert path(events_of(log, last), "tick", here) == (await scene.item()).get("st")
        last = log[-1].seq


# --- that nothing is left out ---


def test_r71_every_state_and_every_call_of_the_table_is_tried() -> None:
    assert {at.state for at in SITUATIONS if at.state} == {row.target for row in ITEM_MOVES} - NEVER_STANDS_IN
    tried_here = {call_of(name) for name in (*OPERATIONS, *COMMANDS, *SESSIONS)}
    assert {call for row in ITEM_MOVES for call in row.by} == tried_here | NEW_MISSIONS | NOBODYS


def test_the_table_and_the_contracts_of_the_calls_name_the_same_events() -> None:
    """A call that appends an Event without a row that names the call, or a row that no contract knows, is an error here."""
    told = {(call, row.cause) for row in ITEM_MOVES for call in row.by | row.then}
    told |= {(call, cause) for cause, calls in MISSION_CALLS.items() for call in calls}
    told |= {(call, cause) for cause, calls in GROUP_CALLS.items() for call in calls}
    listed = {(name, event) for name, contract in contracts().items() for event in contract.words("events")}
    assert {(call, cause.value) for call, cause in told} == listed
    assert MISSION_CALLS.keys() == MISSION_MOVES.keys()


@pytest.mark.parametrize("at", SITUATIONS, ids=str)
async def test_nothing_of_an_ended_mission_moves(at: Situation, world: World) -> None:
    """MSN-002: from the moment it is cancelled, before any pump has run, each call is refused and writes nothing."""
    scene = await at.scene(world)
    commands = {name: "INVALID_STATE_TRANSITION" for name in COMMANDS}
    await world.store.call("cancel", 0, (scene.group, "-", "ana", "r"))
    before = await world.dump()
    for name in OPERATIONS:
        assert await tried(scene, name) not in ("OK", "REPEATED"), name
        assert differences(before, await world.dump(), but_for=["@lanes"]) == [], name
    for name, expected in commands.items():
        code = await tried(scene, name)
        assert code in (expected, "INVALID_COMMAND", "ACTION_ID_COLLISION") or at.state is ItemState.CANCELLED, name
        assert differences(before, await world.dump(), but_for=["@lanes"]) == [], name
