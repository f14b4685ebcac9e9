"""What stands in the store in place of what was stored: which part of a WorkItem, how many bytes, their digest. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import codec
from .names import name_of, text_token

_NONE = "-"
_PACKED = re.compile(r"([0-9]{1,14}) (-|[0-9a-f]{32}) ([a-z]+)(?::(\S+))?")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that cannot be read as what they should be: told by their digest, they can be known again elsewhere."""

    what: str
    """`inputs`, `contract`, `checkpoint`, `resolution`, or `result`, of the item `of`."""
    size: int
    """In bytes."""
    digest: str
    """'' where nothing stands there."""
    of: str = ""
    """The name of another item, which this one comes after."""

    @classmethod
    def found(cls, what: str, raw: bytes | None, *, of: str = "") -> Damage:
        """Of what was read."""
        return cls(what, len(raw or b""), codec.digest(raw) if raw is not None else "", of)

    @classmethod
    def parse(cls, packed: str) -> Damage | None:
        """None for what `packed` never gave."""
        if (found := _PACKED.fullmatch(packed)) is None:
            return None
        size, digest, what, of = found.groups()
        return cls(what, int(size), digest.strip(_NONE), name_of(of or ""))

    def packed(self) -> str:
        """As the store keeps it, one line of tokens."""
        what = f"{self.what}:{text_token(self.of)}" if self.of else self.what
        return f"{self.size} {self.digest or _NONE} {what}"

    def words(self) -> str:
        """For people: `inputs: 24 bytes, digest 0f3a...`."""
        what = f"{self.what} of {self.of!r}" if self.of else self.what
        return f"{what}: {self.size:,} bytes, digest {self.digest}" if self.digest else f"{what}: missing"
