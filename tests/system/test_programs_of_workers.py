"""Programs as capabilities of real Workers: through crashes, stops and time-outs, and nothing of them is left (S16)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from fleet import Desk, Fleet, Member, until
from treadle.coordinator import MissionFailed, Retry, WorkSpec
from treadle.shared.model import EventKind

K = EventKind
pytestmark = pytest.mark.slow

SAVES = """\
#!/bin/sh
# Notes each step it does, and saves it: SAVES DIR STEPS
echo $$ > "$1/$TREADLE_ITEM.pid"
step=$(cat "$TREADLE_CHECKPOINT/step" 2>/dev/null || echo 0)
trap 'touch "$1/$TREADLE_ITEM.told"; touch "$TREADLE_CHECKPOINT/.ready"; exit 143' TERM
while [ "$step" -lt "$2" ]; do
    while [ -e "$1/hold-$step" ]; do sleep 0.02; done
    step=$((step + 1))
    echo "$step" >> "$1/$TREADLE_ITEM.steps"
    echo "$step" > "$TREADLE_CHECKPOINT/step"
    touch "$TREADLE_CHECKPOINT/.ready"
    while [ -e "$TREADLE_CHECKPOINT/.ready" ]; do sleep 0.02; done
done
echo "$step steps, attempt $TREADLE_ATTEMPT"
"""
STAYS = 'echo $$ > "$1/$TREADLE_ITEM.pid"; trap "" TERM; (sleep 600 & echo $! > "$1/$TREADLE_ITEM.child"; wait) & wait'
MODULE = """\
from treadle.worker import Limits, command

patient = command("patient", ["./saves", "{folder}", "{steps}"], saves_on_sigterm=True)
bounded = command("bounded", ["sh", "-c", "head -c 300000000 /dev/zero | tail -c 1 >/dev/null; echo $DATA"],
                  environment=["DATA"], limits=Limits(memory_mb=256))
