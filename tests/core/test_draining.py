"""Which Workers `treadle-worker drain` means, and which records it trusts."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from socket import gethostname

import pytest
from house.reading import ROOT
from treadle.shared import processes
from treadle.shared.errors import Misuse
from treadle.worker import draining, roster
from treadle.worker.draining import Choice, NoneRunsError, State, ask, wait
from treadle.worker.exits import Exit
from treadle.worker.roster import Record

HERE, THERE = "redis://here:6379/0", "redis://there:6379/0"
ONE = Record("one", 11, "b.1", "b.1", 30.0, HERE)
TWO = Record("two", 12, "b.2", "b.1", 30.0, THERE)
AGAIN = Record("one", 13, "b.3", "b.1", 30.0)


@pytest.mark.parametrize(
    ("choice", "running", "meant"),
    [
        (Choice(), [ONE], [ONE]),
        (Choice(name="two"), [ONE, TWO], [TWO]),
        (Choice(pid=13), [ONE, TWO, AGAIN], [AGAIN]),
        (Choice(name="one", pid=13), [ONE, TWO, AGAIN], [AGAIN]),
        (Choice(every=True), [ONE, TWO], [ONE, TWO]),
        (Choice(name="one", every=True), [ONE, TWO, AGAIN], [ONE, AGAIN]),
        (Choice(every=True), [], []),
        (Choice(store=THERE), [ONE, TWO, AGAIN], [TWO]),
        (Choice(every=True, store=HERE), [ONE, TWO, AGAIN], [ONE]),
    ],
)
def test_what_is_meant(choice: Choice, running: list[Record], meant: list[Record]) -> None:
    assert choice.of(running) == meant


@pytest.mark.parametrize(
    ("choice", "running", "error", "said"),
    [
        (Choice(), [], NoneRunsError, "no Worker runs; none of this user runs on this machine: send SIGTERM"),
        (
            Choice(name="three"),
            [ONE],
            NoneRunsError,
            r"no Worker named three runs; running: one \(pid 11, redis://here:6379/0\)",
        ),
        (Choice(store=THERE), [ONE, AGAIN], NoneRunsError, r"no Worker of redis://there:6379/0 runs; running: one"),
        (Choice(pid=14), [ONE], NoneRunsError, "no Worker with pid 14 runs"),
        (
            Choice(),
            [ONE, AGAIN],
            Misuse,
            rf"2 Workers run: one \(pid 11, {HERE}\), one \(pid 13, store unknown\); say which",
        ),
        (Choice(name="one"), [ONE, AGAIN], Misuse, "2 Workers named one run"),
        (Choice(), [ONE] * 30, Misuse, "30 Workers run: .* and 10 more; say"),
    ],
)
def test_none_and_several_are_refused_and_named(
    choice: Choice, running: list[Record], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        choice.of(running)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"{" * 5_000,
        b"\xff",
        json.dumps({"name": "a", "pid": 0, "started": "b.1", "space": "b.1", "patience_s": 1}).encode(),
        json.dumps({"name": "a", "pid": -1, "started": "b.1", "space": "b.1", "patience_s": 1}).encode(),
        json.dumps({"name": "a", "pid": 2**40, "started": "b.1", "space": "b.1", "patience_s": 1}).encode(),
        json.dumps({"name": "a", "pid": 5, "started": "b.1", "space": "b.1", "patience_s": math.nan}).encode(),
        json.dumps({"name": "a", "pid": 5, "started": "b.1", "space": "b.1", "patience_s": math.inf}).encode(),
        json.dumps({"name": "a", "pid": 5, "started": "b.1", "space": "b.1", "patience_s": -1}).encode(),
        json.dumps({"name": "a", "pid": 5, "started": "unknown", "space": "b.1", "patience_s": 1}).encode(),
    ],
)
def test_what_is_no_record_is_passed_over(raw: bytes) -> None:
    assert Record.read(raw) is None


def test_the_record_of_a_worker_that_said_no_store_is_one_and_of_no_store() -> None:
    old = {"name": "a", "pid": 5, "started": "b.1", "space": "b.1", "patience_s": 1}
    record = Record.read(json.dumps(old).encode())
    assert record is not None
    assert record.store == ""
    assert Choice(every=True, store=HERE).of([record]) == []
    assert Choice().of([record]) == [record]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the records of this test are."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "treadle-workers"


@pytest.fixture
def child() -> Iterator[processes.Child]:
    sleeping = processes.spawn([sys.executable, "-c", "import time; time.sleep(600)"], dies_with_parent=False)
    yield sleeping
    sleeping.stop(grace_s=0)


def test_a_worker_is_there_while_it_lasts_and_nothing_is_left_of_its_record(folder: Path) -> None:
    assert roster.living() == []
    with roster.recorded("w%201", patience_s=7.5, store=HERE):
        (record,) = roster.living()
        assert (record.name, record.pid, record.patience_s) == ("w%201", os.getpid(), 7.5)
        assert record.shown == f"w 1 (pid {os.getpid()}, {HERE})"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [path.suffix for path in folder.iterdir()] == [".json"]
    assert not folder.exists()


def written(folder: Path, record: Record) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{record.pid}.json"
    path.write_text(json.dumps({field: getattr(record, field) for field in record.__slots__}))
    return path


def test_a_record_whose_pid_is_anothers_by_now_is_stale_and_its_process_is_never_signalled(
    folder: Path, child: processes.Child
) -> None:
    earlier = Record("w", child.pid, child.identity.started + "0", roster.here(), 1.0)
    path = written(folder, earlier)
    assert roster.living() == []
    assert not path.exists()
    assert ask([earlier]) == {earlier: State.ENDED}
    assert child.poll() is None


def test_what_cannot_be_read_is_not_signalled(child: processes.Child, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record("w", child.pid, child.identity.started, roster.here(), 1.0)
    with monkeypatch.context() as patched:
        for room in (processes, draining):
            patched.setattr(room, "life_of", lambda _: processes.Life.UNKNOWN)
        assert ask([record]) == {record: State.UNREADABLE}
    assert child.poll() is None


def test_the_record_of_another_namespace_or_boot_is_left_alone(folder: Path, child: processes.Child) -> None:
    path = written(folder, Record("w", child.pid, "else.1", "else.4026531836", 1.0))
    assert roster.living() == []
    assert path.exists()


@pytest.mark.parametrize(
    ("space", "host", "stays"),
    [
        ("00000000.1", gethostname(), False),
        ("00000000.1", "another", True),
        ("00000000.1", "", True),
        ("else.1", gethostname(), True),
        (roster.here() + "1", gethostname(), True),
    ],
    ids=["earlier boot", "another host", "host not written down", "boot not known", "another container"],
)
def test_a_record_of_an_earlier_boot_of_this_host_is_removed_and_no_process_of_its_pid_is_signalled(
    space: str, host: str, stays: bool, folder: Path, child: processes.Child
) -> None:
    path = written(folder, Record("w", child.pid, child.identity.started, space, 1.0, host=host))
    assert roster.living() == []
    assert path.exists() is stays
    assert child.poll() is None


@pytest.mark.parametrize("what", ["open to others", "a link", "a file"])
def test_a_folder_that_is_not_this_users_alone_is_neither_read_nor_written(
    what: str, folder: Path, child: processes.Child, caplog: pytest.LogCaptureFixture
) -> None:
    real = folder.with_name("real") if what == "a link" else folder
    written(real, Record("w", child.pid, child.identity.started, roster.here(), 1.0))
    assert what == "a link" or len(roster.living()) == 1
    if what == "open to others":
        folder.chmod(0o777)
    elif what == "a link":
        folder.symlink_to(real)
    else:
        (path,) = folder.iterdir()
        path.unlink()
        folder.rmdir()
        folder.touch()
    assert roster.living() == []
    before = sorted(folder.parent.rglob("*"))
    with roster.recorded("mine", patience_s=1.0, store=HERE):
        (record,) = roster.living()  # in the other place
        assert (record.name, record.pid) == ("mine", os.getpid())
    assert sorted(folder.parent.rglob("*")) == before
    assert caplog.messages == []


def test_a_worker_that_can_be_written_down_nowhere_says_so_and_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "none"))
    monkeypatch.setenv("TMPDIR", str(folder / "none"))
    with roster.recorded("mine", patience_s=1.0, store=HERE):
        assert roster.living() == []
    (said,) = caplog.messages
    assert "`treadle-worker drain` will not find this Worker" in said
    assert "No such file or directory" in said


def test_a_wait_is_over_at_its_time_and_says_who_still_runs(child: processes.Child) -> None:
    record = Record("w", child.pid, child.identity.started, roster.here(), 1.0)
    gone = replace(record, started=record.started + "0")
    found = wait({record: State.ASKED, gone: State.ASKED}, timeout_s=0.01)
    assert found == {record: State.RUNNING, gone: State.ENDED}


def test_the_exit_statuses_stand_in_one_table_as_the_code_has_them() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = page[page.index("| status | name | `run` | `drain` |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+)(?: \+ n)? \| ([A-Z_]+) \|", table, re.MULTILINE)
    assert {name: int(status) for status, name in rows} == {one.name: one.value for one in Exit}
    assert len(rows) == len(Exit)
    assert (128 + signal.SIGTERM, 128 + signal.SIGINT) == (143, 130)
    assert "143" in table
    assert "130" in table
