"""Story 7. What a handler does outside the store, an invoice sent or a row written, happens once, whatever happens to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.testing.injection import Faults
from treadle.worker import Context, Fail, SyncContext
from treadle.worker.effects import Effect, FileGate, SqliteGate
from treadle.worker.testing import Workers

Idle = Callable[..., Awaitable[float]]
KINDS = ("async", "sync")


def one(**contract: Any) -> MissionSpec:
    return MissionSpec(id="m", objective="an invoice", work=[WorkSpec(id="a", capability="send", **contract)])


def both(
    kind: str, body: Callable[[Any, Effect[Any]], Any], *, after: Callable[[Any], None] | None = None, **of: Any
) -> Any:
    """A handler whose effect `send-invoice` has that body; it returns the effect's result."""

    async def send(context: Context, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        async with context.effect("send-invoice", **of) as effect:
            body(context, effect)
        if after is not None:
            after(context)
        return effect.result

    def send_sync(context: SyncContext, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        with context.effect("send-invoice", **of) as effect:
            body(context, effect)
        if after is not None:
            after(context)
        return effect.result

    return {"send": send if kind == "async" else send_sync}


def dies_at(faults: Faults, attempt: int) -> Callable[[Any], None]:
    def after(context: Any) -> None:
        if context.attempt == attempt:
            faults.kill(context.worker)

    return after


@pytest.mark.parametrize("kind", KINDS)
async def test_s6_a_run_that_comes_after_gets_the_result_and_does_nothing(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    sent: list[int] = []

    def body(context: Any, effect: Effect[Any]) -> None:
        if effect.is_new:
            sent.append(context.attempt)
            effect.result = {"number": 17}

    def fails_at_first(context: Any) -> None:
        if context.attempt < 3:
            raise Fail("the printer is out of paper", retryable=True)

    treadle_worker(both(kind, body, after=fails_at_first))
    mission = await treadle_client.submit(one())
    await run_until_idle()
    assert await mission.results() == {"a": {"number": 17}}
    assert sent == [1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_raises_records_nothing_and_the_next_run_does_it(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle, tmp_path: Path
) -> None:
    told: list[tuple[bool, bool]] = []

    def body(context: Any, effect: Effect[Any]) -> None:
        told.append((effect.is_new, effect.is_doubtful))
        effect.at.execute("CREATE TABLE IF NOT EXISTS sent (attempt INTEGER)")
        effect.at.execute("INSERT INTO sent VALUES (?)", (context.attempt,))
        if context.attempt == 1:
            raise OSError("no network")
        effect.result = "sent"

    treadle_worker(both(kind, body, at=SqliteGate(tmp_path / "book.db")))
    mission = await treadle_client.submit(one())
    await run_until_idle()
    assert await mission.results() == {"a": "sent"}
    assert told == [(True, False), (True, False)], "its gate knows that nothing came of the first"
    book = sqlite3.connect(tmp_path / "book.db")
    assert book.execute("SELECT attempt FROM sent").fetchall() == [(2,)]
    book.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_gate_a_worker_that_is_killed_before_the_record_does_it_again_and_is_told(
    kind: str, treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle
) -> None:
    told: list[tuple[int, bool]] = []

    def body(context: Any, effect: Effect[Any]) -> None:
        told.append((context.attempt, effect.is_doubtful))
        if context.attempt == 1:
            faults.kill(context.worker)

    for name in ("w1", "w2"):
        treadle_worker(both(kind, body), name=name)
    await treadle_client.submit(one())
    await run_until_idle()
    assert told == [(1, False), (2, True)], "at least once: what cannot check cannot be asked"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["sqlite", "file"])
async def test_s6_a_worker_that_is_killed_between_its_gate_and_the_record_is_not_followed_by_a_second_time(
    place: str,
    kind: str,
    treadle_client: Client,
    treadle_worker: Workers,
    faults: Faults,
    run_until_idle: Idle,
    tmp_path: Path,
) -> None:
    gate: Any = SqliteGate(tmp_path / "book.db") if place == "sqlite" else FileGate(tmp_path / "book.txt")
    bodies: list[int] = []

    class Deadly:
        """The gate; the first Worker that was through it dies."""

        def enter(self, key: str, token: Any) -> Any:
            passage = gate.enter(key, token)
            commit = passage.commit

            def deadly(result: bytes) -> None:
                commit(result)
                if token.number == 1:
                    passage.close()  # a process that is killed lets go of its locks; here it only seems to be one
                    faults.kill("w1")
                    faults.kill("w2")
                    treadle_worker(handlers, name="w3")

            passage.commit = deadly
            return passage

    def body(context: Any, effect: Effect[Any]) -> None:
        if effect.is_new:
            bodies.append(context.attempt)
            effect.result = f"by attempt {context.attempt}"

    handlers = both(kind, body, at=Deadly())
    for name in ("w1", "w2"):
        treadle_worker(handlers, name=name)
    mission = await treadle_client.submit(one())
    await run_until_idle()
    assert await mission.results() == {"a": "by attempt 1"}
    assert bodies == [1]


@pytest.mark.parametrize("kind", KINDS)
async def test_s3_a_worker_that_was_stopped_for_longer_than_its_lease_touches_nothing(
    kind: str, treadle_client: Client, treadle_worker: Workers, faults: Faults, run_until_idle: Idle, tmp_path: Path
) -> None:
    """It stands still just before its effect; another one does it meanwhile."""
    did: list[str] = []

    async def send(context: Context, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        if context.worker == "zombie":
            faults.pause("zombie", 60)
            await asyncio.sleep(0)
        async with context.effect("send-invoice", at=FileGate(tmp_path / "book.txt")) as effect:
            did.append(context.worker)
            effect.result = context.worker
        return effect.result

    def send_sync(context: SyncContext, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        if context.worker == "zombie":
            faults.pause("zombie", 60)
        with context.effect("send-invoice", at=FileGate(tmp_path / "book.txt")) as effect:
            did.append(context.worker)
            effect.result = context.worker
        return effect.result

    await treadle_worker({"send": send if kind == "async" else send_sync}, name="zombie")
    mission = await treadle_client.submit(one())
    await asyncio.sleep(5)
    await treadle_worker({"send": send if kind == "async" else send_sync}, name="other")
    await run_until_idle()
    assert await mission.results() == {"a": "other"}
    assert did == ["other"]


@pytest.mark.parametrize("kind", KINDS)
async def test_by_choice_each_ownership_does_it_anew_and_a_run_of_the_same_ownership_does_not(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    keys: list[tuple[int, str, bool]] = []

    def body(context: Any, effect: Effect[Any]) -> None:
        keys.append((context.attempt, effect.key, effect.is_new))

    def again(context: Any) -> None:
        if context.attempt == 1:
            raise Fail("once more", retryable=True)

    treadle_worker(both(kind, body, after=again, key="ownership"))
    await treadle_client.submit(one())
    await run_until_idle()
    assert keys == [(1, "m/a/send-invoice/1", True), (2, "m/a/send-invoice/2", True)], (
        "it was offered again: a new epoch"
    )


@pytest.mark.parametrize("kind", KINDS)
async def test_an_operation_inside_of_itself_is_refused_by_name_and_others_are_not(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    async def send(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        async with context.effect("one"), context.effect("two"):
            pass
        async with context.effect("one"), context.effect("one"):
            pass

    def send_sync(context: SyncContext, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        with context.effect("one"), context.effect("two"):
            pass
        with context.effect("one"), context.effect("one"):
            pass

    treadle_worker({"send": send if kind == "async" else send_sync})
    mission = await treadle_client.submit(one(retry=0))
    await run_until_idle()
    with pytest.raises(MissionFailed, match="effect 'one' of m/a: this run is inside of it already"):
        await mission.results()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_effect_at_what_is_no_gate_is_refused_before_it_is_begun(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    treadle_worker(both(kind, lambda *_: pytest.fail("nothing is done"), at="book.db"))
    mission = await treadle_client.submit(one(retry=0))
    await run_until_idle()
    with pytest.raises(MissionFailed, match=r"at: of type str, must be a gate, as SqliteGate\(path\), FileGate"):
        await mission.results()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gate", [SqliteGate, FileGate])
async def test_a_gate_in_a_folder_that_goes_with_its_run_is_refused_before_anything_is_written(
    kind: str, gate: Any, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    seen: list[Path] = []

    async def send(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        seen.append(context.folder)
        async with context.effect("one", at=gate(context.folder / "book")):
            pytest.fail("nothing is done")

    def send_sync(context: SyncContext, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        seen.append(context.folder)
        with context.effect("one", at=gate(context.folder / "book")):
            pytest.fail("nothing is done")

    treadle_worker({"send": send if kind == "async" else send_sync})
    mission = await treadle_client.submit(one(retry=0))
    await run_until_idle()
    with pytest.raises(
        MissionFailed, match=r"at: .*/book of m/a: is removed when its run is over; give an absolute path"
    ):
        await mission.results()
    assert len(seen) == 1


async def test_an_effect_that_is_entered_as_the_other_kind_of_handler_does_says_how(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    async def send(context: Any, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        with context.effect("one"):
            pytest.fail("nothing is done")

    def send_sync(context: Any, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        async def inside() -> None:
            async with context.effect("one"):
                pytest.fail("nothing is done")

        asyncio.run(inside())

    treadle_worker({"send": send, "send.sync": send_sync})
    work = [WorkSpec(id=name, capability=name, retry=0) for name in ("send", "send.sync")]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="an invoice", work=work))
    await run_until_idle()
    with pytest.raises(MissionFailed) as failed:
        await mission.results()
    assert "this handler is an `async def`; write `async with context.effect(...)`" in str(failed.value)
    assert "this handler is a plain function; write `with context.effect(...)`" in str(failed.value)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_that_cannot_be_packed_is_named_by_its_path_and_fails_the_item_for_good(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle, tmp_path: Path
) -> None:
    attempts: list[int] = []

    def body(context: Any, effect: Effect[Any]) -> None:
        attempts.append(context.attempt)
        with effect.at.open("a") as file:
            file.write("sent\n")
        effect.result = {"lines": [1, object()]}

    treadle_worker(both(kind, body, at=FileGate(tmp_path / "book.txt")))
    mission = await treadle_client.submit(one())
    await run_until_idle()
    with pytest.raises(MissionFailed, match=r"effect send-invoice: nothing is recorded: effect\.result\.lines\[1\]"):
        await mission.results()
    assert attempts == [1], "the same code would give it again"
    assert not (tmp_path / "book.txt").exists()


class Receipt(BaseModel):
    number: int


async def test_a_result_may_be_a_model_and_is_plain_data_once_it_is_recorded(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    def body(_: Any, effect: Effect[Any]) -> None:
        effect.result = Receipt(number=17)

    treadle_worker(both("async", body))
    mission = await treadle_client.submit(one())
    await run_until_idle()
    assert await mission.results() == {"a": {"number": 17}}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_result_of_an_effect_that_was_done_before_cannot_be_set(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    def body(_: Any, effect: Effect[Any]) -> None:
        effect.result = "again"

    def fails(context: Any) -> None:
        raise Fail(f"attempt {context.attempt}", retryable=True)

    treadle_worker(both(kind, body, after=fails))
    mission = await treadle_client.submit(one(retry=1))
    await run_until_idle()
    with pytest.raises(MissionFailed, match="effect m/a/send-invoice: it was done before, and its result stands"):
        await mission.results()


@pytest.mark.parametrize("kind", KINDS)
async def test_s27_one_effect_more_than_an_item_may_have_is_refused_by_name_before_it_is_done(
    kind: str, treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    did: list[int] = []

    async def send(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        for number in range(300):
            async with context.effect(f"line-{number}"):
                did.append(number)

    def send_sync(context: SyncContext, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        for number in range(300):
            with context.effect(f"line-{number}"):
                did.append(number)

    treadle_worker({"send": send if kind == "async" else send_sync})
    mission = await treadle_client.submit(one(retry=0))
    await run_until_idle()
    with pytest.raises(MissionFailed, match="effect line-256 of m/a: its WorkItem has 256 already"):
        await mission.results()
    assert did == list(range(256))


async def test_a_key_of_another_kind_and_an_empty_name_are_refused_by_name(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    said: list[str] = []

    async def send(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        for name, key in (("x", "epoch"), ("", "item")):
            try:
                async with context.effect(name, key=key):  # type: ignore[call-overload]
                    pass
            except Exception as error:
                said.append(str(error))

    treadle_worker({"send": send})
    await treadle_client.submit(one())
    await run_until_idle()
    assert said == ['key: \'epoch\', must be "item" or "ownership"', "effect: 0 bytes, must be 1 to 256"]
