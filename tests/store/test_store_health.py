"""What `treadle doctor` is told of real servers and of one in memory, which cannot say much: then it says UNKNOWN."""

from __future__ import annotations

import pytest
from builders import a_new_item
from store.world import PREFIX, World
from treadle.coordinator.core.health import Finding, Verdict, judge
from treadle.shared.model import Capability, GroupId
from treadle.shared.store import RedisEndpoint, health

M = GroupId("m-1")


@pytest.fixture
def partitions() -> int:
    return 2


async def findings(world: World, prefix: str = PREFIX) -> dict[str, Finding]:
    return {one.check: one for one in judge(await health.examine(world.endpoint, prefix=prefix))}


async def test_a_real_server_says_everything_and_one_in_memory_admits_what_it_cannot(world: World) -> None:
    said = await findings(world)
    unknown = {check for check, one in said.items() if one.verdict is Verdict.UNKNOWN}
    if world.is_real:
        assert unknown == set()
        assert {check for check, one in said.items() if one.verdict is Verdict.FAIL} == set()
        assert "format 1, 2 partitions" in said["store"].found
    else:
        assert {"version", "role", "eviction", "persistence", "memory", "stream nodes"} <= unknown
    assert said["store"].verdict is Verdict.OK
    assert said["workers"].found == "0 live"


async def test_br_29_health_is_the_same_while_the_library_and_all_scripts_are_gone(world: World) -> None:
    await world.mission(M)
    before = {check: one.verdict for check, one in (await findings(world)).items()}
    for kind in ("SCRIPT", "FUNCTION"):
        await world.raw.execute_command(kind, "FLUSH")
    assert {check: one.verdict for check, one in (await findings(world)).items()} == before


async def test_it_writes_nothing_also_where_there_is_no_store_yet(world: World) -> None:
    before = await world.dump()
    said = await findings(world, "another")
    assert said["store"].found == "prefix another: no store there yet, the first program makes it"
    await findings(world)
    assert await world.dump() == before


async def test_a_store_of_another_format_is_a_failure_that_is_said_not_raised(world: World) -> None:
    await world.raw.hset("other:{org}:@store", mapping={"version": "99", "partitions": "16"})
    one = (await findings(world, "other"))["store"]
    assert one.verdict is Verdict.FAIL
    assert "format 99, this program speaks 1" in one.found
    await world.raw.delete("other:{org}:@store")


async def test_a_damaged_store_is_a_failure_that_is_said_not_raised(world: World) -> None:
    world.audited = False
    await world.raw.hset(world.key("@sessions"), "w-1", "nonsense")
    one = (await findings(world))["store"]
    assert one.verdict is Verdict.FAIL
    assert "'nonsense' of w-1 is no session" in one.found
    await world.raw.delete(world.key("@sessions"))
    await world.raw.set(world.key("@sessions"), "not a hash")
    assert (await findings(world))["store"].verdict is Verdict.FAIL


async def test_work_that_no_live_worker_offers_is_a_warning(world: World) -> None:
    await world.mission(M, a_new_item("a"), a_new_item("b", capability=Capability("rare")))
    await world.hand("w-1")
    one = (await findings(world))["workers"]
    assert one.verdict is Verdict.WARN
    assert one.found.startswith("1 live")
    assert one.found.endswith("work waits that none of them offers: rare")


async def test_what_is_long_due_is_a_warning(world: World) -> None:
    if world.clock is None:
        pytest.skip("a minute of a real server's time")
    await world.mission(M, a_new_item("a"))
    hand = await world.hand("w-1", ttl_ms=1_000)
    await hand.started(M)
    await world.pass_ms(70_000)
    one = (await findings(world))["workers"]
    assert one.verdict is Verdict.WARN
    assert "0 live, 1 silent" in one.found


async def test_a_server_out_of_reach_or_a_wrong_password_is_said_without_the_password() -> None:
    for url in ("redis://user:secret@127.0.0.1:1/0", "unix:///tmp/treadle-nobody-listens.sock?password=secret"):
        (one,) = judge(await health.examine(RedisEndpoint(url), prefix=PREFIX))
        assert one.verdict is Verdict.FAIL
        assert "secret" not in one.found + one.todo
