"""Two slots of each of two Missions at one Worker process, each with marks of its own: none is found at another (S17).

Outside of the slots nothing has a secret: not the log, not the store, not what the kernel shows of any process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from fleet import Desk, Fleet, Member
from taint import SLOTS, Slot, dumped, found, strangers
from treadle.coordinator import Retry, WorkSpec
from treadle.shared import processes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")]

SECRETS = [slot.secret for slot in SLOTS]
RUNTIMES = ["task", "process"]


def grants(folder: Path) -> dict[str, str]:
    """Writes a credentials file, a source of each kind in it; the variables that it names."""
    variables, lines = dict[str, str](), list[str]()
    for number, slot in enumerate(SLOTS):
        secret = folder / f"secret-{number}"
        secret.write_text(slot.secret + "\n")
        source = (f"env:KEY_{number}", f"file:{secret.name}", f"command:cat {secret}", f"env:KEY_{number}")[number]
        if source.startswith("env:"):
            variables[f"KEY_{number}"] = slot.secret
        lines += [
            "[[grant]]",
            f"missions = {json.dumps(slot.mission)}",
            f"capabilities = {json.dumps(slot.capability)}",
            f"secrets = {{ key = {json.dumps(source)} }}",
        ]
    (folder / "grants.toml").write_text("\n".join(lines))
    return variables


def work(slot: Slot, folder: Path, *, is_alone: bool) -> WorkSpec:
    inputs: dict[str, Any] = {**slot.inputs, "folder": str(folder), "slots": len(SLOTS), "is_alone": is_alone}
    return WorkSpec(
        id=slot.item,
        capability=slot.capability,
        inputs=inputs,
        budgets={slot.mark("budget"): 100},
        retry=Retry(retries=1, first_s=0.001),
    )


def shown_by_the_kernel(worker: Member) -> list[str]:
    """The environments and command lines of a Worker and of all it has started."""
    me = processes.identity(worker.child.pid)
    assert me is not None
    said: list[str] = []
    for one in processes.tree_of(me):
        for file in ("environ", "cmdline"):
            try:
                said.append(Path(f"/proc/{one.pid}/{file}").read_bytes().decode("latin-1"))
            except OSError:  # it has ended meanwhile
                continue
    return said


async def played(fleet: Fleet, desk: Desk, runtime: str) -> tuple[Member, list[dict[str, Any]], list[str]]:
    """The scene, to its end: its Worker, what the slots wrote down, and what the kernel showed meanwhile."""
    reports = fleet.folder / "reports"
    reports.mkdir()
    arguments = ["--handlers", "taint_handlers", "--credentials", "grants.toml", "--log-level", "debug"]
    arguments += [] if runtime == "task" else ["--runtime", runtime]
    variables: Any = grants(fleet.folder)
    worker = fleet.start(slots=len(SLOTS), ttl_s=30, arguments=tuple(arguments), **variables)
    await fleet.ready(worker)
    missions = [
        await desk.submit(
            id, *(work(slot, reports, is_alone=runtime == "process") for slot in SLOTS if slot.mission == id)
        )
        for id in dict.fromkeys(slot.mission for slot in SLOTS)
    ]
    kernel = shown_by_the_kernel(worker)
    for mission in missions:
        results = await mission.results(timeout=60)
        assert results == {slot.item: {"mark": slot.mark("result")} for slot in SLOTS if slot.mission == mission.id}
        kernel += shown_by_the_kernel(worker)
    return worker, [json.loads(file.read_text()) for file in sorted(reports.glob("*.json"))], kernel


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_s17_no_slot_of_a_worker_process_comes_upon_the_marks_of_another(
    fleet: Fleet, desk: Desk, runtime: str
) -> None:
    worker, reports, kernel = await played(fleet, desk, runtime)
    assert len(reports) == 2 * len(SLOTS), "each slot looked at both attempts"
    assert [found for report in reports for found in report["found"].values() if found] == [], reports
    if runtime == "process":
        assert worker.child.pid not in {report["pid"] for report in reports}
        assert len({report["pid"] for report in reports}) == len(reports), "after a failure a process is not used again"

    assert found(SECRETS, kernel) == []
    log = worker.log_text()
    assert log.count("logged by") >= len(reports), worker.tail()
    assert found(SECRETS, [log]) == []
    for slot in SLOTS:
        lines = [line for line in log.splitlines() if slot.name in line]
        assert lines
        assert strangers(slot.name, lines) == []
    with redis.Redis.from_url(desk.url) as client:
        store = dumped(client)
    assert found(SECRETS, store.values()) == []
    whole = "\n".join(store.values())
    assert [mark for slot in SLOTS for mark in slot.marks if mark not in whole] == SECRETS, "all the others are stored"


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_s17_a_grant_that_is_too_wide_is_found(
    fleet: Fleet, desk: Desk, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    everything = '[[grant]]\nmissions = "*"\ncapabilities = "*"\nsecrets = { ' + ", ".join(
        f'k{number} = "file:secret-{number}"' for number in range(len(SLOTS))
    )
    narrow = grants

    def wide(folder: Path) -> dict[str, str]:
        variables = narrow(folder)
        with (folder / "grants.toml").open("a") as file:
            file.write(f"\n{everything} }}\n")
        return variables

    monkeypatch.setattr(sys.modules[__name__], "grants", wide)
    _, reports, _ = await played(fleet, desk, runtime)
    for where in ("context", "memory") if runtime == "process" else ("context",):
        assert all(len(report["found"][where]) == len(SLOTS) - 1 for report in reports), reports
