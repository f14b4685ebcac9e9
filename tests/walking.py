"""Walks the console blocks of a page as a reader would: terminals with a shell, commands typed in them, outputs compared.

A line `w1$ command` is typed in the terminal `w1`; behind `$` alone the command runs to its end. The lines below it are
what it writes; `...` stands for any lines, also in place of a command that was typed before; `^C` is what it says.
What differs from run to run (times, the folder of a server) is compared as such, not by its value.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

ANY = "..."
PATIENCE_S = 30.0
_PROMPT = re.compile(r"^(\w*)\$ (.*)$")
_SOCKET = re.compile(r"(?:/[^\s/']+)+/treadle-\w{8}(?=/s\.sock)")
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"), "<moment>"),
    (_SOCKET, "<folder>"),
    (re.compile(r"(?:/[^\s/]+)+/(?=\w+\.py\b)"), "<place>/"),
    (re.compile(r"@\d{13}\b"), "@<tick>"),
    (re.compile(r", [\d.]+/(?:s|min|h)$"), ""),
    (re.compile(r"\b\d+(?:\.\d+)? (?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"), "<span>"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a block and what it writes."""

    terminal: str
    """'' for the one where each command runs to its end."""
    command: str
    wanted: tuple[str, ...]
    line: int
    """In its page."""


def steps(text: str, line: int) -> list[Step]:
    """The commands of a block that begins in `line` of its page."""
    found: list[tuple[str, str, list[str], int]] = []
    for number, one in enumerate(text.splitlines(), line + 1):
        if prompt := _PROMPT.match(one):
            found.append((prompt[1], prompt[2], [], number))
        else:
            assert found, f"line {number}: a block begins with a prompt"
            found[-1][2].append(one)
    return [Step(terminal, command, tuple(wanted), number) for terminal, command, wanted, number in found]


def constant(line: str) -> str:
    """What of a line is the same at each run."""
    for pattern, name in _VARIES:
        line = pattern.sub(name, line)
    return line.strip()


def matched(wanted: Sequence[str], lines: Sequence[str], *, whole: bool) -> int | None:
    """How many lines `wanted` stands for, from the first on; None where they do not begin so (`whole`: are not so)."""
    if not wanted:
        return None if whole and lines else 0
    if wanted[0] == ANY:
        ends = range(len(lines) + 1)
        return next(
            (at + rest for at in ends if (rest := matched(wanted[1:], lines[at:], whole=whole)) is not None), None
        )
    if not lines or constant(wanted[0]) != constant(lines[0]):
        return None
    rest = matched(wanted[1:], lines[1:], whole=whole)
    return None if rest is None else 1 + rest


@dataclass(slots=True)
class Terminal:
    """A shell, and what was written in it."""

    folder: Path
    output: Path
    environment: Mapping[str, str]
    seen: int = 0
    """Lines that were compared already."""
    _shell: subprocess.Popen[bytes] = field(init=False)
    _numbers: count[int] = field(init=False, default_factory=count)

    def __post_init__(self) -> None:
        with self.output.open("wb") as file:
            self._shell = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.type("trap : INT")  # as a shell that somebody sits at, it outlives what Ctrl-C ends in it

    def type(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\n".encode())
        self._shell.stdin.flush()

    def run(self, command: str) -> list[str]:
        """Type a command, and give what it wrote when it has ended."""
        mark = f"-- {next(self._numbers)} ended --"
        self.type(command)
        self.type(f"echo '{mark}'")
        _until(lambda: mark in self.lines(), lambda: f"`{command}` has not ended:\n{self.tell()}")
        found = self.lines()
        end = found.index(mark)
        lines, self.seen = found[self.seen : end], end + 1
        return lines

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def lines(self) -> list[str]:
        """The whole lines that were written."""
        return self.output.read_text(errors="replace").split("\n")[:-1]

    def tell(self) -> str:
        return "\n".join(self.lines()[self.seen :][-40:])

    def close(self) -> None:
        """End the shell and all that was started in it."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, number)
            except ProcessLookupError:
                break
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end and _is_there(self._shell):
                time.sleep(0.02)
        self._shell.wait()


class Walk:
    """Terminals in one folder, each opened when its name first comes; all are closed behind the `with`."""

    def __init__(self, folder: Path, output: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._output, self._environment = folder, output, environment
        self._terminals: dict[str, Terminal] = {}
        self._bound: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for terminal in reversed(self._terminals.values()):  # the server was first
            terminal.close()

    def take(self, step: Step) -> None:
        """Do what the reader does, and fail where something else comes than the page shows."""
        terminal = self._terminals.get(step.terminal)
        if terminal is None:
            output = self._output / f"terminal-{step.terminal or 'main'}"
            terminal = self._terminals[step.terminal] = Terminal(self._folder, output, self._environment)
        command = step.command
        for written, real in self._bound.items():
            command = command.replace(written, real)
        if not step.terminal:
            lines = terminal.run(command)
            if matched(step.wanted, lines, whole=True) is None:
                _fail(step, lines)
            return
        wanted = list(step.wanted)
        if command == "^C":
            terminal.interrupt()
        elif command == ANY:
            wanted.insert(0, ANY)
        else:
            terminal.type(command)
        _until(
            lambda: matched(wanted, terminal.lines()[terminal.seen :], whole=False) is not None,
            lambda: _told(step, terminal.lines()[terminal.seen :]),
        )
        new = terminal.lines()[terminal.seen :]
        terminal.seen += matched(wanted, new, whole=False) or 0
        self._bind(step.wanted, new)

    def _bind(self, wanted: Sequence[str], lines: Sequence[str]) -> None:
        """The page's server is in a folder of its own: commands that name it mean the real one."""
        for shown, real in zip(wanted, lines, strict=False):
            if (here := _SOCKET.search(shown)) and (there := _SOCKET.search(real)):
                self._bound[here[0]] = there[0]


def _is_there(shell: subprocess.Popen[bytes]) -> bool:
    """Whether anything of a terminal still runs."""
    shell.poll()
    try:
        os.killpg(shell.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _until(predicate: Callable[[], bool], told: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        if time.monotonic() > end:
            pytest.fail(told())
        time.sleep(0.02)


def _told(step: Step, lines: Sequence[str]) -> str:
    wanted, found = "\n".join(step.wanted), "\n".join(lines[-60:])
    return f"line {step.line}: {step.terminal}$ {step.command}\n--- the page shows\n{wanted}\n--- there is\n{found}"


def _fail(step: Step, lines: Sequence[str]) -> None:
    pytest.fail(_told(step, lines))
