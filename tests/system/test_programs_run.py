"""A program as a handler, really run: its inputs, its result, its files, its secrets, its end. No Worker is needed for that."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from fleet import until
from treadle.shared.redaction import known
from treadle.worker import Fail
from treadle.worker.slots import program
from treadle.worker.slots.program import Program

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="every test is a shell script")


@dataclass
class Told:
    """A context as a command asks of it; a save may end the run, as a Yield does."""

    mission: str = "m/1"
    item: str = "a b"
    attempt: int = 3
    checkpoint_state: dict[str, Any] = field(default_factory=dict)
    why_stopped: str = ""
    credentials: dict[str, str] = field(default_factory=dict)
    saves: list[dict[str, Any]] = field(default_factory=list)
    ends_at_save: bool = False

    async def checkpoint(self, state: dict[str, Any]) -> None:
        self.checkpoint_state = state
        self.saves.append(state)
        if self.ends_at_save:
            raise asyncio.CancelledError


async def ran(script: str, *arguments: str, told: Told | None = None, inputs: Any = None, **of: Any) -> Any:
    made = Program(["sh", "-c", script, "sh", *arguments], **of)
    with anyio.fail_after(30):
        return await made(told or Told(), inputs or {})  # type: ignore[arg-type]


async def test_inputs_come_in_as_json_and_what_is_printed_is_the_result() -> None:
    told = Told()
    script = 'inputs=$(cat); printf \'{"inputs": %s, "about": "%s %s %s", "size": %s}\' "$inputs" ' + (
        '"$TREADLE_MISSION" "$TREADLE_ITEM" "$TREADLE_ATTEMPT" "$1"'
    )
    inputs = {"size": 128, "names": ["ä", None]}
    assert await ran(script, "{size}", told=told, inputs=inputs) == {
        **{"inputs": inputs, "about": "m/1 a b 3", "size": 128},
    }


async def test_a_program_need_not_read_its_inputs_and_may_print_text() -> None:
    assert await ran("echo done", inputs={"large": "x" * 1_000_000}) == "done"


@pytest.mark.parametrize(("status", "retryable"), [(3, True), (64, False), (75, True)])
async def test_an_exit_status_and_the_last_words_are_the_failure(
    status: int, retryable: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Fail, match=f"exit status {status}: no such file: x") as caught:
        await ran(f"echo no such file: x >&2; exit {status}")
    assert caught.value.retryable is retryable
    assert "no such file: x" in capfd.readouterr().err, "its slot has it in the log"


async def test_s17_no_half_of_a_secret_is_left_where_the_last_words_begin() -> None:
    known.learn(["of-the-program-1a2b3c4d"])
    for behind in (980, 990, 999):
        with pytest.raises(Fail) as caught:
            await ran(f"printf 'of-the-program-1a2b3c4d redis://ann:hunter2@h/%0{behind - 10}d' 0 >&2; exit 3")
        assert not any(part in str(caught.value) for part in ("program", "1a2b", "3c4d", "hunter"))


async def test_a_program_that_is_killed_fails_by_its_signal() -> None:
    with pytest.raises(Fail, match=r"killed by signal 9 \(SIGKILL\)") as caught:
        await ran("kill -9 $$")
    assert caught.value.retryable


async def test_a_program_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(Fail, match="'/no/such/program' cannot be run: No such file"):
        await Program(["/no/such/program"])(Told(), {})  # type: ignore[arg-type]


async def test_br_65_an_output_that_is_too_large_ends_the_program_and_names_the_bound() -> None:
    with pytest.raises(Fail, match="its output is more than 1,048,576 bytes"):
        await ran("exec cat /dev/zero")


SAVES = """
done=$(cat "$TREADLE_CHECKPOINT/done" 2>/dev/null || echo 0)
while [ "$done" -lt 4 ]; do
    done=$((done + 1))
    echo "$done" > "$TREADLE_CHECKPOINT/done"
    touch "$TREADLE_CHECKPOINT/.ready"
    while [ -e "$TREADLE_CHECKPOINT/.ready" ]; do sleep 0.01; done
    [ "$done" = "$1" ] && exit 75
