"""Cancel, retry, requeue and parked on a real server: what is done, what is refused, and what is asked first."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from commanding import Commands
from fleet import Desk, Fleet, chain, sleeper
from treadle.coordinator import WorkSpec
from treadle.shared import codec
from treadle.shared.model import EventKind, GroupId, ItemId
from treadle.shared.names import token
from treadle.shared.store import commands
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


async def fail(desk: Desk, mission: str, item: str, type_: str = "ValueError") -> None:
    """As a Coordinator does it, with Evidence."""
    evidence = codec.pack({"type": type_, "text": "no good"}, field="evidence", limit=1_000)
    group, name = GroupId(token(mission, field="m")), ItemId(token(item, field="i"))
    await commands.fail_item(desk.store, group, name, actor="ann", digest=codec.digest(evidence), evidence=evidence)


async def test_what_is_cancelled_is_told_and_what_had_ended_is_said(run: Commands, desk: Desk) -> None:
    await desk.submit("m/1 日本", chain("a"), chain("b"))
    assert run("cancel", "m/1 日本/a").stdout == "m/1 日本/a: cancelled\n"
    assert run("cancel", "m/1 日本", "--reason", "not needed", "--json").document() == {
        "results": [{"target": "m/1 日本", "state": "cancelled", "error": None}]
    }
    assert run("missions", "--json").document()["missions"][0]["state"] == "cancelled"
    assert run("cancel", "m/1 日本").stdout == "m/1 日本: cancelled\n", "once more is no error"
    ran = run("cancel", "absent", "m/1 日本", status=1)
    assert '"absent" is not in this store' in ran.stderr
    assert ran.stdout == "m/1 日本: cancelled\n", "the others are cancelled all the same"


async def test_a_finished_mission_is_not_cancelled(run: Commands, desk: Desk, fleet: Fleet) -> None:
    await fleet.ready(fleet.start())
    mission = await desk.submit("m", chain("a", steps=1, step_s=0.01))
    await mission.results(timeout=20)
    ran = run("cancel", "m", "m/a", status=1)
    assert "treadle: m: it has ended" in ran.stderr
    assert "treadle: m/a: it is verified already" in ran.stderr


async def test_a_failed_item_is_retried_and_one_that_did_not_fail_is_not(run: Commands, desk: Desk) -> None:
    await desk.submit("m", chain("a"), chain("b"))
    await fail(desk, "m", "a")
    assert run("why", "m/a", "--json").document()["gates"][0]["code"] == "FAILED"
    assert run("retry", "m/a").stdout == "m/a: offered\n"
    assert run("why", "m/a", "--json").document()["gates"][0]["code"] == "NO_WORKER"
    assert "m/b: it is offered already" in run("retry", "m/b", status=1).stderr
    assert "is no address of a WorkItem" in run("retry", "m", status=2).stderr


async def test_an_item_is_offered_to_a_worker_by_name_and_why_says_so(run: Commands, desk: Desk) -> None:
    await desk.submit(
        "m", *(WorkSpec(id=item, capability="index", after=after) for item, after in (("a", ()), ("b", ["a"])))
    )
    assert run("offer", "m/a", "--to", "one", "--to", "two", "--named", "--for", "2h").stdout == "m/a: offered\n"
    (gate,) = (one for one in run("why", "m/a", "--json").document()["gates"] if one["code"] == "OFFERED_TO")
    assert "to one (not live), two (not live) for another" in gate["text"]
    assert "it waits for others" in run("offer", "m/b", status=1).stderr
    assert "give one of them" in run("offer", "m/a", "--to", "one", "--named", "--preferred", status=2).stderr
    assert "--to: name the Workers" in run("offer", "m/a", "--named", status=2).stderr
    assert "--for: " in run("offer", "m/a", "--for", "soon", status=2).stderr
    assert run("offer", "m/a", "--json").document()["results"] == [{"target": "m/a", "state": "offered", "error": None}]
    assert "OFFERED_TO" not in run("why", "m/a", "--json").stdout


async def test_an_item_is_prioritised_and_goes_before_the_others_of_its_mission(run: Commands, desk: Desk) -> None:
    await desk.submit("m", *(WorkSpec(id=item, capability="index") for item in "abc"))
    said = run("prioritise", "m/c", "m/b", "--urgency", "critical", "--deadline", "+2h", "--business-impact", "7")
    assert said.stdout == "m/c: offered\nm/b: offered\n"
    answer = run("prioritise", "m/b", "--deadline", "none", "--business-impact", "0", "--json").document()
    assert answer["results"] == [{"target": "m/b", "state": "offered", "error": None}]
    told = [
        (event.item, event.get("urgency"), event.get("impact"))
        for event in await desk.of_kind("m", EventKind.REPRIORITISED)
    ]
    assert told == [("c", "critical", "7"), ("b", "critical", "7"), ("b", "critical", "0")]
    run("cancel", "m/b")
    refused = run("prioritise", "m/c", "m/b", "--urgency", "high", status=1)
    assert refused.stdout == "m/c: offered\n"
    assert "m/b: it is cancelled already" in refused.stderr
    assert "give at least one of them" in run("prioritise", "m/c", status=2).stderr
    assert "--deadline: " in run("prioritise", "m/c", "--deadline", "soon", status=2).stderr
    assert "is in the past" in run("prioritise", "m/c", "--deadline", "2020-01-01T00:00:00Z", status=2).stderr
    assert "0 to 99999" in run("prioritise", "m/c", "--business-impact", "100000", status=2).stderr
    assert "is no address of a WorkItem" in run("prioritise", "m", "--urgency", "high", status=2).stderr


async def test_requeue_finds_what_is_meant_and_asks_before_it_takes_everything(run: Commands, desk: Desk) -> None:
    await desk.submit("m-1", *(chain(f"i{n}") for n in range(6)), account="acme")
    await desk.submit("m-2", chain("x"), sleeper("y", 1), account="other")
    for mission, item, type_ in (("m-1", "i0", "OSError"), ("m-1", "i1", "ValueError"), ("m-2", "x", "OSError")):
        await fail(desk, mission, item, type_)
    ran = run("requeue", "--where", "account=nobody")
    assert (
        "nothing matches: no failed or parked item of a Mission that has not ended and is account=nobody" in ran.stderr
    )
    ran = run("requeue", status=2)
    assert "requeue everything: 3 items? say so with --yes, or look first with --dry-run" in ran.stderr
    found = run("requeue", "--where", "type=OSError,item=i*", "--dry-run", "--json").document()
    assert (found["matched"], found["requeued"]) == (1, 0)
    assert found["items"] == [
        {"mission": "m-1", "item": "i0", "account": "acme", "capability": "fleet.chain", "state": "failed"}
    ]
    assert run("requeue", "--where", "account=acme").stdout == "2 items requeued\n"
    assert run("requeue", "--yes", "--json").document()["requeued"] == 1
    assert run("requeue", "--yes", "--json").document()["matched"] == 0
    assert "did you mean account?" in run("requeue", "--where", "acount=x", status=2).stderr


async def test_more_than_a_page_is_asked_about_however_narrow(run: Commands, desk: Desk) -> None:
    await desk.submit("m", *(chain(f"i{n}") for n in range(102)))
    for number in range(101):
        await fail(desk, "m", f"i{number}")
    assert "requeue 101 items? say so with --yes" in run("requeue", "--where", "mission=m", status=2).stderr
    assert run("requeue", "--where", "mission=m", "-y").stdout == "101 items requeued\n"


async def test_what_kills_its_workers_is_parked_listed_and_brought_back(run: Commands, desk: Desk) -> None:
    assert "nothing is parked" in run("parked").stderr
    await desk.submit("m", chain("a"), account="acme")
    park(desk)
    (one,) = run("parked", "--json").document()["items"]
    assert (one["mission"], one["item"], one["account"], one["held"], one["lost_runs"]) == (
        "m",
        "a",
        "acme",
        "POISON",
        5,
    )
    assert "m/a" in run("parked").stdout
    gates = run("why", "m/a", "--json").document()["gates"]
    assert gates[0]["code"] == "HELD"
    assert run("requeue", "--where", "state=parked,mission=m").stdout == "1 item requeued\n"
    assert run("parked", "--json").document()["items"] == []


def park(desk: Desk) -> None:
    """As a store that has seen five runs of it end with their Workers (tests/store shows that it does)."""
    base = desk.store.base(desk.store.partition_of("m"))
    with redis.Redis.from_url(desk.url) as client:
        item = f"{base}m:i:a"
        capability = client.hget(item, "cap")
        assert isinstance(capability, bytes)
        client.hset(item, mapping={"st": "open", "hold": "POISON", "lp": "5"})
        client.zadd(f"{base}@parked", {"m a": 1_000})
        client.delete(f"{base}@take:{capability.decode()}")
