"""Where the cluster's images come from: a registry where one is reached, else Debian's packages and this machine's wheels."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from engine import CannotRun, Engine, Failed, Say, run

TOP = Path(__file__).resolve().parents[1]
BASE_VARIABLE = "TREADLE_TRY_BASE"
PUBLIC = ("python:3.11-slim-bookworm", "redis:7-bookworm")
IMPORTED, REDIS = "treadle-try-base:local", "treadle-try-redis:local"
ROOTFS_PACKAGES = "python3-venv,redis-server,ca-certificates"
# redis-py needs it on Debian's Python 3.11.2, and pip judges by the version it runs on, not by the one it is asked for.
FOR_OLDER_PYTHONS = ("async-timeout",)


@dataclass(frozen=True)
class Images:
    """What the compose file is told about images, and what is to be removed again."""

    variables: dict[str, str]
    """Empty where the file's own defaults are reached."""
    made: tuple[str, ...]
    wheels: bool
    """Whether the build is to be given wheels, and asks no index."""


def images(engine: Engine, say: Say) -> Images:
    """The images of TREADLE_TRY_BASE (an image, or a root file system as tar); else a registry's; else of Debian's packages."""
    base = os.environ.get(BASE_VARIABLE, "")
    if not base and not engine.own and _pulled(engine, say):
        return Images({}, made=(), wheels=False)
    made = [REDIS]
    base = base or str(_rootfs(say))
    if Path(base).is_file():
        say(f"importing {base}")
        engine.docker("import", base, IMPORTED)
        base = IMPORTED
        made.append(IMPORTED)
    # Redis comes from the same base, and not as root: its volume takes over the owner of this folder.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(f"FROM {base}\nRUN mkdir -p /data && chown 999:999 /data\n")
        engine.docker("build", "--quiet", "--tag", REDIS, folder)
    return Images({"TREADLE_BASE": base, "TREADLE_REDIS_IMAGE": REDIS}, made=tuple(made), wheels=True)


def _pulled(engine: Engine, say: Say) -> bool:
    try:
        for image in PUBLIC:
            if not engine.docker("images", "--quiet", image):
                say(f"pulling {image}")
                engine.docker("pull", "--quiet", image, timeout_s=300)
    except Failed as failed:
        say(f"no registry is reached: {str(failed).splitlines()[-1]}")
        return False
    return True


def _rootfs(say: Say) -> Path:
    """Debian 12 with Python and Redis as a tar; made once, in half a minute, then kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treadle" / "base-bookworm.tar"
    if cache.is_file():
        return cache
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        raise CannotRun(
            f"no registry is reached, and to make a base image root and mmdebstrap are needed (apt-get install "
            f"mmdebstrap); or name an image, or a root file system as tar, with {BASE_VARIABLE}"
        )
    say(f"making a base image of Debian's packages, once: {cache}")
    cache.parent.mkdir(parents=True, exist_ok=True)
    part = cache.with_name(f"{os.getpid()}.part.tar")
    command: list[str | Path] = ["mmdebstrap", "--variant=essential", f"--include={ROOTFS_PACKAGES}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale")]
    command += ["bookworm", part]
    # The machine's own list names a mirror it reaches; without one, Debian's own is asked.
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    try:
        run([*command, *([sources] if sources.is_file() else [])], timeout_s=900)
        part.replace(cache)
    except Failed as failed:
        raise CannotRun(str(failed)) from None
    finally:
        part.unlink(missing_ok=True)
    return cache


def download_wheels(folder: Path, say: Say) -> None:
    """Every wheel the image is built from, for Python 3.11, from the package index that this machine uses."""
    say("downloading wheels")
    pyproject = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    wanted = [
        *pyproject["build-system"]["requires"],
        *project["dependencies"],
        *project["optional-dependencies"]["fast"],
        *FOR_OLDER_PYTHONS,
    ]
    python = Path(sys.executable) if importlib.util.find_spec("pip") else TOP / ".venv/bin/python"
    command: list[str | Path] = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--dest", folder, "--only-binary=:all:", "--python-version=3.11"]
    command += [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in (28, 17)]
    try:
        run([*command, *wanted], timeout_s=600)
    except Failed as failed:
        raise CannotRun(f"the wheels cannot be downloaded: {failed}") from None
