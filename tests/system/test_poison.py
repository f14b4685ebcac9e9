"""Items that no Worker can read: parked with reason and digest of what stands there; nothing else is held up (BR-55)."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commanding import Commands
from fleet import Desk, Fleet, chain, sleeper, until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.damage import Damage
from treadle.shared.model import AgentId, Capability, EventKind, GroupId, ItemId, Urgency
from treadle.shared.progress import Said
from treadle.shared.store import Authority, Progress, Store, Take, Turn, keys, stuck
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

K = EventKind
GROUP = GroupId("m")
NOT_PACKED = b"\xc1 what nobody packed"
DEEP = b"\x91" * 200
BAD_TIME = codec.pack({"timeout_s": "soon"}, field="contract", limit=1_000)
BAD_BUDGETS = codec.pack({"budgets": {"tokens": -1}}, field="contract", limit=1_000)


@pytest.mark.parametrize(
    ("field", "raw", "said"),
    [
        ("in", NOT_PACKED, "inputs of m/a"),
        ("in", DEEP, "inputs of m/a"),
        ("ct", NOT_PACKED, "contract of m/a"),
        ("ct", codec.pack([1], field="contract", limit=1_000), "contract of m/a: .*no fields by their names"),
        ("ct", BAD_TIME, "contract of m/a: its time-out is 'soon', no number of seconds"),
        ("ct", BAD_BUDGETS, "contract of m/a: its budgets are {'tokens': -1}, no amounts by their names"),
    ],
    ids=["inputs", "deep inputs", "contract", "list", "bad time-out", "bad budgets"],
)
async def test_br_55_an_item_that_cannot_be_read_is_parked_with_the_digest_and_all_others_are_done(
    field: str, raw: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        return context.item

    caplog.set_level(logging.ERROR)
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        work_ = [WorkSpec(id=id, capability="work", inputs={"n": 1}, retry=3) for id in ("a", "b", "c")]
        mission = await client.submit(MissionSpec(id="m", objective="o", work=work_))
        base = store.base(store.partition_of(GROUP))
        await store.run(lambda redis: redis.hset(keys.item(base, GROUP, ItemId("a")), field, raw))
        async with at_work(a_worker(endpoint, work=work)):

            async def is_parked() -> bool:
                return any(event.kind is K.PARKED for event in await whole_log(store, "m"))

            await until(is_parked, description="it is parked")

            async def are_done() -> bool:
                return (await mission.view()).verified == 2

            await until(are_done, description="b and c are done")
            other = await client.submit(MissionSpec(id="n", objective="o", work=[work_[1]]))
            assert await other.results(timeout=30) == {"b": "b"}, "the Worker lives"
        log = await whole_log(store, "m")
        (parked,) = [event for event in log if event.kind is K.PARKED]
        assert (parked.item, parked.get("reason"), parked.get("lost_runs")) == ("a", "POISON", "0")
        assert not [event for event in log if event.kind in (K.FAILED, K.LAPSED)]
        found = Damage.found("inputs" if field == "in" else "contract", raw)
        assert parked.payload.decode() == found.packed()
        why, view = await mission.why("a"), (await mission.items())["a"]
        assert f"cannot be read as it stands in the store ({found.words()})" in str(why), why
        assert (why.facts.damage, view.damage, view.lease_number) == (found, found, 1)
        (listed,) = await stuck.parked(store)
        assert (listed.item, listed.held, listed.damage) == ("a", "POISON", found)
        await store.aclose()
    (told,) = [record.getMessage() for record in caplog.records if "m/a" in record.getMessage()]
    pattern = f"{said}.*it is parked; what stands there has .*digest {codec.digest(raw)}"
    assert re.search(pattern, told), told


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("field", "what"), [("in", "inputs"), ("ct", "contract")])
async def test_br_55_one_item_whose_bytes_were_overwritten_is_parked_among_100_and_no_worker_dies(
    field: str, what: str, fleet: Fleet, desk: Desk, server: EmbeddedServer, tmp_path: Path
) -> None:
    """By the store's own count it began once, and says to whoever asks what stands there."""
    good = [sleeper(f"good{n:03}", 0.005) for n in range(100)]
    poison = WorkSpec(id="a", capability=good[0].capability, inputs={"file": "bad.pdf"}, urgency=Urgency.CRITICAL)
    mission = await desk.submit("m", *good[:50], poison, *good[50:])
    base = desk.store.base(desk.store.partition_of(GROUP))
    await desk.store.run(lambda redis: redis.hset(keys.item(base, GROUP, ItemId("a")), field, NOT_PACKED))
    workers = [fleet.start() for _ in range(2)]
    await fleet.ready()
    other = await desk.submit("beside", *(chain(f"i{n}", steps=3, step_s=0.01) for n in range(20)))
    assert len(await other.results(timeout=30)) == 20, "another Group is not held up"

    async def are_done() -> bool:
        return (await mission.view()).verified == 100 and bool(await desk.of_kind("m", K.PARKED))

    await until(are_done, description="the 100 are done", timeout_s=60)
    assert [worker.child.poll() for worker in workers] == [None, None], "no Worker died"
    run, found = Commands(server.url, tmp_path), Damage.found(what, NOT_PACKED)
    (listed,) = run("parked", "--json").document()["items"]
    assert (listed["item"], listed["held"], listed["lost_runs"], listed["damage"]) == ("a", "POISON", 0, asdict(found))
    assert found.words() in run("parked").stdout
    told = run("why", "m/a", "--json").document()
    assert (told["gates"][0]["code"], told["damage"]) == ("HELD", asdict(found))
    assert f"({found.words()})" in " ".join(run("why", "m/a").stdout.split())
    assert len(await desk.of_kind("m", K.STARTED, "a")) == (await mission.items())["a"].lease_number == 1


