"""The keys as docs/keys.md lists them: what may stand in a store, and what of it must have an expiry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys.md"
TOKEN = r"[A-Za-z0-9_.~%-]+"


@dataclass(frozen=True)
class OwnedKey:
    """A row of the page: a key by what follows its tag, whose it is and how long it stays."""

    name: str
    owner: str
    bound: str
    until: str

    @property
    def expires(self) -> bool:
        return self.until.startswith("TTL")

    @property
    def pattern(self) -> str:
        """A regular expression of the names that this row is about."""
        named = re.escape(self.name).replace("<asked>", f">{TOKEN}")
        return re.sub(r"<[a-z]+>", lambda _: TOKEN, named)

    @property
    def shape(self) -> str:
        """The name with its placeholders alike: keys are compared by it."""
        return re.sub(r"<[a-z]+>", "<>", self.name)


def owned_keys() -> Iterator[OwnedKey]:
    """Every row, in the order of the page."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            name, _, _, owner, bound, until = (cell.strip() for cell in line.strip("|").split("|"))
            yield OwnedKey(name.strip("`").removeprefix("{prefix}:{org}:"), owner, bound, until)


def names(*, expiring: bool) -> re.Pattern[str]:
    """What a key with an expiry may be called, or one without."""
    return re.compile("|".join(key.pattern for key in owned_keys() if key.expires is expiring))
