"""Snapshots of Groups: folded by whoever is asked, installed in chunks, and what they cover is trimmed (design.md 3.9).

newest Snapshot -> later Events -> projection -> chunks -> installed -> the log trimmed, but for its last Events
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from ..errors import Corrupt, Refused, TreadleError, Unavailable
from ..model import GroupId
from ..names import shown
from ..projection import Projection
from . import keys, log
from .store import Store

_log = logging.getLogger("treadle.store")
CHUNK_BYTES = 1 << 20
PAGE = 1_000
"""Entries folded between two other things of the same process: about 10 ms."""
LOG_KEEP = 10_000
"""Events below its Snapshot that a log keeps (TREADLE_LOG_KEEP)."""
LOG_KEEP_BYTES = 64 << 20
"""And so many bytes of them at most: Evidence may be 16 KiB an Event."""
CHUNKS_MAX = 256
"""As `snapshot.lua`."""
_HEAD = ("through", "digest", "size", "chunks")
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Installed:
    """The current Snapshot of a Group, and where its log begins now."""

    group: GroupId
    through: int
    digest: str
    size: int
    first: int


async def newest(store: Store, group: GroupId) -> Projection | None:
    """The projection of the Group's Snapshot; None where it has none; Corrupt where it cannot be trusted.

    Unavailable where it is replaced faster than it is read.
    """
    return await store.run(_newest, store.base(store.partition_of(group)), group)


async def _newest(client: Any, base: str, group: GroupId) -> Projection | None:
    key = keys.snapshot(base, group)
    for _ in range(_ATTEMPTS):
        head = await client.hmget(key, *_HEAD)
        if head == [None] * len(_HEAD):
            return None
        number_of = int(head[3]) if _is_head(head) else 0
        chunks = [await client.hget(key, str(number)) for number in range(1, number_of + 1)]
        # A newer one may have come in between, of the same size even: only what stood still is judged.
        if await client.hmget(key, *_HEAD) == head:
            return _unpacked(group, head, b"".join(chunk or b"" for chunk in chunks))
    raise Unavailable(f"group {group}: its Snapshot was replaced again and again while it was read; ask again")


def _unpacked(group: GroupId, head: Sequence[bytes | None], raw: bytes) -> Projection:
    what = f"group {group}: its Snapshot"
    through, _, size, _ = head
    if through is None or size is None or not _is_head(head) or len(raw) != int(size):
        raise Corrupt(f"{what} is not whole (through, digest, size, chunks: {head}); it cannot be taken up")
    found = Projection.unpack(group, raw)
    if found.through != int(through):
        raise Corrupt(f"{what} is of sequence {found.through}, its record says {int(through)}")
    return found


def _is_head(head: Sequence[bytes | None]) -> bool:
    """Whether through, digest, size and chunks are what the store writes; a foreign number is neither read nor counted to."""
    through, digest, size, chunks = (value or b"" for value in head)
    are_numbers = all(value.isdigit() and len(value) <= 14 for value in (through, size, chunks))
    return bool(digest) and are_numbers and int(chunks) <= CHUNKS_MAX


async def fold(store: Store, group: GroupId, *, at: int | None = None, from_start: bool = False) -> Projection:
    """The Group's state at a sequence (None: at the end of its log), from its Snapshot, or its start, and what follows.

    CursorTooOld where only Events that were trimmed would tell it; Corrupt where the log cannot be trusted; Refused
    (GROUP_NOT_FOUND) where there is none.
    """
    base = store.base(store.partition_of(group))
    first, snapshot = await store.run(log.bounds, base, group)
    written = await store.run(_written, base, group)
    found = None if from_start else await newest(store, group)
    if found is None or (at is not None and found.through > at):
        if first > 1:
            raise log.too_old(group, 0, first, snapshot)
        found = Projection(group)
    while at is None or found.through < at:
        entries = await store.run(log.entries_after, base, group, found.through, PAGE)
        found.fold_entries(entries if at is None else entries[: at - found.through])
        if len(entries) < PAGE:
            break
    if found.through < (written if at is None else min(written, at)):
        raise Corrupt(f"log of group {group}: it ends at {found.through}, but {written} were written; halt this Group")
    if not found.through:
        raise Refused(f"group {group} is not in the store, or its time is over", code="GROUP_NOT_FOUND")
    return found


async def _written(client: Any, base: str, group: GroupId) -> int:
    raw = await client.hget(keys.seqs(base), group)
    return int(raw) if raw and raw.isdigit() else 0


async def create(store: Store, group: GroupId, *, actor: str = "timer", keep: int = LOG_KEEP) -> Installed:
    """Folds the Group's log, installs what comes out as its Snapshot, and trims all but the last `keep` Events below it.

    Safe to repeat. Refused where there is no such Group or it has ended.
    """
    partition = store.partition_of(group)
    projection = await fold(store, group)
    raw = projection.pack()
    chunks = [raw[start : start + CHUNK_BYTES] for start in range(0, len(raw), CHUNK_BYTES)]
    head = (group, actor, projection.through, digest_of(raw), len(raw), len(chunks))
    current = projection.through
    for number in (*range(1, len(chunks) + 1), 0):
        answer = await store.call("snapshot", partition, (*head, number, chunks[number - 1] if number else b""))
        current = int(answer[2])
        if answer[1] == b"repeated":
            break
    first = await trim(store, group, await _first_kept(store, group, current, keep))
    return Installed(group, current, head[3], len(raw), first)


async def _first_kept(store: Store, group: GroupId, through: int, keep: int) -> int:
    """The first Event below a Snapshot that stays: of the last `keep` as many as are not too many bytes."""
    base, first, kept, at = store.base(store.partition_of(group)), max(1, through + 1 - keep), 0, through
    if not await store.run(_may_be_heavy, base, group):
        return first
    while at >= first:
        entries = await store.run(log.entries_up_to, base, group, first, at, PAGE)
        for seq, size in entries:
            kept += size
            if kept > LOG_KEEP_BYTES:
                return seq + 1
            at = seq - 1
        if not entries:
            break
    return first


async def _may_be_heavy(client: Any, base: str, group: GroupId) -> bool:
    """Whether the whole log is beyond the bound, or the server cannot say: only then its Events are looked at."""
    try:
        return int(await client.memory_usage(keys.log(base, group)) or 0) > LOG_KEEP_BYTES
    except ResponseError:
        return True


def digest_of(raw: bytes) -> str:
    """The digest that a Snapshot's body names itself."""
    return raw.partition(b"\n")[0].rsplit(b" ", 1)[1].decode()


