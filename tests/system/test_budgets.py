"""Budgets and tools of handlers in processes of their own: the Worker keeps the account, whatever becomes of them (S22)."""

from __future__ import annotations

import pytest
from fleet import Desk, Fleet, until
from treadle.coordinator import MissionFailed, Retry, WorkSpec

pytestmark = pytest.mark.slow

HANDLERS = """
import os
from treadle.worker import handler, tool

@tool("double")
def double(number):
    return 2 * number

@handler("crashes")
async def crashes(context, inputs):
    if context.attempt == 1:
        context.spend("tokens", 40)
        os._exit(3)
    return [context.left("tokens"), await context.tool("double")(21), context.left("tool_calls")]

@handler("squanders")
def squanders(context, inputs):
    context.spend("tokens", 40)
    context.tool("double")(1)
    context.spend("tokens", 61)
"""


async def test_s22_what_was_spent_outlives_the_process_that_spent_it(fleet: Fleet, desk: Desk) -> None:
    (fleet.folder / "spending.py").write_text(HANDLERS)
    worker = fleet.start(ttl_s=30, arguments=("--handlers", "spending", "--runtime", "process"))
    contract = {"tokens": 100, "tool_calls": 1}
    retry = Retry(retries=2, first_s=0.001)
    crashes = WorkSpec(id="a", capability="crashes", tools=["double"], budgets=contract, retry=retry)
    mission = await desk.submit("m", crashes)
    assert await mission.results(timeout=60) == {"a": [60, 42, 0]}, worker.tail()

    squanders = WorkSpec(id="b", capability="squanders", tools=["double"], budgets=contract, retry=retry)
    over = await desk.submit("n", squanders)
    with pytest.raises(MissionFailed, match="budget tokens: 61 asked, 60 left of 100"):
        await over.results(timeout=60)
    spent = r"n/b: spent 40 tokens \(40 by its Mission here\), 1 tool_calls"  # said once its process is gone
    await until(lambda: worker.said(spent), description="it is said", of=(worker,))
    assert not worker.said("n/b: taken and started, attempt 2"), "it is final"
