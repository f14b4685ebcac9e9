"""Programs in a fresh folder, which knows nothing of this project but what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FRESH = {key: value for key, value in os.environ.items() if not key.startswith(("TREADLE_", "PYTEST_", "PYTHON"))}
"""The environment without what this test run was given itself."""


def python_in(
    folder: Path, *arguments: str, timeout_s: float = 50, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The interpreter of this run, in a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**FRESH, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, in which every warning is an error."""
    return python_in(
        folder, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments, environment=environment
    )