async def one_who_died(store: Store, agent: AgentId, *groups: GroupId) -> None:
    """An older session of this Agent has started an item of each Group, and said how far it is."""
    authority, capability = Authority(store), Capability("fleet.sleep")
    session, _ = await authority.open_session(agent, [capability], lease_ttl_ms=60_000, nonce="n")
    for number, group in enumerate(groups):
        partition = store.partition_of(group)
        ask = Turn(partition, 1, (Take(group, capability, 1, 0),), slots=1, lane=number)
        (answer,) = await authority.turns(session, [ask])
        assert not isinstance(answer, Exception)
        (grant,) = answer.outcomes[0].grants
        assert grant.lease is not None
        word = Progress(group, grant.item, grant.ownership_epoch, grant.lease.lease_id, Said(1, 10, phase="one"))
        (answer,) = await authority.turns(session, [Turn(partition, 2, (word,), lane=number)])
        assert not isinstance(answer, Exception)
    await authority.aclose()


async def _put(redis: Any, *, key: str, entry_id: bytes, fields: dict[bytes, bytes]) -> None:
    await redis.xadd(key, fields, id=entry_id)


async def garble(store: Store, group: GroupId, kind: EventKind) -> int:
    """Writes other bytes over what the first Event of a kind says; its sequence."""
    key = keys.log(store.base(store.partition_of(group)), group)
    entries = await store.run(lambda redis: redis.xrange(key))
    (at, *_) = [at for at, (_, fields) in enumerate(entries) if fields[b"k"] == kind.value.encode()]
    entries[at][1][b"d"] = NOT_PACKED
    await store.run(lambda redis: redis.delete(key))
    for entry_id, fields in entries:
        await store.run(partial(_put, key=key, entry_id=entry_id, fields=fields))
    return at + 1


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_s12_an_event_that_cannot_be_read_halts_its_group_only_where_it_bears_state(
    fleet: Fleet, desk: Desk, server: EmbeddedServer, tmp_path: Path
) -> None:
    """Both logs are read by the Worker that takes up what it had; the digest of what stands there is said."""
    items = [sleeper(f"i{n:03}", 0.005) for n in range(100)]
    quiet = await desk.submit("quiet", *items)
    await desk.submit("stateful", *items[:3])
    beside = await desk.submit("beside", *items[:20])
    await one_who_died(desk.store, AgentId("w"), GroupId("quiet"), GroupId("stateful"))
    said = await garble(desk.store, GroupId("quiet"), K.PROGRESSED)
    bad = await garble(desk.store, GroupId("stateful"), K.STARTED)
    worker = fleet.start("w")
    await fleet.ready(worker)
    assert len(await beside.results(timeout=30)) == 20
    assert len(await quiet.results(timeout=60)) == 100
    assert worker.child.poll() is None
    log, digest = " ".join(worker.log_text().split()), codec.digest(NOT_PACKED)
    assert f"Event {said} (work.progressed, entry {said}-0 of its log) is left out: " in log
    assert f"group stateful is halted here: group stateful: log entry b'{bad}-0' is not an Event" in log
    assert f"{len(NOT_PACKED)} bytes, digest {digest}" in log
    assert "`treadle verify stateful` tells what differs, `treadle repair stateful` puts it right" in log
    assert "group quiet is halted" not in log
    run = Commands(server.url, tmp_path)
    (found,) = run("verify", "quiet", "--json").document()["missions"]
    assert [(one["seq"], one["kind"]) for one in found["quarantined"]] == [(said, "work.progressed")]
    assert digest in found["quarantined"][0]["why"]
    assert found["differences"] == []
    assert "1 left out, no difference" in run("verify", "quiet").stdout
    assert "is not an Event" in run("verify", "stateful", status=1).stdout
