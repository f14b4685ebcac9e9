"""What a slot's process may use is bounded by its system, and a bound out of bounds is refused by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from treadle.shared.errors import Misuse
from treadle.worker.slots.limits import BOUNDS, Limits

BEGIN = "from treadle.worker.slots.limits import Limits, apply\n"


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=50, **options)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_limit_out_of_its_bounds_names_itself_the_value_and_the_bounds(name: str) -> None:
    least, most = BOUNDS[name]
    for value in (least - 1, most + 1, True, "7", float("nan")):
        with pytest.raises(Misuse, match=f"limits: {name}: .*, must be a number from {least:,} to {most:,}"):
            Limits(**{name: value})  # type: ignore[arg-type]
    assert Limits(**{name: least}).plain() == {name: least}


def test_memory_beyond_the_limit_is_an_error_in_the_program() -> None:
    code = "apply(Limits(memory_mb=64))\ntry: bytearray(100 << 20)\nexcept MemoryError: print('refused')"
    assert run(code).stdout == "refused\n"


def test_processor_time_counts_from_the_run_on_and_ends_the_process() -> None:
    code = "import resource\n" + "apply(Limits(cpu_s=1))\n" * 2 + "print(flush=True)\nwhile True: pass"
    assert run(code).returncode == -signal.SIGXCPU
    used = "import time\nwhile time.process_time() < 1.2: pass\napply(Limits(cpu_s=1))\nprint('goes on')"
    assert run(used).stdout == "goes on\n"


def test_files_beyond_the_limit_are_refused_to_the_program() -> None:
    code = "import os\napply(Limits(open_files=16))\ntry: [os.pipe() for _ in range(20)]\nexcept OSError as e: print(e.errno)"
    assert run(code).stdout == "24\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, for which the kernel counts")
def test_processes_beyond_the_limit_are_refused_to_the_program() -> None:
    code = """
import os
os.setuid(54321)
apply(Limits(processes=2))
children = []
try:
    while len(children) < 5:
        children.append(os.fork())
        if not children[-1]: os.execv("/bin/sleep", ["sleep", "5"])
except BlockingIOError:
    print(len(children))
for child in children: os.kill(child, 9)
"""
    assert run(code).stdout == "2\n"