async def trim(store: Store, group: GroupId, first: int) -> int:
    """Removes the Events before a sequence as far as the Snapshot covers them; the first sequence that stays."""
    while True:
        answer = await store.call("trim", store.partition_of(group), (group, first))
        if answer[1] != b"more":
            return int(answer[2])


def parse_chores(raw: bytes) -> list[GroupId]:
    """The Groups of a tick's reply that want a Snapshot; a line that is no chore is said in the log and left out."""
    found: list[GroupId] = []
    for line in raw.decode().splitlines():
        words = line.split(" ")
        if len(words) != 3 or words[0] != "k" or not words[2].isdecimal():
            _log.error("tick: %.200r is no chore (k group seq); it is left out", line)
            continue
        found.append(GroupId(words[1]))
    return found


async def carry_out(store: Store, chores: Sequence[GroupId], *, keep: int) -> None:
    """Makes the Snapshots that a tick asked for; one that fails is said, and asked of somebody again later."""
    for group in chores:
        try:
            made = await create(store, group, keep=keep)
        except (Refused, Corrupt) as error:
            _put_off(group, error)
        else:
            _log.info("group %s: Snapshot at %d, its log begins at %d", shown(group), made.through, made.first)


def _put_off(group: GroupId, error: TreadleError) -> None:
    _log.error("group %s gets no Snapshot now: %s", shown(group), error)
