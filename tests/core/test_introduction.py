"""The first line of a Worker's log says who it is, what it has and can do, where that runs, for whom, and at which store."""

from __future__ import annotations

import logging

import pytest
from treadle.shared.errors import Unavailable
from treadle.shared.model import AgentId, Capability
from treadle.worker import Context, Worker
from treadle.worker import worker as working
from treadle.worker.handlers import Handler
from treadle.worker.programs import from_options
from treadle.worker.terms import CAPABILITIES_SHOWN_MAX


async def fetch(_context: Context, _inputs: dict[str, object]) -> None: ...


def handlers(*names: str) -> dict[Capability, Handler]:
    return {Capability(name): Handler(Capability(name), "1.2.0", fetch) for name in names}


async def test_the_first_line_of_a_workers_log_introduces_it_without_credentials(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "treadle.worker")
    monkeypatch.setattr(working, "FIRST_CONNECT_S", 0.0)
    worker = Worker(
        handlers("fetch") | from_options(["thumb=true"]),
        endpoint="redis://ann:sesame-open@127.0.0.1:1/0",
        name=AgentId("w%201"),
        prefix="mine",
        slots=2,
        resources={"gpu": 1},
        groups="acme/*",
    )
    with pytest.raises(Unavailable):
        await worker.run()
    assert caplog.messages[0] == (
        "agent w 1: 2 slots, gpu=1; does fetch 1.2.0 (task), thumb 1.0.0 (process); for Missions 'acme/*'; "
        "store redis://***@127.0.0.1:1/0, prefix 'mine'"
    )
    assert "sesame" not in caplog.text


def test_of_very_many_capabilities_the_first_are_named_and_the_others_counted() -> None:
    names = [f"c{number}" for number in range(CAPABILITIES_SHOWN_MAX + 3)]
    worker = Worker(handlers(*names), endpoint="redis://h", name=AgentId("w"), groups="x" * 999)
    said = worker._terms.introduction("s")
    assert "1 slot; does c0 1.2.0 (task), " in said
    assert f"c{CAPABILITIES_SHOWN_MAX - 1} 1.2.0 (task) and 3 more; for Missions" in said
    assert len(said) < 1_000
