"""`treadle blocked` and `unblock` on a real server: who asks what, since when, and the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Commands
from fleet import Desk, chain
from treadle.shared import codec
from treadle.shared.model import AgentId, Capability, GroupId
from treadle.shared.store import Authority, Block, Take, Turn
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


async def block(desk: Desk, mission: str, *, reason: str, needs: object) -> None:
    """As a Worker does it whose handler raised Blocked."""
    authority = Authority(desk.store)
    capability = Capability("fleet.chain")
    session, _ = await authority.open_session(AgentId("w-1"), [capability], lease_ttl_ms=60_000, nonce="n")
    group = GroupId(mission)
    partition = desk.store.partition_of(group)
    (taken,) = await authority.turns(session, [Turn(partition, 1, (Take(group, capability, 1, 0),), slots=1)])
    (grant,) = taken.outcomes[0].grants  # type: ignore[union-attr]
    raw = codec.pack(needs, field="needs", limit=codec.EVIDENCE_MAX)
    assert grant.lease
    lease = grant.lease.lease_id
    target = (group, grant.item, grant.ownership_epoch, lease, 1, codec.digest(b"\x80"), b"\x80")
    operation = Block(*target, reason=reason, needs=raw, ttl_ms=3_600_000)
    (done,) = await authority.turns(session, [Turn(partition, 2, (operation,))])
    assert done.outcomes[0].code == "OK"  # type: ignore[union-attr]
    await authority.aclose()


async def test_what_is_blocked_is_listed_explained_and_answered(run: Commands, desk: Desk) -> None:
    assert "nothing is blocked" in run("blocked").stderr
    await desk.submit("m", chain("a"), account="acme")
    await block(desk, "m", reason="which%20shard%3F%1B%5B31m", needs={"shards": ["a", "b"], "raw": b"\xff"})
    (one,) = run("blocked", "--json").document()["items"]
    assert (one["mission"], one["item"], one["account"], one["worker"]) == ("m", "a", "acme", "w-1")
    assert one["needs"] == {"shards": ["a", "b"], "raw": "ff"}
    assert one["until_ms"] - one["since_ms"] == 3_600_000
    listed = run("blocked").stdout
    assert "m/a" in listed
    assert r"which shard?\x1b[31m" in listed, "nothing that a handler says steers a terminal"
    (gate,) = run("why", "m/a", "--json").document()["gates"]
    assert gate["code"] == "BLOCKED"
    assert '"shards"' in gate["text"]
    assert gate["change"].startswith("`treadle unblock m/a --resolution JSON`; answered within ")
    assert run("unblock", "m/a", "--resolution", '{"shard": "a"}', "--json").document() == {
        "mission": "m",
        "item": "a",
        "state": "queued",
        "worker": "w-1",
    }
    assert run("blocked", "--json").document()["items"] == []


async def test_an_answer_that_is_none_and_an_item_that_asks_nothing_are_refused(run: Commands, desk: Desk) -> None:
    await desk.submit("m", chain("a"))
    ran = run("unblock", "m/a", "--resolution", "yes", status=2)
    assert "--resolution: 'yes' is no JSON; write a text with its quotes" in ran.stderr
    assert "m/a is offered, not blocked" in run("unblock", "m/a", status=1).stderr
    assert "no item of that name" in run("unblock", "m/b", status=1).stderr
    assert "mission of" in run("unblock", "x/a", status=1).stderr
    assert "is no address" in run("unblock", "m", status=2).stderr


async def test_what_belongs_to_nobody_any_more_is_offered_to_all(run: Commands, desk: Desk) -> None:
    await desk.submit("m", chain("a"))
    await block(desk, "m", reason="why", needs=None)
    await Authority(desk.store).open_session(
        AgentId("w-1"), [Capability("fleet.chain")], lease_ttl_ms=60_000, nonce="newer"
    )
    (one,) = run("blocked", "--json").document()["items"]
    assert (one["worker"], one["until_ms"], one["needs"]) == (None, None, None)
    assert run("unblock", "m/a").stdout == "m/a: offered to every Worker\n"
