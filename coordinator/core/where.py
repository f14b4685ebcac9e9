"""Which stuck items a person means by `--where state=failed,capability=index`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from treadle.shared.errors import Misuse
from treadle.shared.facts import StuckFacts

from .wording import quoted

STATES = ("failed", "parked", "waiting")
FIELDS = ("state", "mission", "item", "account", "capability", "type")
DEFAULT_STATES = frozenset({"failed", "parked"})
"""What waits for another attempt goes on by itself, so it is meant only where it is named."""
EXAMPLE = "--where state=failed,capability=thumbnails"
_PARTS = re.compile(r"(?:\\.|[^,\\])+")


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions that all hold: of a field, that one of its patterns matches (`*`, `?`, `[abc]`)."""

    conditions: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def states(self) -> frozenset[str]:
        return next((frozenset(values) for field, values in self.conditions if field == "state"), DEFAULT_STATES)

    @property
    def is_everything(self) -> bool:
        """Whether nothing narrows it but a state."""
        return all(field == "state" or "*" in values for field, values in self.conditions)

    @property
    def needs_type(self) -> bool:
        return any(field == "type" for field, _ in self.conditions)

    def matches(self, one: StuckFacts) -> bool:
        return one.state in self.states and all(
            any(fnmatchcase(getattr(one, field), pattern) for pattern in patterns)
            for field, patterns in self.conditions
            if field != "state"
        )


def parse_where(given: Sequence[str]) -> Where:
    r"""The conditions of one or more `field=value[|value]`, separated by commas (`\,` is a comma of a name itself)."""
    found: dict[str, tuple[str, ...]] = {}
    parts: list[str] = [part for text in given for part in _PARTS.findall(text)]
    for part in parts:
        field, sign, value = part.partition("=")
        field = field.strip()
        if not sign:
            raise Misuse(f"--where: {quoted(part)} is no condition; write {EXAMPLE}")
        if field not in FIELDS:
            likely = get_close_matches(field, FIELDS, 1)
            hint = f"did you mean {likely[0]}?" if likely else f"use one of {', '.join(FIELDS)}"
            raise Misuse(f"--where: {quoted(field)} is no field; {hint}")
        if field in found:
            raise Misuse(f"--where: {field} is there twice; give its values as {field}=one|two")
        values = tuple(re.sub(r"\\(.)", r"\1", one) for one in value.split("|"))
        if not all(values):
            raise Misuse(f"--where: {field} has no value; write {EXAMPLE}")
        if field == "state" and (odd := [one for one in values if one not in STATES]):
            raise Misuse(f"--where: state {quoted(odd[0])}, must be of {', '.join(STATES)}")
        found[field] = values
    return Where(tuple(found.items()))
