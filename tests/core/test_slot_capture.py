"""What a slot's process prints is in the log line by line, bounded, and never stops the program (BR-65)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import wait_until
from treadle.worker.slots.allowance import SECOND_BYTES, TOTAL_BYTES, Allowance
from treadle.worker.slots.capture import LINE_MAX, Capture


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


def test_a_hundred_megabytes_stop_neither_the_program_nor_fill_memory_or_log(
    capture: Capture, lines: pytest.LogCaptureFixture
) -> None:
    (out, printer), (err, complainer) = os.pipe(), os.pipe()
    printed = capture.watch(out, err)
    printed.begin("m/loud")
    code = "import os\nfor _ in range(1600): os.write(1, (b'x' * 63 + b'\\n') * 1024)"
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
