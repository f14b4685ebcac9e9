"""The Checkpoint a run goes on from: the newest whose digest is right; two are kept (design.md 4)."""

from __future__ import annotations

import logging

from treadle.shared import codec
from treadle.shared.errors import Corrupt
from treadle.shared.store import keys

from .run import Bodies, Run

CHECKPOINT, POISON = "CHECKPOINT", "POISON"
"""The reasons of a release with which the store parks the item instead of offering it."""
_log = logging.getLogger("treadle.worker")


class DamagedError(Exception):
    """What is stored of an item cannot be trusted, and whether to begin anew is for a person to decide."""

    def __init__(self, text: str, *, parks: str = CHECKPOINT) -> None:
        super().__init__(text)
        self.parks = parks


def stored(raw: bytes, *, what: str) -> object:
    """The value that was stored; DamagedError, with the digest of what stands there, where it is none (BR-55)."""
    try:
        return codec.unpack(raw, what=what)
    except Corrupt as error:
        raise DamagedError(
            f"{error}; it is parked; what stands there has {len(raw):,} bytes, digest {codec.digest(raw)}", parks=POISON
        ) from None


async def checkpoint_of(run: Run, newest: bytes | None, bodies: Bodies) -> bytes:
    """The newest Checkpoint as it was read, or the one before it where that one is damaged; DamagedError where both are.

    The next save takes a new number in any case, so that it stands in the place of what is damaged or older.
    """
    grant = run.grant
    if newest is not None and codec.digest(newest) == grant.checkpoint_digest:
        run.checkpoint_digest = grant.checkpoint_digest
        return newest
    run.checkpoint_damaged += 1
    number = grant.checkpoint_number
    _log.error("%s: checkpoint_damaged: Checkpoint %d is %s", run.name, number, _wrong(newest))
    if grant.checkpoint_before:
        wanted = [(grant.group, grant.item, keys.checkpoint_name(number - 1))]
        (older,) = await bodies.read(grant.partition, wanted)
        if older is not None and codec.digest(older) == grant.checkpoint_before:
            _log.warning("%s: goes on from Checkpoint %d, the one before it", run.name, number - 1)
            return older
        run.checkpoint_damaged += 1
        _log.error("%s: checkpoint_damaged: Checkpoint %d is %s", run.name, number - 1, _wrong(older))
    raise DamagedError(
        "none of its Checkpoints can be trusted: it is parked; restore the store's memory, or `treadle retry` has it done "
        "from its beginning"
    )


def _wrong(raw: bytes | None) -> str:
    return (
        "missing"
        if raw is None
        else f"{len(raw)} bytes that are not those that were saved (digest {codec.digest(raw)})"
    )
