"""docs/effects.md does what it says: its examples are files, and what they do happens once."""

from __future__ import annotations

import importlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from fresh import FRESH
from treadle.coordinator import Client, MissionSpec, SyncClient, WorkSpec
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.injection import Faults
from treadle.worker import effects
from treadle.worker.effects import Token, headers_of
from treadle.worker.testing import Workers

from docs import blocks, page, written

PAGE = page("effects.md")
Idle = Callable[..., Awaitable[float]]
KEY = "acme%2Forders/1017/send"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """A server with a stock of 17."""
    server = EmbeddedServer().start()
    client = redis.Redis.from_url(server.url)
    client.set("stock", 17)
    monkeypatch.setenv("SHOP_URL", server.url)
    yield client
    client.close()
    server.stop()


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A file of the page, imported in a folder of its own."""
    written(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module
    for name in ("invoices", "stock", "service"):
        sys.modules.pop(name, None)


def done_twice(handler: Callable[[Any, Any], Awaitable[Any]], faults: Faults) -> Callable[..., Awaitable[Any]]:
    """The handler; its Worker dies when it has returned for the first time."""

    async def run(context: Any, inputs: dict[str, int]) -> Any:
        said = await handler(context, inputs)
        if context.attempt == 1:
            faults.kill(context.worker)
        return said

    return run


async def test_what_the_page_books_is_booked_once_although_its_worker_dies(
    example: Callable[[str], ModuleType],
    treadle_client: Client,
    treadle_worker: Workers,
    faults: Faults,
    run_until_idle: Idle,
    tmp_path: Path,
) -> None:
    module = example("invoices")

    for name in ("w1", "w2"):
        treadle_worker({"book": done_twice(module.book, faults), "list": module.write_list}, name=name)
    work = [WorkSpec(id=capability, capability=capability, inputs={"amount": 5}) for capability in ("book", "list")]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="an invoice", work=work))
    await run_until_idle()
    results = await mission.results()
    assert results["book"] == 1
    assert results["list"] in ("w1", "w2")
    book = sqlite3.connect(tmp_path / "book.db")
    assert book.execute("SELECT amount FROM invoices").fetchall() == [(5,)]
    book.close()
    assert (tmp_path / "list.csv").read_text() == "list,5\n"


@pytest.mark.slow
async def test_what_the_page_takes_from_the_stock_is_taken_once_although_its_worker_dies(
    example: Callable[[str], ModuleType],
    treadle_client: Client,
    treadle_worker: Workers,
    faults: Faults,
    run_until_idle: Idle,
    shop: redis.Redis,
) -> None:
    module = example("stock")

    for name in ("w1", "w2"):
        treadle_worker({"reserve": done_twice(module.reserve, faults)}, name=name)
    work = [WorkSpec(id="a", capability="reserve", inputs={"pieces": 5})]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="an order", work=work))
    await run_until_idle()
    assert await mission.results() == {"a": "reserved"}
    assert shop.get("stock") == b"12"
    module.gate._client.close()


@pytest.mark.slow
def test_in_processes_of_their_own_the_examples_write_where_the_worker_was_started(tmp_path: Path) -> None:
    written(PAGE, tmp_path)
    server = EmbeddedServer().start()
    environment = {**FRESH, "TREADLE_URL": server.url}
    argv = [sys.executable, "-m", "treadle.worker.cli", "run", "--handlers", "invoices", "--runtime", "process"]
    worker = subprocess.Popen(argv, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        with SyncClient.connect(server.url) as client:
            jobs = [client.enqueue(name, {"amount": 5}, key=name) for name in ("book", "list")]
            assert jobs[0].result(timeout=60) == 1
            assert jobs[1].result(timeout=60)
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
        server.stop()
    book = sqlite3.connect(tmp_path / "book.db")
    assert book.execute("SELECT amount FROM invoices").fetchall() == [(5,)]
    book.close()
    assert (tmp_path / "list.csv").read_text() == "list,5\n"


def test_the_service_of_the_page_answers_a_repetition_and_refuses_who_was_overtaken(
    example: Callable[[str], ModuleType],
) -> None:
    answer = example("service").answer
    first, later = (headers_of(KEY, Token(1, 1, number, f"w-{number}")) for number in (1, 2))
    assert [answer(first, 5), answer(later, 5)] == [(200, b"no. 1")] * 2
    assert answer({}, 5)[0] == 400
    with pytest.raises(sqlite3.Error):
        answer(headers_of(f"{KEY}/2", Token(1, 2, 9, "w-9")), object())
    assert answer(headers_of(f"{KEY}/2", Token(1, 1, 1, "w-1")), 5)[0] == 409


def test_every_python_block_is_a_file_that_is_run_and_every_gate_has_a_row() -> None:
    assert [block.name for block in blocks(PAGE, "python")] == ["invoices.py", "stock.py", "service.py"]
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)[`(]", " ".join(rows)))
    assert {name for name in effects.__all__ if re.fullmatch(r"\w+Gate|Ledger", name)} | {"RedisGate"} <= named


def test_the_headers_of_the_page_are_those_that_are_sent() -> None:
    sent = headers_of(KEY, Token(1767225600000, 3, 4, "worker-1.7.0.0.12.1"))
    shown = [block.text for block in blocks(PAGE) if "Idempotency-Key" in block.text and not block.language]
    assert shown == ["".join(f"{name}: {value}\n" for name, value in sent.items())]
