"""What the client refuses before it speaks to any store, and how long it asks one that does not answer."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable

import pytest
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec, client
from treadle.coordinator.client import ATTEMPTS_MAX, Failure
from treadle.shared.errors import Backpressure, Misuse, Refused, ReplyLost, StoreChanged, TreadleError
from treadle.shared.model import MissionState

URL = "redis://127.0.0.1:1/0"
SPEC = MissionSpec(objective="index", work=[WorkSpec(id="a", capability="index")])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Client.connect("http://localhost"), "url (TREADLE_URL): 'http://localhost' is not allowed"),
        (lambda: Client.connect(URL, prefix="a:b"), "prefix (TREADLE_PREFIX): 'a:b' is not allowed"),
        (lambda: Client.connect(URL, actor=""), "actor: 0 bytes, must be 1 to 256"),
        (lambda: Client.connect(URL, actor="x" * 257), "actor: 257 bytes, must be 1 to 256"),
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
    calls = (Client.connect(URL).submit(SPEC), mission.view(), mission.results(), anext(mission.events()))
    for call in calls:
        with pytest.raises(Misuse, match=r"write `async with Client\.connect"):
            await call


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
    made = {client._new_id() for _ in range(1000)}
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


@pytest.mark.parametrize("problem", [ReplyLost("lost"), Backpressure("full")])
async def test_an_unavailable_store_is_asked_again_and_not_for_ever(
    problem: TreadleError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BACKOFF_S", 0.0)
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise problem

    with pytest.raises(type(problem)):
        await client._repeated(ask, None)
    assert asked == ATTEMPTS_MAX


async def test_another_server_is_adopted_before_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BACKOFF_S", 0.0)
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

    assert await client._repeated(ask, adopt) == "answer"
    assert calls == ["ask", "adopt", "adopt", "ask"]


async def test_a_refusal_is_not_asked_again() -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        raise Refused("no")

    with pytest.raises(Refused):
        await client._repeated(ask, None)
    assert asked == 1
