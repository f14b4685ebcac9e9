"""Connections: fenced calls that are never retried by the client library, and the one place that classifies what goes wrong.

redis-py's own retry re-sends after a time-out, so one lost reply becomes many executions (reliability.md 1.3): it is
off here, and our callers repeat a call byte for byte under its action id instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.retry import Retry
from redis.utils import HIREDIS_AVAILABLE

from ..errors import Backpressure, Misuse, ReplyLost, StoreChanged, TreadleError, Unavailable, refusal
from ..redaction import known, safe_url
from .library import Library, build

CALL_TIMEOUT_S = 5.0
BLOCK_MARGIN_S = 2.0
"""A blocking read's socket time-out is its block time and this much more."""

_log = logging.getLogger("treadle.store")
_T = TypeVar("_T")

_CODES = """
    AUTH_STALE_SESSION ACTION_ID_COLLISION ACTION_SUPERSEDED LANE_REGRESSED SCHEMA_VALIDATION_FAILED QUOTA_EXCEEDED
    MEMBERSHIP_REQUIRED MEMBERSHIP_STALE CURSOR_TOO_OLD
    GROUP_NOT_FOUND REVISION_CONFLICT LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION
    WORK_ALREADY_OWNED APPROVAL_REQUIRED
"""
_REFUSALS = frozenset(_CODES.split())
"""What the functions of `lua/` refuse with, but for STORE_CHANGED and BACKPRESSURE, which have errors of their own."""
_WAIT_ERRORS = (BusyLoadingError, ReadOnlyError, ClusterDownError, TryAgainError)
"""redis-py cuts the code off the text of these; MASTERDOWN is a ClusterDownError to it."""
_WAIT_PREFIXES = (
    *("BUSY", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MASTERDOWN", "LOADING", "READONLY"),
    "UNBLOCKED",  # a blocking read, at the moment its server became a replica
)

Call = tuple[str, str, Sequence[str | bytes | int | float]]
"""One call of the library: function, the partition's declared key, arguments."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which server this is: changes with a restart and a failover (design.md 3.11)."""

    replid: str
    run_id: str
    replid2: str = "0"
    """The history it went on from; only zeros where it has none, as after the last of its replicas left."""


Seen = Callable[[Lineage], None]


class OtherServer(RedisError):
    """The connection reached another server than the one its session was opened on."""


class Endpoint(Protocol):
    """Where a store is, and how its clients are made; the seam at which tests put fakeredis and faults."""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        ...

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        """An asyncio client of one connection; `seen` is told, on each connect, which server answers."""
        ...

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any: ...


@dataclass(frozen=True, slots=True)
class RedisEndpoint:
    """A server by its URL: `redis://`, `rediss://` or `unix://`."""

    url: str

    def __repr__(self) -> str:
        return f"RedisEndpoint({self.shown!r})"

    @property
    def shown(self) -> str:
        return safe_url(self.url)

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        async def connected(connection: Any) -> None:
            await connection.on_connect()
            answers: list[bytes] = []
            for section in ("replication", "server"):
                await connection.send_command("INFO", section)
                answers.append(await connection.read_response())
            seen(_lineage(*answers))

        client = _parse(
            self.url,
            lambda url: redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - untyped keywords
                url,
                protocol=2,
                retry=AsyncRetry(NoBackoff(), 0),
                socket_timeout=timeout_s,
                socket_connect_timeout=min(timeout_s, CALL_TIMEOUT_S),
                redis_connect_func=connected,
            ),
        )
        if HIREDIS_AVAILABLE:
            client.connection_pool.connection_class = _packing(client.connection_pool.connection_class)
        return client

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:
        def connected(connection: Any) -> None:
            connection.on_connect()
            answers: list[bytes] = []
            for section in ("replication", "server"):
                connection.send_command("INFO", section)
                answers.append(connection.read_response())
            seen(_lineage(*answers))

        return _parse(
            self.url,
            lambda url: redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - untyped keywords
                url,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                redis_connect_func=connected,
            ),
        )


@cache
def _packing(connection: type[Any]) -> type[Any]:
    """The same connection, its commands packed by hiredis: redis-py's asyncio ones pack argument by argument in Python."""
    packer = cast("Any", HiredisRespSerializer)

    def pack_command(_: object, *arguments: object) -> list[bytes]:
        return cast("list[bytes]", packer().pack(*arguments))

    return type("Packing", (connection,), {"pack_command": pack_command})


