"""The fencing token of a run and the key of an effect, as they are compared where the effect lands. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from treadle.shared.errors import Corrupt, Misuse, Stale
from treadle.shared.names import token as name_token

_WIRE = re.compile(r"(\d{1,16}):(\d{1,16}):(\d{1,16}):([\w.~%-]{1,2400})", re.ASCII)


class Token(NamedTuple):
    """Which run wants to do something, compared in this order; the Lease ID only tells runs of one order apart."""

    incarnation: int
    epoch: int
    number: int
    lease: str

    @property
    def order(self) -> tuple[int, int, int]:
        """Incarnation of the store, Ownership Epoch, number of the lease."""
        return self[:3]

    def wire(self) -> str:
        """As one word, for a header or a row."""
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Token:
        """The token that `wire` wrote; Misuse for anything else."""
        found = _WIRE.fullmatch(text)
        if found is None:
            raise Misuse(f"fencing token: {text[:80]!r} is none (incarnation:epoch:number:lease)")
        incarnation, epoch, number, lease = found.groups()
        return cls(int(incarnation), int(epoch), int(number), lease)

    @classmethod
    def noted(cls, raw: object, *, place: str) -> Token:
        """The token that a gate noted; Corrupt, naming its place, where somebody else wrote there."""
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        try:
            return cls.parse(text if isinstance(text, str) else "")
        except Misuse:
            raise Corrupt(
                f"{place}: is no record of an effect; see whether it was done, and write it anew or delete it"
            ) from None


def judge(token: Token, highest: Token | None, *, key: str) -> None:
    """Returns where a token may go on at a key; Stale where a later run was there, or another one under the same order.

    Code TOKEN_STALE or TOKEN_CONFLICT.
    """
    if highest is None or token == highest or token.order > highest.order:
        return
    if token.order == highest.order:
        why = f"lease {highest.lease!r} came with the same order, this one is {token.lease!r}: their stores are not one"
        raise Stale(f"effect {key}: {why}; nothing was done", code="TOKEN_CONFLICT")
    why = f"a later run was there ({highest.order}), this one is {token.order}"
    raise Stale(f"effect {key}: {why}; nothing was done", code="TOKEN_STALE")


def effect_name(operation: str, *, epoch: int | None = None) -> str:
    """The name under which an item notes an effect; with an epoch each ownership does it anew."""
    name = name_token(operation, field="effect")
    return name if epoch is None else f"{name}/{epoch}"


def effect_key(mission: str, item: str, name: str) -> str:
    """What the outside knows an effect by: the tokens of Mission and WorkItem, and its name."""
    return f"{mission}/{item}/{name}"