done
echo "$done"
"""


async def test_files_are_saved_when_they_are_ready_and_are_there_at_the_next_attempt() -> None:
    told = Told()
    with pytest.raises(Fail, match="exit status 75"):
        await ran(SAVES, "2", told=told)
    assert told.checkpoint_state == {"files": {"done": b"2\n"}}
    assert await ran(SAVES, "never", told=told) == 4
    assert [save["files"]["done"] for save in told.saves] == [b"1\n", b"2\n", b"3\n", b"4\n"]


async def test_what_is_ready_as_the_program_ends_for_now_is_saved_too() -> None:
    told = Told()
    with pytest.raises(Fail, match="exit status 75"):
        await ran('echo half > "$TREADLE_CHECKPOINT/page"; touch "$TREADLE_CHECKPOINT/.ready"; exit 75', told=told)
    assert told.saves == [{"files": {"page": b"half\n"}}]


async def test_br_65_files_that_are_too_large_end_the_program_with_size_and_bound() -> None:
    script = 'head -c 20000000 /dev/zero > "$TREADLE_CHECKPOINT/big"; touch "$TREADLE_CHECKPOINT/.ready"; sleep 60'
    told = Told()
    with pytest.raises(Fail, match=r"with 'big' \(20,000,000 bytes\) its files are more than"):
        await ran(script, told=told)
    assert told.saves == []


async def test_secrets_come_through_a_pipe_and_stand_in_no_argument_and_no_variable() -> None:
    told = Told(credentials={"smtp": "hunter2"})
    script = 'cat "/dev/fd/$TREADLE_CREDENTIALS" > secrets; env > all; cat secrets; rm secrets'
    assert await ran(f'cd "$TREADLE_CHECKPOINT"; {script}; ! grep -q hunter2 all', told=told) == {"smtp": "hunter2"}


def is_running(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def stopped(script: str, folder: Path) -> None:
    """Runs a program that touches `$1/up`, and stops it then as a run is stopped."""
    task = asyncio.ensure_future(ran(script, str(folder)))
    await until(lambda: (folder / "up").exists(), description="the program runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_run_that_is_stopped_sends_sigterm_and_waits_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "TERM_S", 20)  # a busy machine is no reason not to have heard it
    script = "trap 'echo told > $1/told; exit 0' TERM; touch $1/up; while :; do sleep 0.05; done"
    await stopped(script, tmp_path)
    assert (tmp_path / "told").read_text() == "told\n"


async def test_a_program_that_ignores_sigterm_is_killed_with_what_it_started(tmp_path: Path) -> None:
    script = "trap '' TERM; (trap '' TERM; sleep 600 & echo $! > $1/child; touch $1/up; wait) & wait"
    await stopped(script, tmp_path)
    child = int((tmp_path / "child").read_text())
    await until(lambda: not is_running(child), description="what it started is gone")


async def test_a_program_is_told_that_its_slot_is_asked_for_and_its_next_save_ends_the_run() -> None:
    told = Told(why_stopped="its slot is asked for", ends_at_save=True)
    script = (
        'cd "$TREADLE_CHECKPOINT"; while [ ! -e .stop ]; do sleep 0.01; done; echo 7 > page; touch .ready; sleep 600'
    )
    with pytest.raises(asyncio.CancelledError):
        await ran(script, told=told)
    assert told.saves == [{"files": {"page": b"7\n"}}]


async def test_one_that_saves_on_sigterm_is_told_by_the_signal_and_its_end_is_no_failure() -> None:
    told = Told(why_stopped="its slot is asked for", ends_at_save=True)
    script = 'cd "$TREADLE_CHECKPOINT"; trap "echo 9 > page; touch .ready; exit 143" TERM; while :; do sleep 0.05; done'
    with pytest.raises(asyncio.CancelledError):
        await ran(script, told=told, saves_on_sigterm=True)
    assert told.saves[0] == {"files": {"page": b"9\n"}}


async def test_what_a_program_leaves_running_does_not_keep_its_item() -> None:
    assert await ran("sleep 600 & echo $!") > 1


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["perl", "-ne", 'print "{\\"length\\": ", length($_), "}"'], {"length": 10}),
        (["awk", '{ printf "{\\"length\\": %d}", length($0) }'], {"length": 10}),
        (
            ["node", "-e", "let s='';process.stdin.on('data',d=>s+=d).on('end',()=>console.log(JSON.parse(s)))"],
            "{ a: 123 }",
        ),
    ],
)
async def test_other_languages_are_no_different(program: list[str], code: object) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not on this machine")
    with anyio.fail_after(30):
        assert await Program(program)(Told(), {"a": 123}) == code  # type: ignore[arg-type]


async def test_a_program_that_makes_a_folder_of_its_mark_is_ended_and_told(tmp_path: Path) -> None:
    script = 'echo $$ > "$1"; mkdir "$TREADLE_CHECKPOINT/.ready"; sleep 100'
    with pytest.raises(Fail, match=r"'\.ready' is a folder; make a plain file of it"):
        await ran(script, str(tmp_path / "pid"))
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists(), description="it is gone")


async def test_a_mark_that_cannot_be_made_is_in_the_log_and_the_program_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told, made, seen = Told(), tmp_path / "made", tmp_path / "seen"
    script = 'mkdir "$TREADLE_CHECKPOINT/.stop"; touch "$1"; while [ ! -e "$2" ]; do sleep 0.01; done; echo done'
    err = ""

    def is_said() -> bool:
        nonlocal err
        err += capfd.readouterr().err
        return "checkpoint: '.stop' cannot be made: Is a directory; leave that name to the Worker" in err

    async def ask() -> None:
        await until(made.exists, description="the program has made a folder of it")
        told.why_stopped = "its slot is asked for"
        await until(is_said, description="it is said")
        seen.touch()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        assert await ran(script, str(made), str(seen), told=told) == "done"
