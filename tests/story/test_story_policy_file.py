"""Story: Workers are given a policy file; what it says is the policy, from the moment that somebody saves it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fleet import until
from inside import Mortal, Start
from treadle.shared.errors import Misuse, ReplyLost
from treadle.shared.model import AgentId
from treadle.shared.store import Store, keys, policies
from treadle.shared.testing.faults import Fault, FaultyEndpoint, Trip, no_fault
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, Worker, handler
from treadle.worker.applying import PolicyFile

OLD, NEW, OTHER = (f"[classes.urgent]\nweight = {weight}\n" for weight in (2, 4, 8))


@handler("nothing")
async def nothing(context: Context, inputs: dict[str, Any]) -> None:
    pass


@pytest.fixture
async def by_hand(store: FakeEndpoint) -> AsyncIterator[Store]:
    opened = await Store.connect(store)
    yield opened
    await opened.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def save(path: Path, said: str | bytes | None) -> None:
    if said is None:
        path.unlink()
    else:
        path.write_bytes(said.encode() if isinstance(said, str) else said)


def followed(path: Path, agent: str = "w1") -> PolicyFile:
    return PolicyFile(path, AgentId(agent))


async def looks(file: PolicyFile, store: Store, times: int = 2) -> None:
    for _ in range(times):
        await file.look(store)


async def stands(store: Store) -> tuple[int, str, str]:
    """Version, text and who."""
    standing = await policies.read(store)
    return (0, "", "") if standing is None else (standing.change.version, standing.text, standing.change.actor)


async def test_a_change_of_the_file_is_the_policy_and_recorded_with_who(by_hand: Store, path: Path) -> None:
    save(path, OLD)
    file = followed(path, "w%201")
    await looks(file, by_hand)
    assert await stands(by_hand) == (1, OLD, "w 1")
    await looks(file, by_hand, 5)
    assert (await stands(by_hand))[0] == 1, "what has not changed is not applied again"
    save(path, NEW)
    await looks(file, by_hand)
    assert await stands(by_hand) == (2, NEW, "w 1")
    save(path, OLD)
    await looks(file, by_hand)
    assert await stands(by_hand) == (3, OLD, "w 1")


async def test_a_file_that_is_half_written_is_not_applied(by_hand: Store, path: Path) -> None:
    file = followed(path)
    for text in ("", "[classes.urgent]\n", OLD):
        save(path, text)
        await looks(file, by_hand, 1)
    assert await stands(by_hand) == (0, "", "")
    await looks(file, by_hand, 1)
    assert await stands(by_hand) == (1, OLD, "w1")


@pytest.mark.parametrize(
    ("raw", "saying"),
    [
        (b"[classes.urgent]\nweight = 0\n", "policy.toml:2: classes.urgent.weight: 0 is not allowed"),
        (b"[classes.urgent]\nweight = 4\n\xff", "policy.toml:3: is no UTF-8"),
        (b"[classes.urgent\n", "policy.toml:1: is no TOML"),
        (None, "policy.toml: cannot be read (No such file or directory)"),
    ],
)
async def test_a_wrong_file_is_said_once_with_its_line_and_the_policy_stays(
    raw: bytes | None, saying: str, by_hand: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(path, OLD)
    file = followed(path)
    await looks(file, by_hand)
    save(path, raw)
    await looks(file, by_hand, 5)
    assert await stands(by_hand) == (1, OLD, "w1")
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 1
    assert saying in said[0]
    assert said[0].endswith("the policy stays as it is")
    save(path, NEW)
    await looks(file, by_hand)
    assert await stands(by_hand) == (2, NEW, "w1")


async def test_a_pipe_or_a_device_is_no_file_and_keeps_nobody_waiting(
    by_hand: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever read a pipe that nobody writes to would not end by SIGTERM either."""
    os.mkfifo(path)
    for one in (path, Path("/dev/zero")):
        with anyio.fail_after(5):
            await looks(followed(one), by_hand)
    assert ["is no file" in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        True,
        True,
    ]
    save(path, None)
    save(path, OLD)
    await looks(followed(path), by_hand)
    assert (await stands(by_hand))[1] == OLD


async def test_workers_with_different_files_do_not_fight(by_hand: Store, tmp_path: Path) -> None:
    paths = [tmp_path / "one.toml", tmp_path / "two.toml"]
    for path, text in zip(paths, (OLD, NEW), strict=True):
        save(path, text)
    files = [followed(path, f"w{number}") for number, path in enumerate(paths)]
    for _ in range(10):
        for file in files:
            await file.look(by_hand)
    assert await stands(by_hand) == (2, NEW, "w1"), "each was applied once"
    paths[0].write_text(OTHER)
    for _ in range(10):
        for file in files:
            await file.look(by_hand)
    assert await stands(by_hand) == (3, OTHER, "w0")


