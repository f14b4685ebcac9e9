"""`treadle demo`, as a user runs it: the main job on a small folder, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FIGURES = {
    *("missions", "items", "verified", "duplicates", "kills", "resumed_after_s", "redone_files"),
    *("share_a", "share_b", "report_matches", "seconds"),
}


def demo(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder = place / "fleet"
    folder.mkdir(exist_ok=True)
    env = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")}
    return subprocess.run(
        [sys.executable, "-m", "treadle.coordinator.cli", "demo", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def small_tree(folder: Path) -> int:
    """Python files enough to be in the middle of, a tab and a broken one among them; how many."""
    folder.mkdir(parents=True)
    body = "".join(f"def f{n}(x):\n    return x + {n}  # {'.' * (n % 60)}\n\n\n" for n in range(150))
    for number in range(700):
        (folder / f"m{number:03}.py").write_text(f"# file {number}\n{body}class C{number}:\n    pass\n")
    (folder / "tabs.py").write_text("if True:\n\tx = 1\n")
    (folder / "broken.py").write_text("def f(:\n")
    return 702


def test_one_json_object_and_nothing_left(place: Path) -> None:
    files = small_tree(place / "fleet" / "tree")
    report = place / "fleet" / "report.json"
    ran = demo(
        place,
        "--json",
        "--path",
        str(place / "fleet" / "tree"),
        "--ttl",
        "1",
        "--workers",
        "2",
        "--report",
        str(report),
    )
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)
    assert len(ran.stdout.splitlines()) == 1
    assert figures.keys() >= FIGURES
    assert figures["report_matches"] is True
    assert (figures["missions"], figures["duplicates"]) == (2, 0)
    assert figures["verified"] == figures["items"] > 2
    assert figures["kills"] == 1, ran.stderr
    assert figures["resumed_items"] >= 1
    assert figures["resumed_after_s"] > 0
    written = json.loads(report.read_text())
    assert len(written["index"]["files"]) == files
    assert written["index"]["totals"]["unparsable"] == 1
    assert written["audit"]["files_with_tabs"] == ["tabs.py"]
    # And the fixture finds no process and no folder of it.


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["--workers", "0"], "'--workers': '0', must be a whole number from 1 to 32"),
        (["--ttl", "soon"], "'--ttl': 'soon', must be a number of seconds from 1 to 60"),
        (["--path", "absent"], "'--path'"),
        (["--path", "."], "--path: no *.py file below"),
        (["--report", "absent/r.json"], "--report: "),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_options_are_named_with_status_2(arguments: list[str], saying: str, place: Path) -> None:
    ran = demo(place, *arguments)
    assert ran.returncode == 2
    assert saying in ran.stderr
    assert ran.stdout == ""
    assert list((place / "fleet").iterdir()) == []
