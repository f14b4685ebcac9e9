"""Three pictures of a Group that must be one (S13): its log's fold, a Snapshot with what follows, and the store's own keys."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any

from treadle.shared.errors import Corrupt, TreadleError
from treadle.shared.model import Event, GroupId
from treadle.shared.projection import Projection
from treadle.shared.store import keys
from treadle.shared.store.differences import differences
from treadle.shared.store.standing import state_of


def replays(redis: Any, base: str, group: GroupId, events: Sequence[Event], *, seed: int) -> Iterator[str]:
    """Where a replay of a Group's whole log, one that begins with a Snapshot, and the store's keys do not agree."""
    try:
        whole = _folded(Projection(group), events)
        cut = Random(f"{seed} {group} {len(events)}").randint(0, len(events))
        begun = _folded(Projection(group), events[:cut])
        yield from _follows(whole, Projection.unpack(group, begun.pack()), events, f"a Snapshot at {cut}")
        kept = redis.hgetall(keys.snapshot(base, group))
        if kept:
            body = b"".join(kept[b"%d" % number] for number in range(1, int(kept[b"chunks"]) + 1))
            yield from _follows(whole, Projection.unpack(group, body), events, "the Snapshot that is kept")
        stored = _now(state_of(_Plain(redis), base, group))
    except (Corrupt, TreadleError) as error:
        yield f"{group}: its replay breaks: {error}"
        return
    for one in differences(whole, stored):
        yield f"{group}: {one} (S13)"


def _folded(projection: Projection, events: Sequence[Event]) -> Projection:
    for event in events:
        projection.fold(event)
    return projection


def _follows(whole: Projection, snapshot: Projection, events: Sequence[Event], what: str) -> Iterator[str]:
    if _folded(snapshot, events[snapshot.through :]).canonical() != whole.canonical():
        yield f"{whole.group}: {what} and what follows are not the whole log (S13)"


def _now(asked: Coroutine[Any, Any, Projection]) -> Projection:
    """What a coroutine that waits for nothing returns."""
    try:
        asked.send(None)
    except StopIteration as done:
        found: Projection = done.value
        return found
    raise AssertionError("it waits")


class _Plain:
    """The server itself behind the face of an asynchronous client: it answers at once, in nobody's process."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def __getattr__(self, name: str) -> Any:
        async def answered(*args: Any) -> Any:
            return getattr(self._redis, name)(*args)

        return answered

    def pipeline(self, *, transaction: bool) -> AbstractAsyncContextManager[_Pipe]:
        return _Pipe(self._redis.pipeline(transaction=transaction))


class _Pipe(AbstractAsyncContextManager["_Pipe"]):
    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    async def __aexit__(self, *_: object) -> None:
        self._pipe.reset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)

    async def execute(self) -> list[Any]:
        return list(self._pipe.execute())
