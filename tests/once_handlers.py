"""Handlers whose Worker dies, stands still or fails at a step that their inputs name, around two effects and a third one.

The first lands in a SQLite file, the second at a service with a ledger, the third at a service that takes every request.
`fate` is {"step": ..., "how": "kill" | "stop" | "fail"}, and comes once to an item, to the first run that gets there.
"""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread
from treadle.worker import Context, Fail, SyncContext, handler
from treadle.worker.effects import SqliteGate, Token
from treadle.worker.effects.sqlite import SqlitePassage

STEPS = (
    *("before book", "book begun", "in book", "book done", "book recorded"),
    *("send begun", "send done", "send recorded", "plain begun", "plain done", "before submit"),
)
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Fate:
    """What befalls one run."""

    def __init__(self, context: Context | SyncContext, inputs: dict[str, Any]) -> None:
        self._meant = inputs["fate"]
        self._came = Path(os.environ["FLEET_EVIDENCE"]) / f"fate-of-{context.item}"

    def comes(self, step: str) -> None:
        assert step in STEPS
        if self._meant.get("step") != step or self._came.exists():
            return
        self._came.touch()
        if self._meant["how"] == "fail":
            raise Fail(f"at {step}", retryable=True)
        os.kill(os.getpid(), SIGNALS[self._meant["how"]])


class FatefulGate(SqliteGate):
    """A gate at which a run may meet its fate just after it committed."""

    def __init__(self, path: str, fate: Fate) -> None:
        super().__init__(path)
        self._fate = fate

    def enter(self, key: str, token: Token) -> SqlitePassage:
        passage = super().enter(key, token)
        commit = passage.commit

        def fateful(result: bytes) -> None:
            commit(result)
            self._fate.comes("book done")

        passage.commit = fateful  # type: ignore[method-assign]  # the test's own step
        return passage


def post(url: str, item: str, headers: dict[str, str]) -> str:
    """What the service answers; a Fail that is tried again where it refuses."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=20)
    try:
        connection.request("POST", where.path, item.encode(), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise Fail(f"{where.path}: {answer.status} {text}", retryable=True)
    return text


INSERT = "INSERT INTO book (item, attempt) VALUES (?, ?)"


@handler("once.async")
@handler("once.async.enclosed", runtime="process", environment=("FLEET_EVIDENCE",))
async def once(context: Context, inputs: dict[str, Any]) -> list[Any]:
    fate = Fate(context, inputs)
    fate.comes("before book")
    async with context.effect("book", at=FatefulGate(inputs["book"], fate)) as book:
        if book.is_new:
            fate.comes("book begun")
            book.at.execute(INSERT, (context.item, context.attempt))
            fate.comes("in book")
            book.result = context.attempt
    fate.comes("book recorded")
    async with context.effect("send") as send:
        if send.is_new:
            fate.comes("send begun")
            send.result = await anyio.to_thread.run_sync(post, inputs["ledger"], context.item, send.headers)
            fate.comes("send done")
    fate.comes("send recorded")
    async with context.effect("plain") as plain:
        if plain.is_new:
            fate.comes("plain begun")
            taken = await anyio.to_thread.run_sync(post, inputs["plain"], context.item, plain.headers)
            plain.result = [taken, plain.is_doubtful]
            fate.comes("plain done")
    fate.comes("before submit")
    return [book.result, send.result, plain.result]


@handler("once.sync")
@handler("once.sync.enclosed", runtime="process", environment=("FLEET_EVIDENCE",))
def once_sync(context: SyncContext, inputs: dict[str, Any]) -> list[Any]:
    fate = Fate(context, inputs)
    fate.comes("before book")
    with context.effect("book", at=FatefulGate(inputs["book"], fate)) as book:
        if book.is_new:
            fate.comes("book begun")
            book.at.execute(INSERT, (context.item, context.attempt))
            fate.comes("in book")
            book.result = context.attempt
    fate.comes("book recorded")
    with context.effect("send") as send:
        if send.is_new:
            fate.comes("send begun")
            send.result = post(inputs["ledger"], context.item, send.headers)
            fate.comes("send done")
    fate.comes("send recorded")
    with context.effect("plain") as plain:
        if plain.is_new:
            fate.comes("plain begun")
            plain.result = [post(inputs["plain"], context.item, plain.headers), plain.is_doubtful]
            fate.comes("plain done")
    fate.comes("before submit")
    return [book.result, send.result, plain.result]
