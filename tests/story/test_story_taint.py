"""Story. Four items are at work at once, two Missions with two slots each, and none of them comes upon another's marks (S17).

Each looks at all that its own context leads to, and does with its secret what it should not: logs it, notes it, raises it,
saves it, returns it. That the search finds something is shown by breaking, one by one, what keeps them apart.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread
import pytest
from inside import at_work
from taint import KINDS, SLOTS, Seen, Slot, dumped, leaks, texts
from treadle.coordinator import Client, MissionSpec, Retry, WorkSpec
from treadle.shared.errors import Misuse
from treadle.shared.model import AgentId
from treadle.shared.redaction import HidingFormatter, Redactor, Secrets
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context, Fail, SyncContext, Worker, handler
from treadle.worker.handlers import Handler
from treadle.worker.loading import collect
from treadle.worker.slots import contexts, service, slot
from treadle.worker.slots.given import Given
from treadle.worker.slots.tools import Tool

MEET_S = 20.0
seen = Seen()
meeting = threading.Barrier(len(SLOTS))


class Vault:
    """Gives each of the four a secret of its own, under one name."""

    async def credentials(self, mission: str, capability: str, /) -> Mapping[str, str]:
        return {"key": next(one.secret for one in SLOTS if (one.mission, one.capability) == (mission, capability))}


def look(context: Any) -> None:
    """What one slot can see, while the others are at work."""
    name = f"{context.mission}/{context.item}"
    seen.reached.setdefault(name, []).extend(texts(context))
    seen.environment[name] = [repr(dict(os.environ))]
    context.logger.info("has %s", context.credentials["key"])
    context.progress(0.5, note="half way", milestone=f"with {context.credentials['key']}")
    context.spend(context.inputs["budget"], 1)


def give_away(context: Any) -> None:
    """What a handler does with a secret by mistake: one way at each attempt."""
    secret = context.credentials["key"]
    if context.attempt == 1:
        raise ValueError(f"cannot use {secret!r}") from KeyError(secret)
    if context.attempt == 2:
        raise ExceptionGroup(secret, [ValueError(secret.encode())])


@handler("taint.loop")
async def on_the_loop(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    if context.resolution is None and context.attempt == 3:
        raise Blocked(f"it waits with {context.credentials['key']}", needs={"mark": "none"})
    await context.checkpoint({"mark": inputs["checkpoint"]})
    async with context.effect(inputs["effect"]) as effect:
        if effect.is_new:
            effect.result = {"mark": inputs["effect"]}
    if context.attempt == 1:
        await anyio.to_thread.run_sync(meeting.wait, MEET_S)
    look(context)
    give_away(context)
    with pytest.raises(Misuse, match="checkpoint: holds the credential 'key'"):
        await context.checkpoint({"mark": context.credentials["key"]})
    with pytest.raises(Fail, match=r"effect\.result: holds the credential 'key'"):
        async with context.effect("leaky") as effect:
            effect.result = context.credentials["key"]
    with pytest.raises(Misuse, match="effect: its name: holds the credential 'key'"):
        await context.effect(context.credentials["key"]).__aenter__()
    return {"mark": inputs["result"]}


@handler("taint.thread")
def in_a_thread(context: SyncContext, inputs: dict[str, Any]) -> dict[str, Any]:
    context.checkpoint({"mark": inputs["checkpoint"]})
    with context.effect(inputs["effect"]) as effect:
        if effect.is_new:
            effect.result = {"mark": inputs["effect"]}
    if context.attempt == 1:
        meeting.wait(MEET_S)
    look(context)
    give_away(context)
    with pytest.raises(Misuse, match="checkpoint: holds the credential 'key'"):
        context.checkpoint({"mark": context.credentials["key"]})
    return {"mark": inputs["result"]}


def work(one: Slot) -> WorkSpec:
    return WorkSpec(
        id=one.item,
        capability=one.capability,
        inputs=one.inputs,
        budgets={one.mark("budget"): 100},
        retry=Retry(retries=5, first_s=0.001),
    )


async def played(store: FakeEndpoint) -> Seen:
    """The scene, to its end."""
    worker = Worker(
        collect(sys.modules[__name__]),
        endpoint=store,
        name=AgentId("one"),
        slots=len(SLOTS),
        lease_ttl_s=5,
        credentials=Vault(),
    )
    async with Client.connect(store, actor="ann") as client, at_work(worker):
        missions = [
            await client.submit(
                MissionSpec(id=id, objective="to keep apart", work=[work(one) for one in SLOTS if one.mission == id])
            )
            for id in dict.fromkeys(one.mission for one in SLOTS)
        ]
        for mission in missions:
            async for event in mission.events():
                if event.kind == "work.blocked":
                    break
            await mission.unblock("loop", {"go": "on"})
            results = await mission.results(timeout=30)
            assert results == {one.item: {"mark": one.mark("result")} for one in SLOTS if one.mission == mission.id}
    seen.store = dumped(store.sync_client(timeout_s=1, seen=lambda _: None))
    return seen


class _Lines(logging.Handler):
    """Keeps each line of the log as it would be written."""

    def emit(self, record: logging.LogRecord) -> None:
        seen.lines.append(self.format(record))


@pytest.fixture(autouse=True)
def _lines() -> Iterator[None]:
    seen.reached.clear()
    seen.environment.clear()
    seen.lines.clear()
    meeting.reset()
    lines, root = _Lines(), logging.getLogger()
    lines.setFormatter(HidingFormatter())
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    yield
    root.removeHandler(lines)
    root.setLevel(level)


async def test_s17_no_slot_comes_upon_the_marks_of_another(store: FakeEndpoint) -> None:
    seen = await played(store)
    assert leaks(seen) == []
    whole = "\n".join(seen.store.values())
    assert [mark for one in SLOTS for mark in one.marks if mark not in whole] == [one.secret for one in SLOTS], (
        "all but the secrets are stored"
    )
    assert "".join(seen.lines).count("cannot use '***'") >= len(SLOTS)


def one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {one.capability.partition(".")[2] + one.mission: one.secret for one in SLOTS}

    async def shared(_provider: object, mission: str, capability: str) -> Secrets:
        return Secrets({"key": (await Vault().credentials(mission, capability))["key"], **everything})

    monkeypatch.setattr(slot, "secrets_of", shared)


def a_context_that_holds_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(handler: Handler, given: Given, asked: service.RunService, tools: Mapping[str, Tool]) -> Any:
        call = contexts.called(handler, given, asked, tools)
        call.args[0].desk = service._RUNS[asked].desk
        return call

    monkeypatch.setattr(slot, "called", called)


def nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redactor, "hide", lambda _self, text, most=None: text[:most])


def the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_ANOTHER", SLOTS[0].secret)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (one_for_all, "is reached from the context of"),
        (a_context_that_holds_its_worker, "is reached from the context of"),
        (nothing_is_hidden, "is in a log"),
        (nothing_is_hidden, "credential.of.acme.loop.7f3q is in treadle:"),
        (the_environment_is_as_it_was, "credential.of.acme.loop.7f3q is in the environment of beta/thread"),
    ],
)
async def test_s17_the_search_finds_what_is_broken(
    store: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], said: str
) -> None:
    broken(monkeypatch)
    assert [leak for leak in leaks(await played(store)) if said in leak]


def test_the_marks_of_a_slot_are_of_each_kind_and_its_own() -> None:
    assert len({mark for one in SLOTS for mark in one.marks}) == len(SLOTS) * len(KINDS)
