"""What the client refuses before it speaks to any store, and how long it asks one that does not answer."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
import redis.asyncio
from treadle.coordinator import Client, Failure, JobFailed, MissionFailed, MissionSpec, WorkSpec, asking, line
from treadle.coordinator.line import ATTEMPTS_MAX
from treadle.shared.errors import Backpressure, Misuse, Refused, ReplyLost, StoreChanged, TreadleError
from treadle.shared.inputs import Call
from treadle.shared.model import Capability, MissionState

URL = "redis://127.0.0.1:1/0"
SPEC = MissionSpec(objective="index", work=[WorkSpec(id="a", capability="index")])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Client.connect("http://localhost"), "url (TREADLE_URL): 'http://localhost' is not allowed"),
        (
            lambda: Client.connect(f"{URL}?decode_responses=True"),
            "url (TREADLE_URL): decode_responses has no place in it",
        ),
        (
            lambda: Client.connect(redis.asyncio.Redis(decode_responses=True)),  # type: ignore[arg-type]
            "url: a value of type redis.asyncio.client.Redis is no address; pass the URL, redis://...",
        ),
        (lambda: Client.connect(redis.Redis()), "url: a value of type redis.client.Redis is no address"),  # type: ignore[arg-type]
        (lambda: Client.connect(URL, prefix="a:b"), "prefix (TREADLE_PREFIX): 'a:b' is not allowed"),
        (lambda: Client.connect(URL, actor=""), "actor: 0 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL, actor="x" * 257), "actor: 257 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL).job(""), "key: 0 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL).job("\ud800"), "key: holds a lone surrogate"),
        (lambda: Client.connect(URL).job("x", account=""), "account: 0 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL).job("x", account="x" * 252), "account: 252 bytes, at most 251 for one-off jobs"),
        (lambda: Client.connect(URL).mission(""), "mission: 0 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL).mission("\ud800"), "mission: holds a lone surrogate"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_opened(make: Callable[[], object], said: str) -> None:
    with pytest.raises(Misuse) as caught:
        make()
    assert str(caught.value).startswith(said)


async def test_a_client_that_was_not_entered_says_how_to() -> None:
    mission = Client.connect(URL).mission("nightly")
    job = Client.connect(URL).job("photo-17")
    opened = Client.connect(URL)
    calls: tuple[Awaitable[object], ...] = (
        *(opened.pause("all"), opened.resume("all"), opened.paused(), opened.schedules(), opened.unschedule("x")),
        opened.schedule("x", "index", every=60),
        *(Client.connect(URL).submit(SPEC), Client.connect(URL).enqueue("index")),
        *(mission.view(), mission.results(), mission.items(), mission.add(SPEC.work), mission.seal(), mission.cancel()),
        *(mission.cancel_item("a"), mission.fail("a", "x"), mission.retry("a"), anext(mission.events())),
        *(job.view(), job.state(), job.result(), job.cancel(), job.retry()),
    )
    for call in calls:
        with pytest.raises(Misuse, match=r"write `async with Client\.connect"):
            await call


CALL = Call(Capability("index"), "1.0.0", {"n": 1}, lambda value: value)


@pytest.mark.parametrize(
    ("work", "given", "said"),
    [
        (
            3,
            {},
            "enqueue: takes a capability's name, handler.spec(...), a handler or a WorkSpec, not a value of type int",
        ),
        (None, {}, "enqueue: takes a capability's name"),
        (CALL, {"inputs": {}}, "enqueue: handler.spec(...) has its inputs already; give none beside it"),
        (
            SPEC.work[0],
            {"key": "x"},
            "enqueue: a WorkSpec has its own inputs, id (the key) and options; give nothing beside",
        ),
        (SPEC.work[0], {"slots": 2}, "enqueue: a WorkSpec has its own inputs"),
        ("No Such!", {"key": "x"}, "job (key \"x\"): capability: 'No Such!' is not a capability name"),
        ("index", {"key": ""}, "key: 0 bytes, must be 1 to 256"),
        ("index", {"key": "x" * 257}, "key: 257 bytes, must be 1 to 256"),
        ("index", {"key": "\ud800"}, "key: holds a lone surrogate"),
        ("index", {"account": ""}, "account: 0 bytes, must be 1 to 256"),
        ("index", {"account": "\ud800"}, "account: holds a lone surrogate"),
        ("index", {"key": "x", "inputs": []}, 'WorkSpec (id "x"): inputs: a value of type list must be a dict'),
        ("index", {"key": "x", "inputs": {1: 2}}, 'job (key "x"): inputs: key 1 is of type int, must be str'),
        (
            "index",
            {"key": "x", "inputs": {"i": [{"id": 2**64}]}},
            'job (key "x"): inputs.i[0].id: 18446744073709551616 is',
        ),
        ("index", {"key": "x", "retries": 3}, 'WorkSpec (id "x"): retries: is not a field; did you mean retry?'),
        (
            "index",
            {"key": "x", "not_before": datetime(2031, 1, 1)},
            'WorkSpec (id "x"): not_before: datetime.datetime(2031',
        ),
        ("index", {"key": "x", "retry": 101}, 'WorkSpec (id "x"): retry: 101 must be 0 to 100 retries'),
    ],
)
async def test_a_job_that_is_wrong_is_refused_before_anything_is_asked(
    work: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misuse) as caught:
        await Client.connect(URL, actor="ann").enqueue(work, **given)
    assert str(caught.value).startswith(said)


async def test_add_takes_specs_and_nothing_else() -> None:
    with pytest.raises(Misuse, match=r"^add: work\[1\]: takes WorkSpecs, not a value of type dict$"):
        await Client.connect(URL).mission("m").add([SPEC.work[0], {"id": "b"}])  # type: ignore[list-item]


async def test_submit_takes_a_spec_and_nothing_else() -> None:
    with pytest.raises(Misuse, match=r"^submit: takes a MissionSpec, not a value of type dict$"):
        await Client.connect(URL).submit({"objective": "x"})  # type: ignore[arg-type]


def test_the_actor_is_the_user_at_this_host_or_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "loom")
    assert Client.connect(URL).actor == "ann@loom"

    def no_user() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", no_user)
    assert Client.connect(URL).actor == "anonymous"


def test_the_environment_is_used_where_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_URL", "nonsense")
    with pytest.raises(Misuse, match="TREADLE_URL"):
        Client.connect()


def test_generated_ids_are_long_and_never_twice() -> None:
    made = {asking.new_id("m") for _ in range(1000)}
    assert len(made) == 1000
    assert {len(id_) for id_ in made} == {22}


def test_a_failed_mission_says_which_items_failed_and_why() -> None:
    failures = tuple(Failure(f"i{index}", "ValueError", "x" * 1000) for index in range(5))
    error = MissionFailed("nightly", MissionState.FAILED, failures)
    assert isinstance(error, Refused)
    assert error.failures == failures
    message = str(error)
    assert message.startswith('mission "nightly" failed: i0: ValueError: xxx')
    assert message.endswith("; and 2 more")
    assert len(message) < 1200


def test_a_failed_job_says_why_where_and_how_often() -> None:
    error = JobFailed(
        "jobs:acme/photo-17", Failure("photo-17", "ValueError", "no such file", "thumbs.py:7"), attempts=4
    )
    assert str(error) == 'job "jobs:acme/photo-17" failed, tried 4 times: ValueError: no such file (thumbs.py:7)'


@pytest.mark.parametrize("problem", [ReplyLost("lost"), Backpressure("full")])
async def test_an_unavailable_store_is_asked_again_and_not_for_ever(
    problem: TreadleError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "BACKOFF_S", 0.0)
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise problem

    with pytest.raises(type(problem)):
        await line.repeated(ask, None)
    assert asked == ATTEMPTS_MAX


async def test_another_server_is_adopted_before_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "BACKOFF_S", 0.0)
    calls: list[str] = []

    async def ask() -> str:
        calls.append("ask")
        if len(calls) == 1:
            raise StoreChanged("another replid")
        return "answer"

    async def adopt() -> None:
        calls.append("adopt")
        if calls.count("adopt") == 1:
            raise ReplyLost("lost")

    assert await line.repeated(ask, adopt) == "answer"
    assert calls == ["ask", "adopt", "adopt", "ask"]


async def test_a_refusal_is_not_asked_again() -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Refused("no")

    with pytest.raises(Refused):
        await line.repeated(ask, None)
    assert asked == 1