def _lineage(replication: bytes, server: bytes) -> Lineage:
    fields = dict(line.split(":", 1) for line in (replication + b"\r\n" + server).decode().splitlines() if ":" in line)
    return Lineage(fields["master_replid"], fields["run_id"], fields.get("master_replid2", "0"))


_READS_TEXT = re.compile(r"(?<=[?&])(?:decode_responses|encoding|encoding_errors|protocol)=[^&]*&?")
"""Options of a URL that go before ours, and would have text or RESP3's forms read where bytes are kept (BR-63)."""


def _parse(url: str, make: Callable[[str], Any]) -> Any:
    known.learn_url(url)
    try:
        return make(_READS_TEXT.sub("", url))
    except (ValueError, RedisError) as error:
        raise Misuse(
            f"TREADLE_URL: {safe_url(url)!r} is no store address ({error}); use redis://, rediss:// or unix://"
        ) from None


class Link:
    """One connection for calls. It has one call (or pipeline) in flight; after any doubt it is closed and made anew."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._library: Library = build()
        self._expected: str | None = None
        self._lineage: Lineage | None = None
        self._client = endpoint.client(timeout_s=timeout_s, seen=self._seen)

    def _seen(self, lineage: Lineage) -> None:
        # Runs on each connect, before any call: a call never reaches a server its session was not opened on.
        self._lineage = lineage
        _compare(self._expected, lineage)

    def expect(self, replid: str | None) -> None:
        """Names the server that every connection must reach from here on; None for whichever answers."""
        self._expected = replid

    async def lineage(self) -> Lineage:
        """Who the server is now, by a new connection: an old one tells what was so when it was made."""
        await self.aclose()
        await self.run(lambda client: client.ping())
        if self._lineage is None:
            raise AssertionError("a connection tells its server before its first command")
        return self._lineage

    async def run(self, command: Callable[[Any], Awaitable[_T]]) -> _T:
        """Runs plain commands on the client, with its errors translated."""
        try:
            return await command(self._client)
        except (RedisError, OSError) as error:
            if is_demoted(error):
                await self.aclose()
            raise translate(error, self.endpoint.shown) from cause(error)

    async def call(self, call: Call) -> list[bytes]:
        """Runs one function; raises what it refused."""
        answer = (await self.calls([call]))[0]
        if isinstance(answer, TreadleError):
            raise answer
        return answer

    async def calls(self, calls: Sequence[Call]) -> list[list[bytes] | TreadleError]:
        """Runs functions in one pipeline; refusals are values, a lost connection is raised for all of them."""
        answers = await self._pipeline(calls)
        missing = [i for i, answer in enumerate(answers) if is_missing(answer)]
        if missing:
            # "Function not found" is answered before anything runs, so these calls may be sent again (BR-29).
            await self.load()
            for i, answer in zip(missing, await self._pipeline([calls[i] for i in missing]), strict=True):
                answers[i] = answer
        if any(is_demoted(answer) for answer in answers):
            await self.aclose()
        return [
            translate(answer, self.endpoint.shown) if isinstance(answer, Exception) else cast("list[bytes]", answer)
            for answer in answers
        ]

    async def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        names = self._library.functions
        if len(calls) == 1:
            function, key, args = calls[0]
            try:
                return [await self._client.execute_command("FCALL", names[function], 1, key, *args)]
            except ResponseError as error:
                return [error]
            except (RedisError, OSError) as error:
                raise translate(error, self.endpoint.shown) from cause(error)
        async with self._client.pipeline(transaction=False) as pipe:
            for function, key, args in calls:
                pipe.execute_command("FCALL", names[function], 1, key, *args)
            try:
                return cast("list[Any]", await pipe.execute(raise_on_error=False))
            except (RedisError, OSError) as error:
                raise translate(error, self.endpoint.shown) from cause(error)

    async def load(self) -> None:
        """Loads the function library, if the server has not got it."""
        try:
            await self._client.execute_command("FUNCTION", "LOAD", self._library.source)
        except ResponseError as error:
            if "already exists" not in str(error):
                raise translate(error, self.endpoint.shown) from cause(error)
        except (RedisError, OSError) as error:
            raise translate(error, self.endpoint.shown) from cause(error)

    async def aclose(self) -> None:
        """Closes the connection; a later call makes a new one. That it could not be done politely in time is no failure."""
        with suppress(RedisError, OSError):
            await self._client.aclose()


class SyncLink:
    """One synchronous connection for calls: for the renewal thread."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, replid: str) -> None:
        self.endpoint = endpoint
        self._library: Library = build()
        self._client = endpoint.sync_client(timeout_s=timeout_s, seen=lambda lineage: _compare(replid, lineage))

    def call(self, call: Call) -> list[bytes]:
        """Runs one function; raises what it refused."""
        function, key, args = call
        for attempt in (1, 2):
            try:
                answer = self._client.execute_command("FCALL", self._library.functions[function], 1, key, *args)
                return cast("list[bytes]", answer)
            except ResponseError as error:
                if is_demoted(error):
                    self.close()
                if attempt == 2 or not is_missing(error):
                    raise translate(error, self.endpoint.shown) from cause(error)
                self._load()
            except (RedisError, OSError) as error:
                raise translate(error, self.endpoint.shown) from cause(error)
        raise AssertionError("two attempts were made")

    def _load(self) -> None:
        try:
            self._client.execute_command("FUNCTION", "LOAD", self._library.source)
        except ResponseError as error:
            if "already exists" not in str(error):
                raise translate(error, self.endpoint.shown) from cause(error)
        except (RedisError, OSError) as error:
            raise translate(error, self.endpoint.shown) from cause(error)

    def close(self) -> None:
        self._client.close()