"""


@pytest.fixture
def folder(fleet: Fleet) -> Path:
    """Where the programs stand, and note what they do: the folder in which Workers are started."""
    program = fleet.folder / "saves"
    program.write_text(SAVES)
    program.chmod(0o755)
    (fleet.folder / "programs.py").write_text(MODULE)
    return fleet.folder


def worker_of(fleet: Fleet, *commands: str, **options: Any) -> Member:
    given = [part for one in commands for part in ("--command", one)]
    return fleet.start(arguments=("--handlers", "programs", *given), **options)


def steps_of(folder: Path, item: str) -> list[int]:
    noted = folder / f"{item}.steps"
    return [int(line) for line in noted.read_text().split()] if noted.exists() else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_program_goes_on_from_its_files_when_its_worker_was_killed(
    fleet: Fleet, desk: Desk, folder: Path
) -> None:
    """BR-19: what was saved is not done again; the program of the dead Worker is gone before."""
    (folder / "hold-3").touch()
    first = worker_of(fleet, "saves=./saves {folder} {steps}", slots=1)
    await fleet.ready()
    work = WorkSpec(id="a", capability="saves", inputs={"folder": str(folder), "steps": 6})
    mission = await desk.submit("m", work)
    await until(lambda: steps_of(folder, "a") == [1, 2, 3], description="half of it is done", of=(first,))

    async def saved() -> bool:
        return len(await desk.of_kind("m", K.PROGRESS_SAVED)) == 3

    await until(saved, description="all of that is saved", of=(first,))
    program = int((folder / "a.pid").read_text())
    first.kill()
    await until(lambda: not is_running(program), description="its program is gone")
    (folder / "hold-3").unlink()
    second = worker_of(fleet, "saves=./saves {folder} {steps}", slots=1)
    await fleet.ready(second)
    assert await mission.results(timeout=30) == {"a": "6 steps, attempt 2"}
    assert steps_of(folder, "a") == [1, 2, 3, 4, 5, 6]


async def test_a_worker_that_stops_tells_a_program_that_saves_on_sigterm_and_no_failure_is_counted(
    fleet: Fleet, desk: Desk, folder: Path
) -> None:
    (folder / "hold-2").touch()
    first = worker_of(fleet, slots=1, grace_s=20)
    await fleet.ready()
    work = WorkSpec(id="a", capability="patient", inputs={"folder": str(folder), "steps": 4}, retry=0)
    mission = await desk.submit("m", work)
    await until(lambda: steps_of(folder, "a") == [1, 2], description="half of it is done", of=(first,))
    first.signal(signal.SIGTERM)
    assert first.exit_status(within_s=20) == 0
    assert (folder / "a.told").exists()
    (folder / "hold-2").unlink()
    await fleet.ready(worker_of(fleet, slots=1))
    assert await mission.results(timeout=30) == {"a": "4 steps, attempt 2"}
    kinds = [event.kind for event in await desk.log("m")]
    assert K.FAILED not in kinds
    assert kinds.count(K.CHECKPOINTED) == 1


@pytest.mark.parametrize("how", ["cancelled", "out of time", "its Worker is killed"])
async def test_s16_however_a_run_ends_nothing_of_its_program_is_left(
    how: str, fleet: Fleet, desk: Desk, folder: Path
) -> None:
    (folder / "stays").write_text(f"#!/bin/sh\n{STAYS}\n")
    (folder / "stays").chmod(0o755)
    worker = worker_of(fleet, "stays=./stays {folder}", slots=1)
    await fleet.ready()
    timeout_s = 2.0 if how == "out of time" else None
    work = WorkSpec(id="a", capability="stays", inputs={"folder": str(folder)}, retry=0, timeout_s=timeout_s)
    mission = await desk.submit("m", work)
    await until(lambda: (folder / "a.child").exists(), description="the program runs", of=(worker,))
    pids = [int((folder / f"a.{name}").read_text()) for name in ("pid", "child")]
    match how:
        case "cancelled":
            await mission.cancel_item("a")
        case "out of time":
            with pytest.raises(MissionFailed, match="longer than its time-out of 2 s"):
                await mission.results(timeout=30)
        case _:
            worker.kill()
    await until(lambda: not any(map(is_running, pids)), description="nothing of the program is left", of=(worker,))


async def test_exit_statuses_and_limits_are_kept_to_by_the_contract(fleet: Fleet, desk: Desk, folder: Path) -> None:
    tries = f"test -e {folder}/again-$TREADLE_ATTEMPT || {{ touch {folder}/again-2; exit 75; }}; echo $TREADLE_ATTEMPT"
    again = f"again=sh -c '{tries}'"
    worker = worker_of(fleet, again, "final=sh -c 'echo no such file >&2; exit 65'", DATA="set", slots=2)
    await fleet.ready()
    good = [
        WorkSpec(id="again", capability="again", retry=Retry(retries=2, first_s=0.05, most_s=0.1)),
        WorkSpec(id="bounded", capability="bounded"),
    ]
    mission = await desk.submit("m", *good)
    assert await mission.results(timeout=30) == {"again": 2, "bounded": "set"}
    bad = await desk.submit("bad", WorkSpec(id="final", capability="final", retry=5))
    with pytest.raises(MissionFailed, match="exit status 65: no such file"):
        await bad.results(timeout=30)
    assert (await bad.items())["final"].lease_number == 1
    assert worker.said(r"\[bad/final\].*no such file"), "what it says on standard error is in the log"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("x=no-such-program-here", "command x: 'no-such-program-here' is in no folder of PATH"),
        ("x=./not-there", "is not there"),
        ("x=./programs.py", "may not be run; `chmod [+]x` it"),
        ("x", "is not of the form 'NAME=PROGRAM ARGUMENT ...'"),
        ("x=echo 'half", "--command x: no closing quotation"),
        ("X!=echo", "command: capability: 'X!' is not a capability name"),
        ("patient=echo", "'patient' is in programs too"),
    ],
)
def test_a_command_that_is_wrong_is_said_before_anything_is_taken(
    command: str, said: str, fleet: Fleet, folder: Path
) -> None:
    assert folder
    worker = worker_of(fleet, command)
    assert worker.exit_status(within_s=20) == 2
    assert worker.said(said), worker.log_text()
