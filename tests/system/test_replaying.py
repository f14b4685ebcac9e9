"""`treadle snapshot` and `replay` on a real server: what people see and what programs read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commanding import Commands
from treadle.coordinator.cli import app
from treadle.shared.store.embedded import EmbeddedServer
from typer.testing import CliRunner

pytestmark = pytest.mark.slow
MISSION = json.dumps(
    {
        "id": "team/m",
        "objective": "test",
        "work": [{"id": "a", "capability": "x"}, {"id": "b c", "capability": "y", "after": ["a"]}],
    }
)


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


def documented(command: str) -> set[str]:
    said = CliRunner().invoke(app, [command, "--help"]).output.partition("--json")[2].partition("Arguments:")[0]
    return set(re.findall(r'"(\w+)"', said))


def test_s13_a_mission_is_shown_at_any_sequence_and_says_what_was_trimmed(run: Commands) -> None:
    run("submit", "-", stdin=MISSION)
    now = run("replay", "team/m", "--json").document()
    assert now.keys() | now["items"][0].keys() == documented("replay")
    assert (now["at"], now["state"], now["total"]) == (4, "active", 2)
    assert {row["item"]: row["state"] for row in now["items"]} == {"a": "offered", "b c": "open"}
    assert "team/m at 2: active, 1 items" in run("replay", "team/m", "--at", "2").stdout
    assert 'the log of "team/m" ends at 4' in run("replay", "team/m", "--at", "9").stderr
    made = run("snapshot", "team/m", "--keep", "1", "--json").document()
    assert made.keys() == documented("snapshot")
    assert (made["through"], made["first"]) == (4, 4)
    assert made["digest"] == now["digest"]
    assert run("replay", "team/m", "--at", "4", "--json").document() == now
    refused = run("replay", "team/m", "--at", "3", status=1).stderr
    assert "CURSOR_TOO_OLD" in refused
    assert "go on from its Snapshot at 4" in refused
    assert "Snapshot at 5" in run("snapshot", "team/m").stdout
    assert "is not in the store" in run("snapshot", "nobody", status=1).stderr
    assert "is not in the store" in run("replay", "nobody", status=1).stderr
