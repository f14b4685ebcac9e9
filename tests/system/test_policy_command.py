"""`treadle policy` on a real server: applied, shown, recorded; a wrong file changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commanding import Commands
from fleet import Fleet, until
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

URGENT = "[classes.urgent]\nweight = 8\n"


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


async def test_a_policy_is_applied_shown_and_its_changes_listed(run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(URGENT)
    assert "no policy was applied" in run("policy", "show").stderr
    assert run("policy", "show", "--json").document()["version"] == 0
    assert "no policy was ever applied" in run("policy", "history").stderr
    assert run("policy", "apply", str(file), "--note", "more").stdout == f"{file}: is version 1 of the policy\n"
    assert run("policy", "apply", str(file)).stdout == f"{file}: was already version 1 of the policy\n"
    assert run("policy", "show").stdout == URGENT
    file.write_text("")
    assert run("policy", "apply", str(file), "--json").document() == {"version": 2, "changed": True}
    found = run("policy", "history", "--json").document()["changes"]
    assert [(one["version"], one["note"]) for one in found] == [(2, ""), (1, "more")]
    assert all(one["actor"] for one in found)
    assert run("policy", "history").stdout.splitlines()[2].startswith("      1")
    file.write_text("[classes.urgent]\nweight = 0\n")
    assert f"{file}:2: classes.urgent.weight: 0 is not allowed" in run("policy", "apply", str(file), status=2).stderr
    assert run("policy", "show", "--json").document()["version"] == 2


async def test_a_worker_applies_the_file_it_was_given_and_follows_it(
    run: Commands, fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(URGENT)

    def last() -> tuple[int, str]:
        shown = run("policy", "show", "--json").document()
        return shown["version"], shown["actor"]

    one, two = fleet.start("w1", TREADLE_POLICY=str(file)), fleet.start("w2", arguments=("--policy", str(file)))
    await fleet.ready()
    await until(lambda: last()[0] == 1, description="their file is the policy", of=(one, two))
    assert last()[1] in ("w1", "w2")
    file.write_text("[classes.urgent]\nweight = 0\n")
    await until(
        lambda: f"{file}:2: classes.urgent.weight: 0 is not allowed" in one.tail(),
        description="the fault is said",
        of=(one,),
    )
    file.write_text("")
    await until(lambda: last()[0] == 2, description="the mended file is the policy", of=(one, two))
    assert run("policy", "show", "--json").document()["text"] == ""
