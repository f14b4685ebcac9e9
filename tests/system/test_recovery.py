"""Who recovers dies as well, and what is to be recovered kills: work comes back all the same (BR-03, BR-55)."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from commanding import Commands
from fleet import TESTS, Desk, Fleet, chain, sleeper, until
from ledger import runs_of
from treadle.coordinator import Retry, WorkSpec
from treadle.shared import codec
from treadle.shared.model import EventKind

pytestmark = pytest.mark.slow

K = EventKind
SWEEP_MS, MARGIN_MS = 5_000, 2_500
"""How often everything that is due is looked at at least, and what a busy machine may need besides."""

MORTAL = f"""
import os, signal, sys
sys.path.insert(0, {str(TESTS)!r})
from treadle.shared.store import Authority, keys
from treadle.worker.cli import main

moment = os.environ["FLEET_DIES"]
tick, turns = Authority.tick, Authority.turns

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def mortal_tick(self, partition, **terms):
    now_ms, due_key = await self.store.now_ms(), keys.due(self.store.base(partition))
    due = await self.store.run(lambda client: client.zrangebyscore(due_key, "-inf", now_ms))
    has_lapsed = any(entry.startswith(b"l ") for entry in due)
    if moment == "before" and has_lapsed:
        die()
    answer = await tick(self, partition, **terms)
    if moment == "after" and has_lapsed:
        die()
    return answer

async def mortal_turns(self, session, asked):
    answers = await turns(self, session, asked)
    if moment == "taken" and any(outcome.grants for answer in answers for outcome in answer.outcomes):
        die()
    return answers

Authority.tick, Authority.turns = mortal_tick, mortal_turns
main()
"""
"""A Worker that is killed by SIGKILL in the middle of a recovery: before it asks the store to carry out what is due, once
that is answered and before anything comes of it, or once it has taken what came of it."""


async def test_br_03_killed_in_the_middle_of_recovering_one_after_the_other_the_survivors_recover_it_all(
    fleet: Fleet, desk: Desk
) -> None:
    """There is no lock on the sweep, so none can be left behind, and no sweeper to be named by an alert: every Worker
    carries out what is due, and each entry is carried out by whoever comes first, in one transaction.
    """
    holder = fleet.start("holder", slots=8)
    await fleet.ready()
    missions = [await desk.submit(f"m{n}", sleeper("a", 300.0, again_s=0.05)) for n in range(8)]
    await until(lambda: len(fleet.lines("a", "begin")) == 8, description="one holds them all", of=(holder,))
    survivors = [fleet.start(f"survivor-{n}", slots=8) for n in range(2)]
    await fleet.ready(*survivors)
    for survivor in survivors:
        survivor.pause()
    holder.kill()
    for number, moment in enumerate(("before", "after", "taken", "before", "after")):
        groups = ("--groups", "*" if moment == "taken" else "none")  # so that it ends nothing before its moment
        mortal = fleet.start(f"mortal-{number}", slots=8, program=("-c", MORTAL), arguments=groups, FLEET_DIES=moment)
        assert mortal.exit_status(within_s=20) == -signal.SIGKILL, "killed in the middle of it"
    for survivor in survivors:
        survivor.resume()
    resumed_ms = await desk.store.now_ms()
    for mission in missions:
        assert set(await mission.results(timeout=30)) == {"a"}, fleet.tell()
        last = runs_of(await desk.log(mission.id))[-1]
        assert last.agent.startswith("survivor")
        assert last.started_ms - resumed_ms <= 1000 * fleet.ttl_s + SWEEP_MS + MARGIN_MS
        assert len(await desk.of_kind(mission.id, K.RESULT_ACCEPTED)) == 1
    lapses = [await desk.of_kind(mission.id, K.LAPSED) for mission in missions]
    assert all(lapses)
    assert max(len(of_one) for of_one in lapses) > 1, "what a sweeper took and died with was recovered too"

    later = await desk.submit("later", sleeper("a", 300.0, again_s=0.05))
    await until(lambda: _of(fleet, "later"), description="one of them holds one item more", of=tuple(survivors))
    (name,) = _of(fleet, "later")
    (victim,) = (survivor for survivor in survivors if survivor.name == name)
    victim.kill()
    killed_ms = await desk.store.now_ms()
    await later.results(timeout=20)
    first, second = runs_of(await desk.log("later"))
    assert (first.agent, second.agent != first.agent) == (victim.name, True)
    assert second.started_ms - killed_ms <= 1000 * fleet.ttl_s + SWEEP_MS + MARGIN_MS


def _of(fleet: Fleet, mission: str) -> set[str]:
    return {line.worker for line in fleet.lines("a", "begin") if line.mission == mission}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("by", "status"), [("os._exit", 9), ("SIGKILL", -signal.SIGKILL)])
async def test_br_55_an_item_that_ends_its_workers_process_is_parked_and_all_others_are_done(
    by: str, status: int, fleet: Fleet, desk: Desk
) -> None:
    """Its runs are counted by the store, since no Worker lives to count them."""
    fleet.ttl_s = 0.5
    poison = WorkSpec(
        id="poison", capability="fleet.deadly", inputs={"file": "bad.pdf", "by": by}, retry=Retry(first_s=0.05)
    )
    good = [sleeper(f"good{n}", 0.005) for n in range(100)]
    first = await desk.submit("m", poison, *good)
    other = await desk.submit("beside", *(chain(f"i{n}", steps=3, step_s=0.01) for n in range(20)))
    for _ in range(2):
        fleet.start()

    async def is_parked() -> bool:
        for member in fleet.members:
            if member.child.poll() is not None and len(fleet.alive()) < 2:
                fleet.start()
        return bool(await desk.of_kind("m", K.PARKED))

    await until(is_parked, description="it is parked", timeout_s=60)
    (event,) = await desk.of_kind("m", K.PARKED)
    assert (event.item, event.get("reason"), event.get("lost_runs")) == ("poison", "POISON", "5")
    deaths = [member for member in fleet.members if member.child.poll() is not None]
    assert [member.child.wait(0) for member in deaths] == [status] * 5
    assert len(fleet.lines("poison", "begin")) == 5
    await other.results(timeout=30)

    async def are_done() -> bool:
        return (await first.view()).verified == 100

    await until(are_done, description="the 100 behind it are done", timeout_s=30, of=tuple(fleet.alive()))
    assert len(fleet.alive()) == 2, "nobody dies of it any more"
    items = await first.items()
    assert (items["poison"].held, items["poison"].lost_runs, items["poison"].has_ended) == ("POISON", 5, False)
    ends = Counter(event.item for event in await desk.of_kind("m", K.RESULT_ACCEPTED))
    assert set(ends.values()) == {1}
    (parked,) = Commands(desk.url, fleet.folder)("parked", "--json").document()["items"]
    assert (parked["mission"], parked["item"], parked["held"], parked["lost_runs"]) == ("m", "poison", "POISON", 5)
    assert parked["digest"] == codec.digest(codec.pack(poison.inputs, field="inputs", limit=codec.INPUTS_MAX))
