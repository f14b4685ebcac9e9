"""An async handler may be cancelled by its own means while a thread is at a gate: no lock is left, and nothing is torn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from treadle.shared.redaction import Secrets
from treadle.worker import Stopped
from treadle.worker.effects import FileGate, SqliteGate, Token
from treadle.worker.effects.doing import Doer, Effects
from treadle.worker.effects.effect import Effect
from treadle.worker.effects.gate import Gate

FIRST, SECOND = Token(1, 1, 1, "w-1"), Token(1, 1, 2, "w-2")


class Noted:
    """The Service of a run, which takes every note."""

    is_over = False
    why = ""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def begin_effect(self, effect: str) -> tuple[str, bytes]:
        self.notes.append(f"begin {effect}")
        return "OK", b""

    async def commit_effect(self, effect: str, result: bytes) -> tuple[str, bytes]:  # noqa: ARG002
        self.notes.append(f"commit {effect}")
        return "OK", b""


class Slow:
    """A gate that stands still, once it was entered or before it commits, until it is let go on."""

    def __init__(self, gate: Gate[Any], where: str) -> None:
        self.gate, self.where = gate, where
        self.is_there, self.goes_on = threading.Event(), threading.Event()

    def stand(self, where: str) -> None:
        if where == self.where:
            self.is_there.set()
            assert self.goes_on.wait(10)

    def enter(self, key: str, token: Token) -> Any:
        passage: Any = self.gate.enter(key, token)
        commit: Callable[[bytes], None] = passage.commit

        def slow(result: bytes) -> None:
            self.stand("commit")
            commit(result)

        passage.commit = slow
        self.stand("enter")
        return passage


def effects() -> tuple[Effects, Noted]:
    noted = Noted()
    return Effects(Doer("m", "a", FIRST, "m/a"), noted, Secrets()), noted


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("where", ["enter", "commit"])
async def test_s6_a_cancellation_waits_for_the_thread_that_is_at_the_gate(
    kind: str, where: str, tmp_path: Path
) -> None:
    inner: Gate[Any] = SqliteGate(tmp_path / "book") if kind == "sqlite" else FileGate(tmp_path / "book")
    slow = Slow(inner, where)
    mine, noted = effects()
    bodies: list[Effect[Any]] = []

    async def handler() -> None:
        async with mine.on_loop("send", slow, "item") as effect:
            bodies.append(effect)

    task = asyncio.get_running_loop().create_task(handler())
    await anyio.to_thread.run_sync(slow.is_there.wait)
    task.cancel()
    await asyncio.sleep(0)
    slow.goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(bodies) == (where == "commit"), "who is cancelled at the gate has no body"
    assert noted.notes == ["begin send", "commit send"][: 1 + len(bodies)]
    gate: Gate[Any] = (
        SqliteGate(tmp_path / "book", busy_s=0) if kind == "sqlite" else FileGate(tmp_path / "book", busy_s=0)
    )
    after = gate.enter("m/a/send", SECOND)
    assert (after.stored is None) is (where == "enter"), "nobody holds it, and what was at its end is whole"
    after.close()


async def test_s3_a_run_that_is_over_when_its_body_ends_commits_nothing_at_its_gate(tmp_path: Path) -> None:
    mine, noted = effects()

    async def handler() -> None:
        async with mine.on_loop("send", FileGate(tmp_path / "book"), "item") as effect:
            effect.at.write_text("too late")
            noted.is_over, noted.why = True, "its lease is lost"

    with pytest.raises(Stopped, match="its lease is lost"):
        await handler()
    assert not (tmp_path / "book").exists()
    assert noted.notes == ["begin send"]


async def test_a_time_out_of_the_handlers_own_is_a_time_out_for_it(tmp_path: Path) -> None:
    slow = Slow(FileGate(tmp_path / "book"), "enter")
    mine, _ = effects()
    told: list[str] = []

    async def handler() -> None:
        try:
            async with asyncio.timeout(0.01), mine.on_loop("send", slow, "item"):
                told.append("in its body")
        except TimeoutError:
            told.append("over time")

    task = asyncio.get_running_loop().create_task(handler())
    await anyio.to_thread.run_sync(slow.is_there.wait)
    while not task.cancelling():  # noqa: ASYNC110 - its time-out has come
        await asyncio.sleep(0)
    slow.goes_on.set()
    await task
    assert told == ["over time"]
