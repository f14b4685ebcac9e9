"""`treadle-worker drain`, said from another shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleet import Fleet
from treadle.shared.processes import Child, spawn

DRAIN = (sys.executable, "-m", "treadle.worker.cli", "drain")


@dataclass(frozen=True, slots=True)
class Drained:
    """What the command said, and its exit status."""

    stdout: str
    stderr: str
    status: int

    def states(self) -> dict[str, str]:
        """By name, what has become of each Worker."""
        (line,) = self.stdout.splitlines()
        found: dict[str, Any] = json.loads(line)
        return {one["name"]: one["state"] for one in found["workers"]}


def _environment(fleet: Fleet) -> dict[str, str]:
    return {**os.environ, "XDG_RUNTIME_DIR": str(fleet.folder)}


def drain(fleet: Fleet, *options: str, through: Sequence[str] = ()) -> Drained:
    """Says it and returns when it is done; `through`: what runs it elsewhere."""
    ran = subprocess.run(
        [*through, *DRAIN, *options], env=_environment(fleet), capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return Drained(ran.stdout, ran.stderr, ran.returncode)


def begin_to_drain(fleet: Fleet, *options: str) -> Child:
    """Says it, and returns while it goes on."""
    return spawn([*DRAIN, *options], env=_environment(fleet), stdout=-3, stderr=-3)
