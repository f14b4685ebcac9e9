"""What a run goes on from, as it was stored; of the two Checkpoints kept the newest whose digest is right (design.md 4)."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from treadle.shared import codec
from treadle.shared.damage import Damage
from treadle.shared.errors import Corrupt
from treadle.shared.store import keys

from .run import Bodies, Run

CHECKPOINT, POISON = "CHECKPOINT", "POISON"
"""The reasons of a release with which the store parks the item instead of offering it."""
_log = logging.getLogger("treadle.worker")


class DamagedError(Exception):
    """What is stored of an item cannot be trusted, and whether to begin anew is for a person to decide."""

    def __init__(self, text: str, damage: Damage, *, parks: str = CHECKPOINT) -> None:
        super().__init__(text)
        self.damage = damage
        self.parks = parks


@contextmanager
def trusting(what: str, raw: bytes, *, of: str = "") -> Generator[None]:
    """Who finds Corrupt what is made of `raw` has the item parked, with the digest of what stands there (BR-55)."""
    try:
        yield
    except Corrupt as error:
        damage = Damage.found(what, raw or None, of=of)  # no bytes are never stored
        text = f"{error}; it is parked; what stands there has {damage.size:,} bytes, digest {damage.digest or '-'}"
        raise DamagedError(text, damage, parks=POISON) from None


def stored(what: str, raw: bytes, *, name: str = "", of: str = "") -> object:
    """The value that was stored as `what` of the item `name`; DamagedError where it is none."""
    with trusting(what, raw, of=of):
        return codec.unpack(raw, what=f"{what} of {of or name}")


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
        "from its beginning",
        Damage.found("checkpoint", newest),
    )


def _wrong(raw: bytes | None) -> str:
    return (
        "missing"
        if raw is None
        else f"{len(raw)} bytes that are not those that were saved (digest {codec.digest(raw)})"
    )