def _compare(expected: str | None, lineage: Lineage) -> None:
    if expected is not None and lineage.replid != expected:
        raise OtherServer(f"the server is {lineage.replid} now, the session was opened on {expected}")


def is_missing(answer: object) -> bool:
    """Whether the server has not got the library (a restart without it, FUNCTION FLUSH)."""
    return isinstance(answer, ResponseError) and "Function not found" in str(answer)


def is_demoted(answer: object) -> bool:
    """Whether the server became a replica: its name may lead to another by now, so the connection is made anew (BR-27)."""
    return isinstance(answer, ResponseError) and (
        isinstance(answer, ReadOnlyError) or str(answer).startswith(("READONLY", "UNBLOCKED"))
    )


def cause(error: Exception) -> Exception | None:
    """What to raise its translation from: a traceback of the client library helps only where nobody foresaw the error."""
    return error if type(translate(error, "")) is TreadleError else None


def translate(error: Exception, where: str) -> TreadleError:
    """The error of the tree for what redis-py or the server said. No message holds a URL's credentials."""
    if type(error) is ConnectionError and isinstance(error.__cause__, RedisError):
        error = error.__cause__  # redis-py wraps what refused the handshake on a unix socket: a wrong password, LOADING
    text = str(error).removeprefix("ERR ")
    code, _, detail = text.partition(" ")
    if isinstance(error, OtherServer):
        return StoreChanged(f"store {where}: {text}; open a new session")
    if is_missing(error):
        return Unavailable(f"store {where} lost the function library as soon as it had it; it is asked again")
    if isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError):
        return Misuse(f"store {where}: access denied ({text[:200]}); check user and password in TREADLE_URL")
    if "DB index" in text:
        return Misuse(f"store {where}: {text[:200]}; name a database that the server has, in TREADLE_URL")
    if isinstance(error, _WAIT_ERRORS) or text.startswith(_WAIT_PREFIXES):
        return Unavailable(f"store {where} cannot answer now: {text[:200]}; it is asked again")
    if isinstance(error, OutOfMemoryError) or code == "OOM":
        return Backpressure(f"store {where} is full for new work: {text[:200]}; free memory there, finishing goes on")
    if code == Backpressure.code:
        return Backpressure(f"store {where}: {detail}; try again later")
    if isinstance(error, TimeoutError | ConnectionError | OSError):
        return ReplyLost(f"store {where} is not reachable or did not answer: {text[:200].rstrip('.')}")
    if code == StoreChanged.code:
        return StoreChanged(detail)
    if code == "WRONGTYPE":
        return TreadleError(f"store {where}: a key of it is of another type than the store made it: {text[:500]}")
    if code in _REFUSALS:
        return refusal(code, detail)
    return TreadleError(f"store {where} answered {type(error).__name__}: {text[:500]}")
