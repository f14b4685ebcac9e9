"""The function library: its digest in every name, loaded again whenever it is gone (BR-29), two versions side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from builders import GROUP, a_new_item, a_new_mission
from redis.exceptions import ResponseError
from store.refused_repairs import REPAIRS
from store.scripted import Day
from store.world import PREFIX, World, a_save, a_submit, a_take, dump, held
from treadle.shared.errors import ReplyLost, TreadleError
from treadle.shared.store import RenewalDoor, Store, Turn, library
from treadle.shared.store.connection import Link, is_missing
from treadle.shared.testing.faults import Fault, Trip


async def flush(world: World, *what: str) -> None:
    for kind in what or ("FUNCTION",):
        await world.raw.execute_command(kind, "FLUSH")


async def libraries(world: World) -> dict[str, set[str]]:
    """The functions of each library that the server has."""
    found = {}
    for raw in await world.raw.execute_command("FUNCTION", "LIST"):
        listed = dict(zip(raw[::2], raw[1::2], strict=True)) if isinstance(raw, list) else raw
        functions = [
            dict(zip(f[::2], f[1::2], strict=True)) if isinstance(f, list) else f for f in listed[b"functions"]
        ]
        found[listed[b"library_name"].decode()] = {function[b"name"].decode() for function in functions}
    return found


def test_every_name_carries_the_digest_of_the_whole_library() -> None:
    built = library.build()
    digest = built.name.removeprefix("treadle_")
    assert re.fullmatch("[0-9a-f]{12}", digest)
    assert built.functions.keys() == {name for name in library.DOORS if f"T.calls.{name} =" in built.source}
    assert set(built.functions.values()) == {f"treadle_{digest}_{name}" for name in built.functions}


def test_what_reads_only_says_so_and_what_finishes_runs_in_a_full_store() -> None:
    """Design 3.3: none for create, no-writes for reads, allow-oom for the rest."""
    source = library.build().source
    flags = {
        name: re.search(rf"function_name='{full}', callback=[\w.]+, flags={{(.*?)}}", source)
        for name, full in library.build().functions.items()
    }
    said = {name: found[1].strip("'") for name, found in flags.items() if found}
    assert said.keys() == flags.keys()
    assert {name for name, flag in said.items() if flag == "no-writes"} == {"look", "read", "inspect", "tail"}
    assert {name for name, flag in said.items() if flag == ""} == {
        "create",
        "open_store",
        "approve",
        "set_policy",
        "add",
        "retry",
        "unblock",
        "offer",
        "prioritise",
        "schedule",
        "fire",
    }
    assert {flag for flag in said.values()} == {"", "no-writes", "allow-oom"}


async def test_the_server_has_the_library_once_however_many_load_it(world: World) -> None:
    links = [Link(world.endpoint) for _ in range(3)]
    for link in links:
        await link.load()
        await link.aclose()
    assert await libraries(world) == {library.build().name: set(library.build().functions.values())}


@pytest.mark.parametrize("what", [("FUNCTION",), ("SCRIPT",), ("SCRIPT", "FUNCTION")], ids="+".join)
async def test_br_29_the_library_may_be_gone_before_any_call_of_a_day(what: tuple[str, ...], world: World) -> None:
    """BR-29: one transparent reload, and the call succeeds once and not twice."""
    flushes = 0
    called: set[str] = set()
    original = world.endpoint.client

    def client(**of: Any) -> Any:
        made = original(**of)
        inner = made.trip

        async def trip(commands: Any, ask: Any) -> Any:
            nonlocal flushes
            if Trip(0, commands).functions and flushes % 2 == 0:
                await flush(world, *what)
            flushes += bool(Trip(0, commands).functions)
            called.update(Trip(0, commands).functions)
            return await inner(commands, ask)

        made.trip = trip
        return made

    await world.raw.flushall()
    world.endpoint.client = client  # type: ignore[method-assign]  # it flushes before every other trip
    await Day(world).live()
    world.endpoint.client = original  # type: ignore[method-assign]
    assert flushes > 40
    assert called == library.build().functions.keys() - {"renew", "recount"} - REPAIRS.keys(), "these with repairs"
    kinds = await world.kinds("day-1")
    assert [kinds.count(kind) for kind in ("mission.created", "work.submitted", "mission.terminated")] == [1, 3, 1]


async def test_br_29_each_link_loads_the_library_and_counts_a_call_once(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    one, two = await hand.take(most=2)
    await flush(world)
    assert (await hand.do(a_save(one))).code == "OK", "one call"
    await flush(world)
    assert [outcome.code for outcome in (await hand.turn(a_submit(one), a_save(two))).outcomes] == ["OK", "OK"]
    await flush(world)
    found = await world.authority.look({0: 0}, [])
    assert found[0].full, "a call that only reads"
    await flush(world)
    door = RenewalDoor(world.store, hand.session)
    assert door.renew(0, [held(two)])[1] == ["OK"], "the renewal thread's own connection"
    door.close()
    assert (await world.kinds()).count("work.progress_saved") == 2


@pytest.mark.parametrize("partitions", [4])
async def test_br_29_a_pipeline_that_finds_the_library_gone_runs_each_of_its_calls_once(world: World) -> None:
    hand = await world.hand()
    await flush(world)
    turns = [Turn(partition, 1, ()) for partition in range(4)]
    answers = await world.authority.turns(hand.session, turns)
    assert not [answer for answer in answers if isinstance(answer, TreadleError)]
    for partition in range(4):
        (lane,) = (await world.raw.hgetall(world.key("@lanes", partition))).values()
        assert lane.startswith(b"1 1 ")


async def test_a_call_whose_reply_is_lost_after_the_library_was_loaded_again_is_repeated_like_any_other(
    world: World,
) -> None:
    await world.mission()
    hand = await world.hand()
    await flush(world)
    lost: list[Trip] = []

    def fault(trip: Trip) -> Fault:
        if trip.functions == ("turn",) and len(lost) < 2:
            lost.append(trip)
            return Fault.NONE if len(lost) == 1 else Fault.REPLY_LOST
        return Fault.NONE

    world.endpoint.fault = fault
    with pytest.raises(ReplyLost):
        await hand.turn(a_take(), slots=1)
    assert len((await hand.again()).outcomes[0].grants) == 1
    assert (await world.kinds()).count("work.started") == 1


async def test_losing_the_connection_while_the_library_is_loaded_is_a_lost_reply_on_every_link(world: World) -> None:
    hand = await world.hand()

    def fault(trip: Trip) -> Fault:
        return Fault.UNSENT if trip.commands[0][0] == "FUNCTION" else Fault.NONE

    await flush(world)
    world.endpoint.fault = fault
    with pytest.raises(ReplyLost):
        await hand.turn()
    door = RenewalDoor(world.store, hand.session)
    with pytest.raises(ReplyLost):
        door.renew(0, [])
    door.close()


@contextmanager
def another_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[library.Library]:
    """A later version of the library: the same functions, another digest."""
    files = library.lua_files()
    later = {**files, "tick.lua": files["tick.lua"] + "-- a later version\n"}
    with monkeypatch.context() as patch:
        patch.setattr(library, "lua_files", lambda: later)
        library.build.cache_clear()
        built = library.build()
        patch.setattr("treadle.shared.store.connection.build", lambda: built)
        yield built
    library.build.cache_clear()


async def test_two_versions_of_the_library_run_side_by_side(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling upgrade: neither removes the other, and each finishes what the other began."""
    old = await world.hand("old")
    with another_version(monkeypatch) as later:
        store = await Store.connect(world.endpoint, prefix=PREFIX)
        assert later.name != world.store.link._library.name
        await store.create(a_new_mission(GROUP, a_new_item("a"), a_new_item("b", after=["a"])))
        grant = await old.started()
        new = replace(await world.hand("new"), authority=old.authority.__class__(store))
        await old.do(a_submit(grant))
        (outcome,) = (await new.turn(a_take(), slots=1)).outcomes
        assert (await new.do(a_submit(outcome.grants[0]))).code == "OK"
        assert len(await libraries(world)) == 2
        await store.aclose()
    assert (await old.turn()).outcomes == ()
    assert (await world.kinds())[-1] == "mission.approved"


def test_only_a_missing_function_is_taken_for_a_missing_library() -> None:
    assert is_missing(ResponseError("Function not found"))
    assert is_missing(ResponseError("ERR Function not found"))
    for other in (ResponseError("ERR unknown command"), ConnectionError("Function not found"), [b"Function not found"]):
        assert not is_missing(other)


async def test_a_library_that_does_not_load_is_said_and_not_tried_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(library.build(), source="#!lua name=broken\nthis is no Lua\n")
    monkeypatch.setattr("treadle.shared.store.connection.build", lambda: broken)
    link = Link(world.endpoint)
    await flush(world)
    trips = world.endpoint.trips
    with pytest.raises(TreadleError, match="answered ResponseError"):
        await link.call(("tick", world.key("@meta"), (world.store.replid, 1)))
    assert world.endpoint.trips - trips == 2
    await link.aclose()
    assert await dump(world.raw)
