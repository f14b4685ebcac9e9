"""The compose project of a trial, in a copy of the repository, and the Coordinator that follows its Mission."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import Engine, Failed, Say
from images import TOP, download_wheels, images

PROJECT, IMAGE = "treadle-try", "treadle-try:local"
COPIED = ("coordinator", "shared", "worker", "deploy")
COPIED_FILES = ("docker-compose.yml", ".dockerignore", "pyproject.toml", "README.md", "LICENSE")
WHEELS = "wheels"
BUILD_STAGE = "treadle.stage=build"
"""What the Dockerfile calls the image that it builds in; without BuildKit that one stays behind, without a name."""
PATIENCE_S = 60.0
MISSION_PATIENCE_S = 300.0
RUN_ENDS = frozenset(
    {"work.submitted", "work.failed", "work.checkpointed", "work.released", "work.lease_lapsed", "work.requeued"}
)

Told = Sequence["Happened"]


class Broken(Exception):
    """Something that is promised does not hold."""


@dataclass(frozen=True)
class Happened:
    """One Event, as `submit.py` tells it."""

    seq: int
    kind: str
    item: str
    by: str
    at_s: float
    """By the store's clock, which is this machine's."""


@dataclass(frozen=True)
class Cluster:
    """The compose project on its engine."""

    engine: Engine
    folder: Path

    def compose(self, *argv: str, timeout_s: float = 180.0) -> str:
        return self.engine.run(*self.engine.compose, *argv, cwd=self.folder, timeout_s=timeout_s)

    def up(self, *services: str, **scale: int) -> None:
        """Start what is named, by these numbers, with what it depends on, as it was built."""
        wanted = [part for service, count in scale.items() for part in ("--scale", f"{service}={count}")]
        self.compose("up", "--detach", "--no-build", *wanted, *services, *scale)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's running containers; each begins the name of the Agent that is in it."""
        labels = (f"com.docker.compose.project={PROJECT}", f"com.docker.compose.service={service}")
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        return self.engine.docker("ps", "--quiet", *filters).split()

    def inside(self, container: str, program: str, *arguments: str) -> str:
        """What a Python program prints inside a container."""
        return self.engine.docker("exec", container, "python3", "-c", program, *arguments)

    def inspected(self, what: str, *containers: str) -> list[str]:
        return self.engine.docker("inspect", "--format", what, *containers).split()


@contextmanager
def staged(engine: Engine, settings: dict[str, str], say: Say) -> Iterator[Cluster]:
    """The project's copy, ready to be built; afterwards nothing of it is left on the engine or on the disk."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-try-", dir="/var/tmp"))
    cluster, made = Cluster(engine, folder), [IMAGE]
    try:
        _copy(folder)
        found = images(engine, say)
        made += found.made
        if found.wheels:
            download_wheels(folder / WHEELS, say)
        own = {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "TREADLE_IMAGE": IMAGE,
            "TREADLE_WHEELS": WHEELS if found.wheels else "",
        }
        for name in [name for name in engine.environment if name.startswith(("TREADLE_", "COMPOSE_"))]:
            del engine.environment[name]
        engine.environment.update(settings | own | found.variables)
        yield cluster
    finally:
        say("tidying up")
        tidies: tuple[Callable[[], str], ...] = (
            lambda: cluster.compose("--profile", "tools", "down", "--volumes", "--remove-orphans", "--timeout", "1"),
            lambda: engine.docker("image", "rm", "--force", *made),
            lambda: engine.docker("image", "prune", "--force", "--filter", f"label={BUILD_STAGE}"),
        )
        for tidy in tidies:
            try:
                tidy()
            except Failed as failed:
                say(f"perhaps left behind: {failed}")
        shutil.rmtree(folder)


def _copy(folder: Path) -> None:
    folder.chmod(0o755)
    for name in COPIED:
        shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in COPIED_FILES:
        shutil.copy(TOP / name, folder / name)
    # What is mounted is read by the containers' users, whatever the checkout's umask was.
    for path in (folder / "deploy").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


class Follower:
    """`submit.py` in the coordinator's container: it submits the Mission, and tells every Event as it comes."""

    def __init__(self, cluster: Cluster, *mission: str) -> None:
        self.events: list[Happened] = []
        self.results: dict[str, Any] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        command = ["run", "--rm", "--no-deps", "-T", "--entrypoint", "python3", "coordinator", "submit.py", *mission]
        self._process = subprocess.Popen(
            [*cluster.engine.compose, *command],
            cwd=cluster.folder,
            env=cluster.engine.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            said = json.loads(line)
            if "results" in said:
                self.results = said["results"]
            else:
                self.events.append(Happened(**said))

    def until(self, seen: Callable[[Told], float | None], what: str) -> float:
        """What `seen` gives of the Events so far, as soon as it gives something; Broken where it does not."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ended = not self._reader.is_alive()
            if (found := seen(tuple(self.events))) is not None:
                return found
            if ended:
                raise Broken(f"the Coordinator has ended, without: {what}\n{self.errors()}")
            if time.monotonic() > deadline:
                raise Broken(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(0.02)

    def end(self) -> None:
        """Return when it has told the results; Broken where it does not."""
        self._reader.join(MISSION_PATIENCE_S)
        if self._reader.is_alive():
            raise Broken(f"the Mission has not ended within {MISSION_PATIENCE_S:g} s: {len(self.events)} Events so far")
        if self._process.wait() or self.results is None:
            raise Broken(f"the Coordinator ended with status {self._process.returncode}\n{self.errors()}")

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3_000:]

    def close(self) -> None:
        """End it, where it has not ended; twice is fine."""
        if self._process.poll() is None:
            # With all it started: one of them would hold the pipe. Its container goes with the project.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()
        self._errors.close()


def running_on(events: Told, containers: Sequence[str]) -> frozenset[str]:
    """The items that run on these containers."""
    live: dict[str, str] = {}
    for event in events:
        if event.kind == "work.started":
            live[event.item] = event.by
        elif event.kind in RUN_ENDS:
            live.pop(event.item, None)
    return frozenset(item for item, by in live.items() if by.startswith(tuple(containers)))


def first(events: Told, kind: str, *, after_s: float = 0.0, by: str = "", item: str = "") -> float | None:
    """When the first such Event came, behind a moment."""
    for event in events:
        if event.kind == kind and event.at_s >= after_s and event.by.startswith(by) and item in ("", event.item):
            return event.at_s
    return None


def last_of_firsts(moments: Sequence[float | None]) -> float | None:
    """When the last of several things had come; None while one has not, or where there are none."""
    come = [moment for moment in moments if moment is not None]
    return max(come) if come and len(come) == len(moments) else None