async def test_workers_that_are_given_the_same_file_apply_it_once(by_hand: Store, path: Path) -> None:
    save(path, OLD)
    files = [followed(path, f"w{number}") for number in range(4)]
    async with anyio.create_task_group() as tasks:
        for file in files:
            tasks.start_soon(looks, file, by_hand)
    assert (await stands(by_hand))[:2] == (1, OLD)


async def test_a_start_with_an_old_file_brings_no_old_policy_back(
    by_hand: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (OLD, NEW):
        await policies.apply(by_hand, text, actor="ana")
    save(path, OLD)
    file = followed(path)
    await looks(file, by_hand)
    assert await stands(by_hand) == (2, NEW, "ana")
    assert "was version 1 of the policy, version 2 stands and stays" in caplog.text
    save(path, OTHER)
    await looks(file, by_hand)
    assert await stands(by_hand) == (3, OTHER, "w1")
    save(path, NEW)
    await looks(followed(path, "w2"), by_hand)
    assert await stands(by_hand) == (3, OTHER, "w1"), "nor does a later one's"


async def test_what_somebody_applies_by_hand_stays_until_the_file_changes(by_hand: Store, path: Path) -> None:
    save(path, OLD)
    file = followed(path)
    await looks(file, by_hand)
    await policies.apply(by_hand, OTHER, actor="ana")
    save(path, "[")
    await looks(file, by_hand)
    save(path, OLD)
    await looks(file, by_hand)
    assert await stands(by_hand) == (2, OTHER, "ana"), "a fault that was mended is no change"
    save(path, NEW)
    await looks(file, by_hand)
    assert await stands(by_hand) == (3, NEW, "w1")


async def test_a_lost_reply_is_made_up_for_at_the_next_look(store: FakeEndpoint, path: Path) -> None:
    endpoint = FaultyEndpoint(store)
    through = await Store.connect(endpoint)

    def lose(trip: Trip) -> Fault:
        return Fault.REPLY_LOST if "set_policy" in trip.functions else Fault.NONE

    save(path, OLD)
    file = followed(path)
    endpoint.fault = lose
    with pytest.raises(ReplyLost):
        await looks(file, through)
    endpoint.fault = no_fault
    await looks(file, through, 1)
    assert await stands(through) == (1, OLD, "w1")
    assert await noted(store, through) == [b"1"] * through.partitions
    await through.aclose()


async def test_a_worker_applies_its_file_and_goes_by_it(store: FakeEndpoint, by_hand: Store, path: Path) -> None:
    save(path, "[[workers]]\nmatch = 'w*'\nslots = 3\n")
    worker = Worker({}, endpoint=store, name=AgentId("w1"), slots=1, policy=path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.ready.wait()

        async def is_applied() -> bool:
            return (await stands(by_hand))[0] == 1

        await until(is_applied, description="its file is the policy")
        worker.stop()


async def test_an_error_that_ends_a_worker_with_a_file_is_raised_as_it_is(path: Path) -> None:
    save(path, OLD)
    endpoint = FakeEndpoint()
    store = await Store.connect(endpoint)
    with pytest.raises(Misuse, match=r"^this one$"):
        async with followed(path).followed(store):
            raise Misuse("this one")
    await store.aclose()


async def noted(endpoint: FakeEndpoint, store: Store) -> list[bytes | None]:
    client = endpoint.client(timeout_s=1, seen=lambda *_: None)
    return [await client.hget(keys.meta(store.base(p)), "policy") for p in range(store.partitions)]


@pytest.mark.parametrize("notes", [0, 1, 7])
async def test_a_policy_whose_author_was_killed_before_all_had_noted_it_is_heard_at_the_next_session_start(
    notes: int, store: FakeEndpoint, by_hand: Store, start: Start
) -> None:
    mortal = Mortal(store, 1_000_000)
    dying = await Store.connect(mortal)
    mortal.lives = 2 + notes  # the version is read, the text is set, and some partitions note it
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: policies.apply(dying, NEW, actor="ana"))
        await mortal.dead.wait()
        tasks.cancel_scope.cancel()
    assert (await stands(by_hand))[:2] == (1, NEW)
    assert (await noted(store, by_hand)).count(b"1") == notes
    async with start("w1"):

        async def all_know() -> bool:
            return await noted(store, by_hand) == [b"1"] * by_hand.partitions

        await until(all_know, description="every partition says it")
