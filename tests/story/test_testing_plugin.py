"""The pytest plug-in in somebody else's project: the seed it prints, what it costs, and how it says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fresh import pytest_in, python_in
from treadle.shared.testing.plugin import read_seed

pytestmark = pytest.mark.slow

RACE = '''
"""Which of two Workers gets the work is left to chance, and so to the seed."""
import pytest
from treadle.coordinator import MissionSpec, WorkSpec


async def work(context, inputs):
    return context.worker


async def test_race(treadle_client, treadle_worker, run_until_idle, faults):
    for name in ("anna", "bert"):
        treadle_worker({"x": work}, name=name)
    mission = await treadle_client.submit(
        MissionSpec(objective="o", work=[WorkSpec(id=f"i{n}", capability="x") for n in range(8)])
    )
    await run_until_idle()
    results = await mission.results()
    pytest.fail("got " + " ".join(results.values()) + " for " + mission.id, pytrace=False)
'''


def got(output: str) -> str:
    found = re.search(r"^got (.*)$", output, re.MULTILINE)
    assert found, output
    return found[1]


def test_a_failure_prints_its_seed_and_the_seed_does_it_again(tmp_path: Path) -> None:
    (tmp_path / "test_race.py").write_text(RACE)
    first = pytest_in(tmp_path, "-q")
    assert first.returncode == 1, first.stdout + first.stderr
    seed = re.search(r"^seed (\d+); again: --treadle-seed \1$", first.stdout, re.MULTILINE)
    assert seed, first.stdout
    assert "virtual seconds, who, what" in first.stdout
    assert re.search(r"^ *\d+\.\d{4} +anna turn ", first.stdout, re.MULTILINE), "and the last that happened"
    again = pytest_in(tmp_path, "-q", "--treadle-seed", seed[1])
    by_variable = pytest_in(tmp_path, "-q", TREADLE_TEST_SEED=seed[1], PYTHONHASHSEED="77")
    assert got(first.stdout) == got(again.stdout) == got(by_variable.stdout)
    other = pytest_in(tmp_path, "-q", "--treadle-seed", str(int(seed[1]) + 1))
    assert got(other.stdout) != got(first.stdout)


MISUSED = """
import asyncio
import pytest
from treadle.coordinator import Client, MissionSpec, WorkSpec


def test_sync(treadle_client):
    pass


@pytest.fixture
async def other_loop(treadle_store):
    async with Client.connect(treadle_store, actor="bob") as client:
        yield client


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_fixture_of_another_loop(other_loop, anyio_backend):
    pass


async def test_no_end(treadle_worker, run_until_idle):
    await asyncio.get_running_loop().create_future()
"""


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "test_misused.py").write_text(MISUSED)
    ran = pytest_in(tmp_path, "-q", "--tb=short")
    assert "test_sync: treadle's fixtures live on a virtual clock, so the test must be an `async def`" in ran.stdout
    assert "can be asked on the test's own loop only: make an async fixture that asks it" in ran.stdout
    assert "Deadlock: at 0.000 s no step is ready and no timer is set" in ran.stdout
    assert "1 failed, 2 errors" in ran.stdout


def test_a_seed_is_a_whole_number(tmp_path: Path) -> None:
    assert read_seed(None, "x") is None
    assert [read_seed(text, "x") for text in ("0", "7", str(2**63 - 1))] == [0, 7, 2**63 - 1]
    for wrong in ("", "-1", "x", "1.5", str(2**63), "٣", "9" * 5000):
        with pytest.raises(pytest.UsageError, match=r"--treadle-seed: .* is no seed, must be a whole number of 0 to "):
            read_seed(wrong, "--treadle-seed")
    ran = pytest_in(tmp_path, TREADLE_TEST_SEED="x")
    assert (ran.returncode, "TREADLE_TEST_SEED: 'x' is no seed" in ran.stderr) == (4, True)


PLAIN = """
import sys
import time


def test_plain():
    heavy = {"fakeredis", "redis", "pydantic", "msgpack", "anyio._backends", "treadle.coordinator", "treadle.worker"}
    assert heavy.isdisjoint(sys.modules)
    assert type(time.time).__name__ == "builtin_function_or_method"
"""


def test_tests_that_do_not_use_it_pay_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(PLAIN)
    ran = pytest_in(tmp_path, "-q", "-p", "no:anyio")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    loaded = python_in(
        tmp_path,
        "-c",
        "import sys, pytest; a = set(sys.modules); import treadle.shared.testing.plugin; "
        "print(sorted(name for name in set(sys.modules) - a if name.startswith('treadle')))",
    )
    assert loaded.stdout.strip() == str(
        ["treadle", "treadle.shared", "treadle.shared.testing", "treadle.shared.testing.plugin"]
    )


SYNC_HANDLERS = """
import threading
import time
from treadle.coordinator import MissionSpec, WorkSpec
from treadle.worker import handler


def test_names():
    assert threading.current_thread() is threading.main_thread()


@handler("sum")
def add_up(context, inputs):
    assert threading.current_thread() is not threading.main_thread()
    time.sleep(0.05)
    context.checkpoint({"half": 1})
    return sum(inputs["numbers"])


async def test_sync(treadle_client, treadle_worker, run_until_idle):
    treadle_worker(slots=2)
    work = [WorkSpec(id=f"i{n}", capability="sum", inputs={"numbers": [n, 1]}) for n in range(4)]
    mission = await treadle_client.submit(MissionSpec(objective="o", work=work))
    assert await run_until_idle() < 1, "time stands still while a thread runs"
    assert await mission.results() == {"i0": 1, "i1": 2, "i2": 3, "i3": 4}
"""


def test_handlers_in_threads(tmp_path: Path) -> None:
    (tmp_path / "test_threads.py").write_text(SYNC_HANDLERS)
    ran = pytest_in(tmp_path, "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr


UNREACHED = """
async def test_unreached(treadle_client, faults):
    faults.lose_reply(after=9, of="client")
"""


def test_a_fault_that_never_came_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "test_unreached.py").write_text(UNREACHED)
    ran = pytest_in(tmp_path, "-q")
    assert "faults.lose_reply(after=9, of='client') never came: 0 such calls were made" in ran.stdout


def test_a_broken_installation_is_said(tmp_path: Path) -> None:
    (tmp_path / "test_race.py").write_text(RACE)
    (tmp_path / "conftest.py").write_text(
        "import treadle.shared.testing.plugin as plugin\nplugin.PARTS = 'treadle.nothing'\n"
    )
    ran = pytest_in(tmp_path, "-q")
    assert "treadle is installed without its entry point treadle.nothing:client; install it again" in ran.stdout
