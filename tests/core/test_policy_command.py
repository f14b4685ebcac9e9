"""`treadle policy check`, and the page about policies."""

from __future__ import annotations

import json
import re
from pathlib import Path

from treadle.coordinator.cli import app
from treadle.shared.policy import MissionRule
from treadle.shared.policy_file import parse
from typer.testing import CliRunner

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def test_a_sound_file_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[classes.urgent]\nweight = 8\n[[workers]]\nmatch = '*'\nslots = 3\n")
    ran = CliRunner().invoke(app, ["policy", "check", str(file)])
    assert (ran.exit_code, ran.output) == (0, f"{file}: sound: 2 classes, 1 rule of Workers\n")


def test_each_fault_of_a_file_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[classes.urgent]\nweight = 0\n[x]\n")
    ran = CliRunner().invoke(app, ["policy", "check", str(file)])
    lines = ran.output.splitlines()
    assert ran.exit_code == 1
    assert lines[0] == f"{file}:2: classes.urgent.weight: 0 is not allowed; must be 0.001 to 1,000"
    assert lines[1].startswith(f'{file}:3: "x" is no table of a policy')
    ran = CliRunner().invoke(app, ["policy", "check", str(file), "--json"])
    assert (ran.exit_code, json.loads(ran.output)) == (1, {"file": str(file), "ok": False, "faults": lines})


def test_the_page_s_policy_is_one() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    policy = parse(text, name="page")
    assert policy.class_weight("urgent") == 8
    assert policy.mission("acme", "nightly-1") == MissionRule(weight=0.5)
