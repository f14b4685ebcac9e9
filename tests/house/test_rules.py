"""Each sentence of the house holds, and each would be seen if it were broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from house import rules
from house.reading import WINGS, House, the_house

BROKEN: list[tuple[rules.Rule, str, str]] = [
    (rules.arrows, "worker/slot.py", "from treadle.coordinator.client import Client\n"),
    (rules.arrows, "coordinator/demo.py", "import treadle.worker.examples\n"),
    (rules.arrows, "coordinator/demo.py", "import importlib\nimportlib.import_module('treadle.worker.examples')\n"),
    (rules.arrows, "shared/model.py", "def late():\n    from treadle.worker import handlers\n"),
    (rules.inner_arrows, "worker/core/fold.py", "from ..slot import Slot\n"),
    (rules.inner_arrows, "worker/core/fold.py", "from treadle.shared.store import Store\n"),
    (rules.inner_arrows, "worker/slot.py", "from . import cli\n"),
    (rules.purity, "worker/core/fold.py", "import time\n"),
    (rules.purity, "worker/core/fold.py", "def f():\n    from random import random\n"),
    (rules.purity, "worker/core/fold.py", "async def f(): ...\n"),
    (rules.purity, "worker/core/fold.py", "from datetime import datetime\nat = datetime.now()\n"),
    (rules.purity, "shared/store/keys.py", "import redis\n"),
    (rules.scheduling_reads_no_content, "worker/core/fold.py", "def f(grant):\n    return len(grant.inputs)\n"),
    (rules.scheduling_reads_no_content, "worker/disclosing.py", "def f(view):\n    return view.objective\n"),
    (rules.scheduling_reads_no_content, "worker/taking.py", "from treadle.shared import codec\n"),
    (rules.owners, "worker/slot.py", "import redis.asyncio\n"),
    (rules.owners, "worker/slot.py", "from psutil import Process\n"),
    (rules.owners, "shared/store/log.py", "import msgpack\n"),
    (rules.circles, "worker/slot.py", "from . import loop\n"),
    (
        rules.circles,
        "worker/loop.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .slot import Slot\n",
    ),
    (rules.crossings, "worker/slot.py", "from treadle.worker.loop import Loop\n"),
    (rules.crossings, "worker/slot.py", "from ..shared.model import Event\n"),
    (rules.crossings, "worker/slot.py", "from shared.model import Event\n"),
    (rules.crossings, "tests/core/test_x.py", "import worker\n"),
    (rules.register, "worker/dispatch/__init__.py", '"""New."""\n'),
    (rules.register, "worker/dispatch/roster.py", ""),
    (rules.faces, "worker/__init__.py", '"""The wing."""\n\nVERSION = 1\n'),
    (rules.faces, "worker/__init__.py", "from .slot import Slot\n"),
    (
        rules.faces,
        "worker/__init__.py",
        '"""W."""\nfrom .slot import Slot\nfrom .loop import go\n__all__ = ["go", "Slot"]\n',
    ),
    (rules.room_sizes, "worker/slot.py", "\n" * (rules.ROOM_LINES_MAX + 1)),
    (rules.nothing_that_runs_data, "worker/slot.py", "def f(text):\n    return eval(text)\n"),
    (rules.nothing_that_runs_data, "tests/core/test_x.py", "from pickle import loads\n"),
    (rules.dependencies, "worker/slot.py", "import requests\n"),
]


@pytest.fixture
def small_house(tmp_path: Path) -> Path:
    """A house of the fewest rooms, in which every rule is kept."""
    folders = [*WINGS, "coordinator/core", "worker/core", "worker/examples", "shared/store"]
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text('"""A room."""\n')
    for wing in WINGS:
        (tmp_path / wing / "py.typed").touch()
    (tmp_path / "worker/slot.py").write_text("from .loop import go\n\n\nclass Slot: ...\n")
    (tmp_path / "worker/loop.py").write_text("def go() -> None: ...\n")
    (tmp_path / "worker/cli.py").write_text("from . import loop\n")
    (tmp_path / "coordinator/client.py").write_text("from treadle.shared.model import Event\n\n\nclass Client: ...\n")
    (tmp_path / "shared/model.py").write_text("class Event: ...\n")
    (tmp_path / "tests/core").mkdir(parents=True)
    packages = sorted(f"treadle.{folder.replace('/', '.')}" for folder in folders)
    listed = {f"treadle.{wing}": wing for wing in WINGS}
    (tmp_path / "pyproject.toml").write_text(
        f"""
        [project]
        dependencies = ["redis>=8"]
        [project.optional-dependencies]
        test = ["fakeredis[lua]"]
        [tool.setuptools]
        packages = {json.dumps(packages)}
        package-data = {{ "*" = ["*.lua", "py.typed"] }}
        package-dir = {{ {", ".join(f'"{name}" = "{folder}"' for name, folder in listed.items())} }}
        """
    )
    return tmp_path


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_sentence_holds(rule: rules.Rule) -> None:
    faults = list(dict.fromkeys(rule(the_house())))
    assert not faults, "\n".join([rule.__doc__ or "", *faults])


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_a_kept_sentence_raises_no_alarm(rule: rules.Rule, small_house: Path) -> None:
    assert rule(House(small_house)) == []


@pytest.mark.parametrize(
    ("rule", "name", "text"), BROKEN, ids=[f"{row[0].__name__}-{at}" for at, row in enumerate(BROKEN)]
)
def test_a_broken_sentence_is_seen(rule: rules.Rule, name: str, text: str, small_house: Path) -> None:
    path = small_house / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if rule is rules.circles:
        (small_house / "worker/loop.py").write_text("from .slot import Slot\n")
        (small_house / "worker/slot.py").write_text("from . import loop\n")
        path.write_text(text)
    assert rule(House(small_house)), rule.__doc__


def test_every_rule_has_a_broken_example() -> None:
    assert {row[0] for row in BROKEN} == set(rules.RULES)


def test_the_wings_are_never_loaded_under_their_plain_names(tmp_path: Path) -> None:
    names = sorted(name for name in the_house().names if not name.endswith("__main__"))
    assert {f"treadle.{wing}" for wing in WINGS} <= set(names)
    program = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(json.loads(ran.stdout))
    assert set(names) <= loaded
    assert loaded.isdisjoint(WINGS)
    assert set(sys.modules).isdisjoint(WINGS), "run `pytest`, not `python -m pytest`: that makes `worker` importable"
