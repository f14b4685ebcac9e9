"""`treadle verify` and `repair` on a real server, with real Workers: a log is deleted under them, and the Mission is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Commands
from fleet import Desk, Fleet, chain, until
from treadle.shared.model import GroupId
from treadle.shared.store import keys
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


async def test_a_mission_whose_log_was_deleted_is_repaired_and_done(run: Commands, desk: Desk, fleet: Fleet) -> None:
    await desk.submit("m", chain("a", steps=1, step_s=0.01), chain("b", steps=1, step_s=0.01))
    assert run("verify", "--all").stdout == "m: 5 Events, 2 items, no difference\n"
    assert run("repair", "m").stdout == "m: nothing to repair\n"
    group = GroupId("m")
    name = keys.log(desk.store.base(desk.store.partition_of(group)), group)
    await desk.store.run(lambda client: client.delete(name))
    said = run("verify", "m", status=1)
    assert "1 difference" in said.stdout
    assert "it ends at or before 0, but 5 were written" in said.stdout
    await fleet.ready(fleet.start())

    async def is_halted() -> bool:
        view = await desk.store.mission(group)
        return view is not None and view.halted == "LOG_REBORN"

    await until(is_halted, description="the Worker that meets it halts it")
    (one,) = run("missions", "--json").document()["missions"]
    assert (one["halted"], one["state"]) == ("LOG_REBORN", "active")
    assert "HALTED" in run("missions").stdout
    assert "treadle repair MISSION" in run("doctor", status=1).stdout
    assert 'repair "m"? say so with --yes' in run("repair", "m", status=2).stderr
    document = run("repair", "m", "--yes", "--reason", "somebody's DEL", "--json").document()
    assert (document["repaired"], document["through"], document["halted"]) == (True, 5, "LOG_REBORN")
    ended = await desk.store.wait_finished(group, timeout_s=30)
    assert (ended.state, ended.verified, ended.halted) == ("approved", 2, "")
    assert run("verify", "m", "--json").document()["missions"][0]["differences"] == []
    assert run("repair", "absent", "--yes", status=1).stderr.startswith(
        'treadle: mission "absent" is not in this store'
    )
