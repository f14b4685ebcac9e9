"""What a slot's process prints is in the log line by line, bounded, and never stops the program (BR-65)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from servers import wait_until
from treadle.shared.redaction import MASK, known
from treadle.worker.slots import capture as capturing
from treadle.worker.slots.allowance import SECOND_BYTES, TOTAL_BYTES, Allowance
from treadle.worker.slots.capture import LINE_MAX, Capture, Printed

SECRET = "of-the-slot-9f8e7d6c5b4a"


@pytest.fixture
def capture() -> Iterator[Capture]:
    capture = Capture()
    yield capture
    capture.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "treadle.handler")
    return caplog


def test_a_run_may_say_so_much_a_second_and_so_much_in_all() -> None:
    one = Allowance()
    assert one.takes(SECOND_BYTES, 10.0)
    assert not one.takes(1, 10.9)
    assert one.takes(1, 11.0)
    second = 12.0
    while one.takes(SECOND_BYTES, second):
        second += 1
    assert second <= 12 + TOTAL_BYTES // SECOND_BYTES
    assert one.is_spent(second + 100)
    assert one.dropped_bytes == 1 + SECOND_BYTES


def test_lines_are_named_by_their_run_and_printable(capture: Capture, lines: pytest.LogCaptureFixture) -> None:
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/a")
    os.write(printer, "café\n\x1b[31mred\xff".encode("latin-1") + b"\r\n")
    os.write(complainer, b"no end of line")
    printed.finish()
    printed.begin("m/b")
    os.write(printer, b"other\n" + b"y" * (LINE_MAX + 1))
    printed.finish()
    assert [record.getMessage() for record in lines.records if record.args] == [
        "[m/a] | caf\\xe9",
        "[m/a] | \\x1b[31mred\\xff",
        "[m/a] | no end of line",
        "[m/b] | other",
        f"[m/b] | {'y' * LINE_MAX}",
        "[m/b] | y",
    ]
    capture.forget(printed)
    for end in (printer, complainer):
        with pytest.raises(BrokenPipeError):
            os.write(end, b".")
        os.close(end)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_shown_whole_in_pieces(
    capture: Capture, lines: pytest.LogCaptureFixture, end: bytes
) -> None:
    known.learn([SECRET * 4])  # whatever else is looked for beyond a cut
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/a")
    os.write(printer, b"y" * (2 * LINE_MAX + 1) + end)
    printed.finish()
    shown = [record.getMessage().removeprefix("[m/a] | ") for record in lines.records if record.args]
    assert [len(line) for line in shown] == [LINE_MAX, LINE_MAX, 1]
    capture.forget(printed)
    for one in (printer, complainer):
        os.close(one)


@pytest.mark.parametrize("before", [LINE_MAX - 1, LINE_MAX - 12, LINE_MAX - len(SECRET) + 1, 3 * LINE_MAX - 7])
@pytest.mark.parametrize("step", [1 << 16, 997])
def test_s17_a_line_that_is_too_long_is_cut_beside_a_secret_and_not_within(
    capture: Capture, lines: pytest.LogCaptureFixture, before: int, step: int
) -> None:
    known.learn([SECRET])
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/a")
    said = b"x" * before + SECRET.encode() + b"y" * 2 * LINE_MAX
    for at in range(0, len(said), step):
        os.write(printer, said[at : at + step])
    printed.finish()
    shown = "".join(record.getMessage().removeprefix("[m/a] | ") for record in lines.records if record.args)
    assert shown == "x" * before + MASK + "y" * 2 * LINE_MAX
    capture.forget(printed)
    for end in (printer, complainer):
        os.close(end)


@pytest.mark.parametrize("before", [LINE_MAX - 1, LINE_MAX - 12, LINE_MAX - 30, LINE_MAX - 43, 3 * LINE_MAX - 20])
@pytest.mark.parametrize("step", [1 << 16, 997])
def test_s17_credentials_in_a_url_that_nobody_told_us_of_are_hidden_across_the_cut(
    capture: Capture, lines: pytest.LogCaptureFixture, before: int, step: int
) -> None:
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/a")
    said = b"x" * before + b"redis://ann:never-told-anybody-0815@host/0" + b"y" * 2 * LINE_MAX
    for at in range(0, len(said), step):
        os.write(printer, said[at : at + step])
    printed.finish()
    shown = "".join(record.getMessage().removeprefix("[m/a] | ") for record in lines.records if record.args)
    assert shown == "x" * before + f"redis://{MASK}@host/0" + "y" * 2 * LINE_MAX
    capture.forget(printed)
    for end in (printer, complainer):
        os.close(end)


@pytest.mark.parametrize("before", [0, 10, LINE_MAX])
def test_s17_a_line_that_goes_on_while_nothing_may_be_said_is_shown_whole_or_not_at_all(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    known.learn([SECRET])
    now = [10.0]
    monkeypatch.setattr(capturing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    printed = Printed(-1, -2)
    printed.begin("m/a")
    monkeypatch.setattr(printed, "_take_in", lambda _: 0)
    printed._lines(-1, b"x" * (SECOND_BYTES - 10) + b"\n" + b"z" * 20 + b"\n")
    printed._lines(-1, b"y" * before + SECRET[:9].encode())
    printed._lines(-1, SECRET[9:12].encode())
    now[0] = 12.0
    printed._lines(-1, SECRET[12:].encode() + b"\nshown\n")
    printed.finish()
    assert SECRET[:9] not in lines.text
    assert SECRET[9:] not in lines.text
    assert "[m/a] | shown" in lines.text
    assert "printed too much" in lines.text


def test_a_hundred_megabytes_stop_neither_the_program_nor_fill_memory_or_log(
    capture: Capture, lines: pytest.LogCaptureFixture
) -> None:
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/loud")
    # Few lines and long ones: what is measured holds the records of all that are shown.
    code = "import os\nfor _ in range(1600): os.write(1, (b'x' * 1023 + b'\\n') * 64)"
    tracemalloc.start()
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=printer, stderr=complainer) as program:
        os.close(printer)
        os.close(complainer)
        assert program.wait(50) == 0
    printed.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    shown = sum(len(record.getMessage()) for record in lines.records)
    assert SECOND_BYTES / 2 < shown < 2 * TOTAL_BYTES
    assert "printed too much: 10" in lines.records[-1].getMessage()
    capture.forget(printed)


def test_a_pipe_that_has_ended_is_closed(capture: Capture, lines: pytest.LogCaptureFixture) -> None:
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    os.write(printer, b"last words\n")
    os.close(printer)
    os.close(complainer)
    wait_until(lambda: not Path(f"/proc/self/fd/{out}").exists(), description="closed")
    printed.finish()
    capture.forget(printed)
    assert "last words" in lines.text
