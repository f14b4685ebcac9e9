"""What a handler declares reaches whoever enqueues: type checkers see the fields of its inputs, and what its result is.

The `type: ignore[...]` comments and `assert_type` are part of the tests: mypy strict reports what does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import pytest
from pydantic import BaseModel
from treadle.coordinator import Client, Job, SyncClient, SyncJob, WorkSpec
from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call
from treadle.worker import Context, handler

URL = "unix:///nowhere.sock"


class Thumbs(BaseModel):
    files: list[str]
    size: int = 128


@dataclass(frozen=True)
class Made:
    count: int


@handler("thumbnails", inputs=Thumbs)
async def thumbnails(_: Context, inputs: Thumbs) -> Made:
    return Made(len(inputs.files))


def test_a_spec_is_checked_by_type_checkers_and_at_run_time() -> None:
    call = thumbnails.spec(files=["a.jpg"])
    assert_type(call, Call[Made])
    assert WorkSpec.of(call, id="a", urgency="high").inputs == {"files": ["a.jpg"], "size": 128}
    with pytest.raises(Misuse, match="files"):
        thumbnails.spec(files="a.jpg")  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        thumbnails.spec(flies=["a.jpg"])  # type: ignore[call-arg]
    with pytest.raises(Misuse, match="slots"):
        WorkSpec.of(call, id="a", slots="2")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="slotz: is not a field; did you mean slots"):
        WorkSpec.of(call, id="a", slotz=2)  # type: ignore[call-arg]


async def typed(client: Client) -> None:
    """Never run: what is asserted here is asserted by mypy."""
    job = await client.enqueue(thumbnails.spec(files=["a.jpg"]), account="acme", key="a", retry=2)
    assert_type(job, Job[Made])
    assert_type(await job.result(), Made)
    assert_type(await client.enqueue(thumbnails, {"files": []}), Job[Made])
    assert_type(await client.enqueue("thumbnails", {"files": []}), Job[Any])
    assert_type(await client.enqueue(WorkSpec(id="a", capability="thumbnails")), Job[Any])
    assert_type(await client.enqueue_many([thumbnails.spec(files=["a.jpg"])]), list[Job[Made]])
    await client.enqueue(thumbnails.spec(files=[]), retries=2)  # type: ignore[call-overload]
    await client.enqueue(3)  # type: ignore[call-overload]


def typed_without_await(client: SyncClient) -> None:
    job = client.enqueue(thumbnails.spec(files=["a.jpg"]), account="acme", key="a", retry=2)
    assert_type(job, SyncJob[Made])
    assert_type(job.result(), Made)
    assert_type(client.enqueue(thumbnails, {"files": []}), SyncJob[Made])
    assert_type(client.enqueue("thumbnails", {"files": []}), SyncJob[Any])
    assert_type(client.enqueue_many([thumbnails.spec(files=["a.jpg"])]), list[SyncJob[Made]])
    client.enqueue(3)  # type: ignore[call-overload]
