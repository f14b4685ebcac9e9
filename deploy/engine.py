"""A Docker engine to try the cluster on: the one that answers, or else one started for the while.

One that is started here lives in namespaces of its own (network, mounts, processes): this machine's interfaces,
firewall and mounts are never touched, and when its first process has ended nothing of it is left, whatever it ran.
The price: it reaches no network, so no registry and no package index; `images.py` brings it what it needs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

COMPOSE_VARIABLE = "TREADLE_TRY_COMPOSE"
PROGRAMS = ("docker", "dockerd", "containerd", "runc", "iptables", "ip", "unshare")
PACKAGES = ("docker.io", "containerd", "runc", "docker-compose", "iptables", "iproute2", "util-linux", "mmdebstrap")
READY_PATIENCE_S = 30.0
STOP_PATIENCE_S = 10.0
OUTPUT_LINES = 30

Say = Callable[[str], None]


class CannotRun(Exception):
    """This machine lacks something; the message says what, and what to do."""


class Failed(Exception):
    """A command failed; the message has it, and the end of its output."""


@dataclass(frozen=True)
class Engine:
    """An engine that answers, and the command that composes on it."""

    environment: dict[str, str]
    """Of every command on it, this program's own and what the compose file asks for."""
    compose: tuple[str, ...]
    own: bool
    """Whether it was started here: it holds no image and reaches no registry."""

    def run(self, *argv: str | Path, cwd: Path | None = None, timeout_s: float = 180.0) -> str:
        return run(argv, environment=self.environment, cwd=cwd, timeout_s=timeout_s)

    def docker(self, *argv: str | Path, timeout_s: float = 180.0) -> str:
        return self.run("docker", *argv, timeout_s=timeout_s)


def run(
    argv: Sequence[str | Path],
    *,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 180.0,
) -> str:
    """The standard output of a command; Failed where its status is not 0 or it takes too long."""
    shown = " ".join(str(part) for part in argv)
    try:
        ended = subprocess.run(
            argv, env=environment, cwd=cwd, timeout=timeout_s, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{shown}: not within {timeout_s:g} s") from None
    except OSError as error:
        raise Failed(f"{shown}: {error}") from None
    if ended.returncode:
        said = "\n".join((ended.stdout + ended.stderr).splitlines()[-OUTPUT_LINES:])
        raise Failed(f"{shown}: status {ended.returncode}\n{said}")
    return ended.stdout.strip()


@contextmanager
def engine(say: Say, *, install: bool) -> Iterator[Engine]:
    """An engine, for as long as the `with` lasts; CannotRun where there is none and none can be started."""
    environment = dict(os.environ)
    if _answers(environment):
        yield Engine(environment, _compose(), own=False)
        return
    if os.geteuid() != 0:
        raise CannotRun("no Docker engine answers, and only root can start one: start one, or run this as root")
    if _missing() and install:
        _install(say)
    if missing := _missing():
        raise CannotRun(
            f"no Docker engine answers, and to start one this machine lacks {', '.join(missing)}; "
            f"--install gets them from Debian's packages (apt-get install {' '.join(PACKAGES)})"
        )
    with _started(say) as environment["DOCKER_HOST"]:
        yield Engine(environment, _compose(), own=True)


def _works(*argv: str, environment: dict[str, str] | None = None) -> bool:
    try:
        run(argv, environment=environment, timeout_s=15)
    except Failed:
        return False
    return True


def _answers(environment: dict[str, str]) -> bool:
    return _works("docker", "version", "--format", "{{.Server.Version}}", environment=environment)


def _missing() -> list[str]:
    lacking = [name for name in PROGRAMS if not shutil.which(name)]
    return lacking if _composers() else [*lacking, "docker-compose"]


def _composers() -> tuple[str, ...]:
    """The command that composes, () where there is none: the one that is named, the plugin, or the older program."""
    if named := os.environ.get(COMPOSE_VARIABLE):
        return (named,)
    if _works("docker", "compose", "version"):
        return ("docker", "compose")
    return ("docker-compose",) if shutil.which("docker-compose") else ()


def _compose() -> tuple[str, ...]:
    if found := _composers():
        return found
    raise CannotRun(f"there is neither `docker compose` nor `docker-compose`; name one with {COMPOSE_VARIABLE}")


def _install(say: Say) -> None:
    say(f"installing {' '.join(PACKAGES)}")
    # RUNLEVEL=1 keeps the packages from starting their services.
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    try:
        run(["apt-get", "update", "-qq"], environment=quiet, timeout_s=300)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        run(command, environment=quiet, timeout_s=900)
    except Failed as failed:
        raise CannotRun(f"--install: {failed}") from None


@contextmanager
def _started(say: Say) -> Iterator[str]:
    """The address of an engine of our own; afterwards its processes, mounts, networks and data are gone."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-engine-", dir="/var/tmp"))
    host = f"unix://{folder}/docker.sock"
    argv: list[str | Path] = ["unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child", "--"]
    argv += ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    argv += ["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "--host", host]
    argv += ["--pidfile", folder / "pid"]
    with (folder / "log").open("wb") as log:
        # In a session of its own: Ctrl-C is for this program, which still needs the engine to tidy up.
        outer = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + READY_PATIENCE_S
        while not _answers(dict(os.environ, DOCKER_HOST=host)):
            if outer.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join((folder / "log").read_text(errors="replace").splitlines()[-OUTPUT_LINES:])
                raise CannotRun(f"dockerd does not start here:\n{tail}")
            time.sleep(0.2)
        say("started a Docker engine in namespaces of its own")
        yield host
    finally:
        _end(outer)
        shutil.rmtree(folder)


def _end(outer: subprocess.Popen[bytes]) -> None:
    """Kill the first process of its namespace: the kernel ends all others before that one is gone, and `unshare` then.

    It is not asked first: what was on it is removed by now, and as a first process dockerd does not end well.
    """
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        outer.wait(STOP_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        outer.kill()  # --kill-child
    outer.wait()
