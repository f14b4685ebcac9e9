"""What a Worker and the process of a slot say to each other: frames of plain data, bounded, and nothing else. Pure.

A frame is its length (4 bytes, the highest first) and a list of its kind's name and its fields, packed by the codec. A
body (inputs, a Checkpoint, a result) stays packed inside, so that nesting and bounds are the codec's, once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, cast

from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse

FRAME_MAX = 2 << 20
LENGTH_BYTES = 4


class Kind(StrEnum):
    """Who says it, and what."""

    LOAD = "load"
    """Worker: import these modules, with this path."""
    BODY = "body"
    """Worker: one large part of what the next run begins with."""
    BEGIN = "begin"
    """Worker: run this capability's handler."""
    TELL = "tell"
    """Worker: the slot is asked for, and why."""
    STOP = "stop"
    """Worker: the run is over, and why."""
    ANSWER = "answer"
    """Worker: what came of a question; a text where it was refused."""
    READY = "ready"
    """Process: the modules are imported; or why they are not."""
    ASK = "ask"
    """Process: a question to the run's Service, by its method."""
    SAY = "say"
    """Process: what wants no answer, by its method."""
    END = "end"
    """Process: what came of the handler."""
    CLEAN = "clean"
    """Process: what the handler left behind; '' where that is nothing."""


class Frame(NamedTuple):
    """One thing said."""

    kind: Kind
    fields: tuple[Any, ...]


_SHAPES: dict[Kind, tuple[type, ...]] = {
    Kind.LOAD: (list, list),
    Kind.BODY: (str, bytes),
    Kind.BEGIN: (dict,),
    Kind.TELL: (str,),
    Kind.STOP: (str, bool),
    Kind.ANSWER: (int, bytes, str),
    Kind.READY: (str,),
    Kind.ASK: (int, str, bytes),
    Kind.SAY: (str, bytes),
    Kind.END: (str, bytes),
    Kind.CLEAN: (str,),
}


def write(kind: Kind, *fields: Any) -> bytes:
    """One frame. Misuse where the fields are not those of its kind, or are larger than FRAME_MAX."""
    if not _fits(kind, fields):
        raise Misuse(f"frame {kind}: its fields are {_said(_SHAPES[kind])}, not {_said(map(type, fields))}")
    raw = codec.pack([kind.value, *fields], field=f"frame {kind}", limit=FRAME_MAX)
    return len(raw).to_bytes(LENGTH_BYTES) + raw


class Reader:
    """Bytes, in whatever pieces they come, to frames; it never holds more than one frame and the piece after it."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that are whole by now. Corrupt for what `write` would not have written: nothing is to be read on."""
        self._left += piece
        found: list[Frame] = []
        at = 0
        while len(self._left) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            length = int.from_bytes(self._left[at:start])
            if length > FRAME_MAX:
                raise Corrupt(f"frame: {length:,} bytes, at most {FRAME_MAX:,}")
            if len(self._left) < start + length:
                break
            at = start + length
            found.append(_frame(bytes(self._left[start:at])))
        del self._left[:at]
        return found


def _frame(raw: bytes) -> Frame:
    said = codec.unpack(raw, what="frame", limit=FRAME_MAX)
    whole = cast("list[object]", said) if isinstance(said, list) else []
    name, fields = whole[0] if whole else None, tuple(whole[1:])
    if not isinstance(name, str) or name not in Kind.__members__.values():
        raise Corrupt(f"frame: {codec.shown(name)} is no kind known here")
    kind = Kind(name)
    if not _fits(kind, fields):
        raise Corrupt(f"frame {kind}: its fields are {_said(_SHAPES[kind])}, not {_said(map(type, fields))}")
    return Frame(kind, fields)


def _fits(kind: Kind, fields: tuple[Any, ...]) -> bool:
    return tuple(map(type, fields)) == _SHAPES[kind]


def _said(types: Any) -> str:
    return f"({', '.join(one.__name__ for one in types)})"
