"""Runs the command `treadle` as a program would, without the half second that a process of its own takes to begin."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from treadle.coordinator.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command wrote, and its exit status."""

    stdout: str
    stderr: str
    status: int

    def document(self) -> dict[str, Any]:
        """Its one JSON object; there is nothing else on standard output."""
        (line,) = self.stdout.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found


@dataclass(frozen=True, slots=True)
class Commands:
    """`treadle` against one store, in a folder, with no terminal and nobody to ask."""

    url: str
    folder: Path

    def __call__(self, *arguments: str, status: int = 0, stdin: str = "") -> Ran:
        ran = run(*arguments, stdin=stdin, folder=self.folder, environment={"TREADLE_URL": self.url})
        assert ran.status == status, ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr
        assert re.sub(r"\n", "", ran.stdout + ran.stderr).isprintable(), "nothing in it steers a terminal"
        return ran


def run(*arguments: str, stdin: str = "", folder: Path, environment: Mapping[str, str]) -> Ran:
    """In a thread of its own, since a test may have an event loop already."""
    out, err = io.StringIO(), io.StringIO()

    def work() -> int:
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return 0

    env = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")} | dict(environment)
    standard_input = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["treadle", *arguments]))
        stack.enter_context(mock.patch.object(sys, "stdin", standard_input))
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(_quiet_afterwards())
        with ThreadPoolExecutor(1) as thread:
            status = thread.submit(work).result(timeout=45)
    return Ran(out.getvalue(), err.getvalue(), status)


@contextlib.contextmanager
def _quiet_afterwards() -> Iterator[None]:
    """A command may turn a logger down; this process goes on."""
    logger = logging.getLogger("treadle.client")
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
