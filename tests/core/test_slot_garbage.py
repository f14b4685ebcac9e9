"""Whatever the process of a slot says is its own run's failure, never its Worker's (BR-59)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import garbage_handlers
import pytest
from asking import Asked, given_to
from treadle.shared import codec
from treadle.shared.model import GroupId
from treadle.worker.loading import collect
from treadle.worker.slots import slot_process
from treadle.worker.slots.errand import Packed, Reported
from treadle.worker.slots.frames import FRAME_MAX, Kind, write
from treadle.worker.slots.pool import Pool
from treadle.worker.slots.processes import ProcessErrand

pytestmark = pytest.mark.slow

ONE = GroupId("one")
(GARBAGE,) = collect(garbage_handlers).values()


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    pool = Pool(1, ["garbage_handlers"], tmp_path)
    yield pool
    await pool.close()


async def run(pool: Pool, asked: Asked, **inputs: Any) -> Any:
    given = given_to(**inputs)
    errand = ProcessErrand(pool, await pool.take(ONE, GARBAGE.capability), ONE, GARBAGE, given, asked)
    try:
        with anyio.fail_after(20):
            return await errand.run()
    finally:
        await errand.unwound()


def body(value: object) -> bytes:
    return codec.pack(value, field="said", limit=FRAME_MAX)


def said(method: str, value: object) -> bytes:
    return write(Kind.SAY, method, body(value))


def failed(**changes: Any) -> bytes:
    whole = {"type": "T", "text": "t", "place": "p", "code": "c", "retryable": True}
    return write(Kind.END, "failure", body(whole | changes))


SAID = {
    "no bytes of ours": write(Kind.SAY, "log", b"\xc1"),
    "a log of nothing": said("log", []),
    "a log that is no list": said("log", 7),
    "a log with a level that is text": said("log", ["INFO", "name", "text"]),
    "a log by a name that is none": said("log", [20, 7, "text"]),
    "a log whose text is a list": said("log", [20, "name", ["text"]]),
    "progress of one field": said("progress", [1]),
    "progress in text": said("progress", ["1", 1, "", [], ""]),
    "progress whose milestones are a number": said("progress", [1, 1, "", 5, ""]),
    "progress without end": said("progress", [float("nan"), 1, "", [], ""]),
    "too much progress": said("progress", [1, 1, "", ["m"] * 1_000, ""]),
    "spending of nothing": said("spend", []),
    "a method that is none": said("nothing", []),
    "an end that is none": write(Kind.END, "nothing", b""),
    "a result that is none": write(Kind.END, "result", b"\xc1"),
    "a result that is too large": write(Kind.END, "result", body(bytes(codec.RESULT_MAX + 1))),
    "a failure that is none": write(Kind.END, "failure", body([])),
    "a failure without fields": write(Kind.END, "failure", body({})),
    "a failure of numbers": failed(type=1),
    "a failure with a long code": failed(code="c" * 100_000),
    "a failure with long words": failed(type="\x00" * 100_000, text="\x00" * 100_000, place="\x00" * 100_000),
    "a block that is none": write(Kind.END, "blocked", body(5)),
    "a block without fields": write(Kind.END, "blocked", body({})),
    "its Worker's words": write(Kind.STOP, "stop", True),
}


@pytest.mark.parametrize("how", SAID)
async def test_garbage_is_the_failure_of_its_run(pool: Pool, how: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    with pytest.raises(Reported) as error:
        await run(pool, asked, raw=SAID[how])
    assert len(error.value.failure.hidden().evidence()) <= codec.EVIDENCE_MAX
    assert not [one for one in asked.asked if one[0] != "progress"]
    assert "Fatal error" not in caplog.text
    assert "xception" not in caplog.text


ASKED = {
    "no bytes of ours": ("save", b"\xc1"),
    "no list": ("save", body(7)),
    "nothing": ("save", body([])),
    "text for a state": ("save", body(["state"])),
    "a state that cannot be read": ("save", body([b"\xc1"])),
    "a state that is too large": ("save", body([bytes(codec.CHECKPOINT_MAX + 1)])),
    "an effect that is a number": ("begin_effect", body([7])),
    "an effect with spaces": ("begin_effect", body(["a b"])),
    "an effect with a long name": ("begin_effect", body(["a" * 10_000])),
    "a result that is text": ("commit_effect", body(["a", "b"])),
    "a large result": ("commit_effect", body(["a", bytes(codec.EFFECT_MAX + 1)])),
    "what nobody may ask": ("__init__", body([])),
}


@pytest.mark.parametrize("how", ASKED)
async def test_a_question_that_no_context_asks_reaches_no_store(pool: Pool, how: str) -> None:
    asked = Asked()
    method, raw = ASKED[how]
    assert await run(pool, asked, raw=write(Kind.ASK, 1_000, method, raw), waits=False) == Packed(body("done"))
    assert asked.asked == []


async def test_what_is_said_behind_the_end_is_nobodys(pool: Pool) -> None:
    asked = Asked()
    late = write(Kind.ASK, 1_000, "save", body([body({})])) + said("spend", ["tokens", 1])
    await run(pool, asked, raw=write(Kind.END, "result", body("early")) + late)
    assert asked.asked == []


async def test_an_emoji_too_many_in_a_failure_is_cut(pool: Pool) -> None:
    """Evidence is bounded in bytes, whatever its characters are."""
    long = "\U0001f600" * 20_000
    with pytest.raises(Reported) as error:
        await run(pool, Asked(), raw=failed(type=long, text=long, place=long, code=long))
    assert len(error.value.failure.hidden().evidence()) <= codec.EVIDENCE_MAX


async def test_who_asks_and_never_listens_does_not_fill_its_worker(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question too many has an answer, which has to be read."""
    monkeypatch.setattr(slot_process, "UNSENT_BYTES_MAX", 1 << 16)
    questions = write(Kind.ASK, 1, "save", body([])) * 20_000
    with pytest.raises(Reported, match="it does not read what it is answered"):
        await run(pool, Asked(), raw=questions, times=20)  # so many at once may come before the first is answered


async def test_what_is_logged_in_another_runs_name_has_its_own_before_it(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    lines = [said("log", [20, f"name.{number}.garbage", "[m/other] mine"]) for number in range(3)]
    own = said("log", [20, "name", "[m/a] mine"])
    await run(pool, Asked(), raw=b"".join([*lines, own]), waits=False)
    found = [record.getMessage() for record in caplog.records if "mine" in record.getMessage()]
    assert found == 3 * ["[m/a] [m/other] mine"] + ["[m/a] mine"]
    assert not [name for name in logging.root.manager.loggerDict if "garbage" in name and "name" in name]
