"""What a server or a connection says, as the error of the tree that names who must act."""

from __future__ import annotations

import pytest
from redis import exceptions
from redis._parsers.base import BaseParser
from treadle.shared.errors import (
    Backpressure,
    Misuse,
    Refused,
    ReplyLost,
    Stale,
    StoreChanged,
    TreadleError,
    Unavailable,
)
from treadle.shared.store import Lineage, RedisEndpoint
from treadle.shared.store.connection import OtherServer, translate

WHERE = "redis://***@host:6379/0"

SAID: dict[str, type[TreadleError]] = {
    "LOADING Redis is loading the dataset in memory": Unavailable,
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.": Unavailable,
    "READONLY You can't write against a read only replica.": Unavailable,
    "MISCONF Errors writing to the AOF file: No space left on device": Unavailable,
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.": Unavailable,
    "CLUSTERDOWN The cluster is down": Unavailable,
    "CLUSTERDOWN Hash slot not served": Unavailable,
    "TRYAGAIN Multiple keys request during rehashing of slot": Unavailable,
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": Unavailable,
    "NOREPLICAS Not enough good replicas to write.": Unavailable,
    "OOM command not allowed when used memory > 'maxmemory'.": Backpressure,
    "OOM allow-oom flag is not set on the function, can not run it when used memory > 'maxmemory'": Backpressure,
    "BACKPRESSURE group=m is watched by 64 clients already": Backpressure,
    "NOAUTH Authentication required.": Misuse,
    "WRONGPASS invalid username-password pair or user is disabled.": Misuse,
    "NOPERM this user has no permissions to run the 'fcall' command": Misuse,
    "ERR invalid password": Misuse,
    "ERR max number of clients reached": ReplyLost,
    "STORE_CHANGED this partition was opened on server a, the call names b": StoreChanged,
    "AUTH_STALE_SESSION agent=a session=1 current=2": Stale,
    "ACTION_ID_COLLISION mission=m has other content": Refused,
    "ERR Function not found": Unavailable,
    "ERR unknown command 'FCALL', with args beginning with: ": TreadleError,
    "WRONGTYPE Operation against a key holding the wrong kind of value": TreadleError,
}


def parsed(line: str) -> Exception:
    """An error line as redis-py reads it."""
    error = BaseParser.parse_error(line)  # type: ignore[no-untyped-call]  # redis-py's own
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize("line", SAID)
def test_what_a_server_says_becomes_the_error_that_names_who_must_act(line: str) -> None:
    """The lines as servers send them, read by redis-py's own parser, which cuts some codes off."""
    error = translate(parsed(line), WHERE)
    assert type(error) is SAID[line]


@pytest.mark.parametrize("line", SAID)
def test_the_server_is_named_or_the_ids_are_and_no_secret_is(line: str) -> None:
    said = str(translate(parsed(line), WHERE))
    assert WHERE in said or "=" in said or "server a" in said


@pytest.mark.parametrize(
    "error",
    [
        exceptions.TimeoutError("Timeout reading from socket"),
        exceptions.ConnectionError("Connection closed by server."),
        ConnectionResetError(104, "Connection reset by peer"),
        ConnectionRefusedError(111, "Connection refused"),
        FileNotFoundError(2, "No such file or directory"),
        TimeoutError("timed out"),
        BrokenPipeError(32, "Broken pipe"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_fails_may_have_carried_the_call(error: Exception) -> None:
    """Nobody knows whether it ran: the caller repeats it byte for byte."""
    found = translate(error, WHERE)
    assert type(found) is ReplyLost
    assert found.retryable
    assert WHERE in str(found)


def test_what_redis_py_wraps_is_what_it_wraps() -> None:
    """On a unix socket it turns a refused handshake into a lost connection."""
    wrapped = exceptions.ConnectionError("invalid password")
    wrapped.__cause__ = exceptions.AuthenticationError("invalid password")
    assert type(translate(wrapped, WHERE)) is Misuse


def test_another_server_means_a_new_session() -> None:
    found = translate(OtherServer("the server is b now, the session was opened on a"), WHERE)
    assert type(found) is StoreChanged
    assert "open a new session" in str(found)


def unused(lineage: Lineage) -> None:
    raise AssertionError(f"{lineage} was reached")


@pytest.mark.parametrize(
    "url",
    ["http://host:1", "redis//host", "", "redis://host:notaport", "tcp://x", "redis://host:6379/0?timeout=x"],
)
def test_what_is_no_address_is_misuse_before_anything_is_connected(url: str) -> None:
    with pytest.raises(Misuse, match="TREADLE_URL"):
        RedisEndpoint(url).client(timeout_s=1, seen=unused)


def test_a_secret_in_an_address_is_never_shown() -> None:
    for url in ("redis://ana:hunter2@host:6379/0", "redis://:hunter2@host", "unix:///tmp/s?password=hunter2"):
        assert "hunter2" not in RedisEndpoint(url).shown
    with pytest.raises(Misuse) as caught:
        RedisEndpoint("http://ana:hunter2@host").client(timeout_s=1, seen=unused)
    assert "hunter2" not in str(caught.value)
