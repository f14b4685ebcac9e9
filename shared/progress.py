"""How far a run says it is: numbers, a phase, milestones. Checked where it is said, packed for the store, read back. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from .codec import shown
from .errors import Corrupt, Misuse
from .names import name_of, text_token

AMOUNT_MAX = 1e15
WORD_CHARS_MAX = 64
"""Of the name of a phase or a milestone."""
NOTE_CHARS_MAX = 200
MILESTONES_MAX = 8
"""As many are told at once, and as many are kept; of more the newest."""
_NONE = "-"
_RECORD = re.compile(r"(\d{1,15}) (\d{1,15}) \d{1,15} (\d{1,15}) ([\d.e+-]+) ([\d.e+-]+) (\S+) (\S+) (\S+)")


@dataclass(frozen=True, slots=True)
class Said:
    """How far a run is, as its handler says it."""

    done: float
    total: float = 1.0
    phase: str = ""
    milestones: tuple[str, ...] = ()
    """Of what is recorded the newest that its run reached; of what is to be told, those since it was told last."""
    note: str = ""
    said_ms: int = 0
    """When the store recorded it; 0 where it has not yet."""
    unlogged: int = 0
    """How many phases and milestones are in no Event, since the run had as many as it may."""

    @property
    def fraction(self) -> float:
        """From 0 to 1; of nothing, all is done."""
        return min(1.0, self.done / self.total) if self.total else 1.0

    def then(self, later: Said) -> Said:
        """Both as one: the later numbers and note, the phase that was named last, the milestones of both."""
        milestones = (*self.milestones, *later.milestones)[-MILESTONES_MAX:]
        return replace(later, phase=later.phase or self.phase, milestones=milestones)

    def tokens(self) -> tuple[str, str, str, str, str]:
        """As the operation `progress` brings it: done, total, phase, milestones, note."""
        milestones = ",".join(map(_token, self.milestones)) or _NONE
        return f"{self.done:.15g}", f"{self.total:.15g}", _token(self.phase), milestones, _token(self.note)

    def words(self) -> str:
        """For people: `upload, 30 of 100 (30 %): note`."""
        amount = f"{self.done:g} of {self.total:g} ({self.fraction:.0%})" if self.total != 1 else f"{self.fraction:.0%}"
        said = f"{self.phase}, {amount}" if self.phase else amount
        return f"{said}: {self.note}" if self.note else said


def said(done: float, total: float = 1.0, *, note: str = "", phase: str = "", milestone: str = "") -> Said:
    """What a handler says, checked: Misuse names the field, the value and the bound. Of a note 200 characters are kept."""
    amounts = _amount("done", done), _amount("total", total)
    reached = _word("milestone", milestone)
    told = _text("note", note)[:NOTE_CHARS_MAX]
    return Said(*amounts, phase=_word("phase", phase), milestones=(reached,) if reached else (), note=told)


def recorded(record: str, *, number: int) -> Said | None:
    """What a WorkItem's record says of run `number`; None where it is of an earlier run, Corrupt for no record at all."""
    found = _RECORD.fullmatch(record)
    try:
        if found is None:
            raise ValueError
        at_ms, of_number, unlogged, done, total, phase, milestones, note = found.groups()
        named = () if milestones == _NONE else tuple(map(_text_of, milestones.split(",")))
        one = Said(float(done), float(total), _text_of(phase), named, _text_of(note), int(at_ms), int(unlogged))
    except ValueError:
        raise Corrupt(f"progress: {record[:200]!r} is no record of it") from None
    return one if int(of_number) == number else None


def _amount(field: str, value: Any) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)  # whatever counts as a number: a Decimal, one of numpy
    except (TypeError, ValueError, OverflowError):
        raise Misuse(f"progress: {field}={shown(value)} is no number; give one from 0 to {AMOUNT_MAX:g}") from None
    if not 0 <= number <= AMOUNT_MAX or not math.isfinite(number):
        raise Misuse(f"progress: {field}={number:g}, must be from 0 to {AMOUNT_MAX:g}")
    return number


def _word(field: str, text: object) -> str:
    word = _text(field, text)
    if len(word) > WORD_CHARS_MAX:
        raise Misuse(
            f"progress: {field}={word[:40]!r}... has {len(word)} characters, at most {WORD_CHARS_MAX}; the rest into `note`"
        )
    return word


def _text(field: str, text: object) -> str:
    """One line: what cannot be printed is left out."""
    if not isinstance(text, str):
        raise Misuse(f"progress: {field} is of type {type(text).__name__[:40]}, must be text")
    return "".join(char if char.isprintable() else " " for char in text).strip()


def _token(text: str) -> str:
    return "%2D" if text == _NONE else text_token(text) or _NONE


def _text_of(token: str) -> str:
    return "" if token == _NONE else name_of(token)
