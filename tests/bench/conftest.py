"""Fixtures of the benchmarks: a server, Worker processes and their evidence, rounds, and the table at the end."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from bench.bench_worker import RAN
from bench.measuring import Results
from treadle.shared.processes import Child, spawn
from treadle.shared.store.embedded import EmbeddedServer, find_binary

SLOTS = 16
LOOK_S = 0.005
_RESULTS = Results()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--bench-json", metavar="FILE", help="write the figures of this run there, as JSON")
    group.addoption("--bench-rounds", type=int, default=3, help="rounds of each case (default 3)")
    group.addoption("--bench-scale", type=float, default=1.0, help="share of the usual load (default 1)")


@pytest.fixture
def results() -> Results:
    return _RESULTS


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> range:
    """The rounds of each case."""
    return range(int(request.config.getoption("--bench-rounds", default=3)))


@pytest.fixture
def scaled(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """A number of items or samples, in the scale that was asked for."""
    share = float(request.config.getoption("--bench-scale", default=1.0))
    return lambda number: max(1, round(number * share))


@pytest.fixture(scope="module")
def _server() -> Iterator[EmbeddedServer]:
    # What most have is measured where it is installed: redis-server, else the embedded one.
    server = EmbeddedServer(binary=Path(shutil.which("redis-server") or find_binary())).start()
    with redis.Redis.from_url(server.url) as admin:
        info = admin.info("server")
        named = info.get("server_name") or "redis"
        found = info.get(f"{named}_version") or info["redis_version"]
        _RESULTS.server = f"{named} {found}, AOF everysec, unix socket"
    yield server
    server.stop()


@pytest.fixture
def admin(_server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(_server.url) as client:
        yield client


@pytest.fixture
def emptied(_server: EmbeddedServer, admin: redis.Redis) -> Callable[[], str]:
    """Empties the server and gives its URL."""

    def empty() -> str:
        admin.flushall()
        admin.function_flush()
        admin.config_set("stream-node-max-bytes", 512)
        admin.config_resetstat()
        return _server.url

    return empty


@dataclass
class Crew:
    """Worker processes of one test, and what they left behind."""

    folder: Path
    children: dict[str, Child] = field(default_factory=dict)

    def start(self, url: str, name: str = "w", *, slots: int = SLOTS, ttl_s: float = 10.0) -> int:
        """Starts a Worker and gives its pid once its session is open."""
        program = Path(__file__).with_name("bench_worker.py")
        argv = [sys.executable, str(program), url, name, str(slots), str(ttl_s), str(self.folder)]
        with (self.folder / f"stderr-{name}").open("ab") as said:
            child = self.children[name] = spawn(argv, stderr=said)
        self.wait(lambda: any(words[:2] == ["ready", name] for words in self.log()), "a Worker is ready", 30)
        return child.pid

    def ran(self, name: str = "w") -> int:
        """How many items it ran."""
        return int(RAN.unpack((self.folder / f"ran-{name}").read_bytes())[0])

    def took_ms(self, name: str = "w") -> float:
        """How long a handler was at it, the mean of all that ran."""
        ran, took_ns = RAN.unpack((self.folder / f"ran-{name}").read_bytes())
        return float(took_ns / ran / 1e6)

    def log(self) -> list[list[str]]:
        path = self.folder / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def wait(self, happened: Callable[[], bool], what: str, limit_s: float) -> None:
        """Returns as soon as something happened; fails with what the Workers said where it does not in time."""
        until_s = time.monotonic() + limit_s
        while not happened():
            if time.monotonic() > until_s or any(child.poll() is not None for child in self.children.values()):
                said = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("stderr-*"))
                pytest.fail(f"not within {limit_s:g} s: {what}\n{said}")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        for child in self.children.values():
            child.stop(grace_s=10)
        self.children.clear()
        shutil.rmtree(self.folder)
        self.folder.mkdir()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    folder = tmp_path / "evidence"
    folder.mkdir()
    found = Crew(folder)
    yield found
    found.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not _RESULTS.rows:
        return
    terminalreporter.section(f"benchmarks: {_RESULTS.server}, {os.cpu_count()} CPUs")
    for line in _RESULTS.lines():
        terminalreporter.write_line(line, bold=bool(re.match(r"\S", line)))
    if path := config.getoption("--bench-json", default=None):
        Path(path).write_text(_RESULTS.json() + "\n")
