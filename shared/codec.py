"""Payloads and Events to and from bytes: msgpack, bounded both ways, refusing what it does not know.

    pack(value)  -> bytes      Misuse: the caller's value, with the path inside it (`inputs.items[3].id`)
    unpack(raw)  -> value      Corrupt: bytes that `pack` would not have written
    read_event   -> Event      Corrupt: an entry that the scripts would not have written

What comes out of `unpack` is what went into `pack`, but for four stated changes: tuples come back as lists, aware
datetimes in UTC, byte arrays as bytes, and subclasses (enums, ordered dicts) as the plain type below them. NaN passes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NoReturn, cast
from uuid import UUID

import msgpack

from .errors import Corrupt, Misuse
from .lifecycle import QUIET_KINDS
from .model import EVENT_FIELDS, Event, EventKind, GroupId, ItemId

PAYLOAD_MAX = 1 << 20
INPUTS_MAX = RESULT_MAX = CHECKPOINT_MAX = PAYLOAD_MAX
EVIDENCE_MAX = 16_384
EFFECT_MAX = 65_536
"""Of the result of an effect."""
EVENT_MAX = 65_536
DEPTH_MAX = 16
"""How many lists and dicts may stand inside each other."""
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
KEY_SHOWN_MAX, VALUE_SHOWN_MAX = 40, 80

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN_KEY = re.compile(r"[\w-]+")
_PLAIN_TYPES = "pass only None, bool, int, float, str, bytes, aware datetimes, lists and dicts"
_HINTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((set, frozenset), "use sorted(...)"),
    ((Decimal, UUID, PurePath), "use str(...)"),
    ((date, time), "use .isoformat()"),
    ((timedelta,), "use .total_seconds()"),
)


def pack(value: object, *, field: str, limit: int) -> bytes:
    """Pack `value` into at most `limit` bytes that `unpack` reads; Misuse names the path, the value and the bound."""
    raw: bytes | None = None
    if _is_plain(value, DEPTH_MAX):
        with suppress(ValueError, OverflowError):  # the walk below finds the place and says it
            raw = msgpack.packb(value)
    if raw is None:
        normal = _normal(value, field, DEPTH_MAX)
        try:
            raw = msgpack.packb(normal, datetime=True)
        except ValueError as problem:
            raise Misuse(f"{field}: cannot be packed ({problem}); {_PLAIN_TYPES}") from None
    if len(raw) > limit:
        raise Misuse(
            f"{field}: {len(raw):,} bytes when packed, at most {limit:,}; keep large data elsewhere, pass its address"
        )
    return raw


def _is_plain(value: object, levels: int) -> bool:
    """Whether msgpack alone does right by `value`: exact types, text keys, no datetime, not too deep."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if levels == 0:
        return False
    children: Any = value
    if kind is dict:
        for key in children:
            if type(key) is not str:
                return False
        children = children.values()
    elif kind is not list and kind is not tuple:
        return False
    for child in children:  # noqa: SIM110  # all() would cost a generator per list and dict
        if type(child) not in _SCALARS and not _is_plain(child, levels - 1):
            return False
    return True


def _normal(value: object, path: str, levels: int) -> object:
    """`value` in plain types only; Misuse at the first place where that cannot be, with its path."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        if not INT_MIN <= number <= INT_MAX:
            raise Misuse(f"{path}: {shown(number)} is outside -2**63 .. 2**64-1; pass it as a str")
        return number
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes | bytearray | memoryview[int]", value))
    if isinstance(value, datetime):
        return _moment(value, path)
    if not isinstance(value, Mapping | list | tuple):
        _refuse_type(value, path)
    if levels == 0:
        raise Misuse(f"{path[:400]}: nested deeper than {DEPTH_MAX} lists and dicts; flatten it, or pass it as a str")
    if not isinstance(value, Mapping):
        children = cast("Sequence[object]", value)
        return [_normal(child, f"{path}[{index}]", levels - 1) for index, child in enumerate(children)]
    normal: dict[str, object] = {}
    for key, child in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str):
            raise Misuse(f"{path}: key {shown(key)} is of type {type(key).__name__}, must be str; use str(key)")
        text = _text(key, f"{path}: key {shown(key)}")
        if text in normal:
            raise Misuse(f"{path}: key {shown(text)} is there twice; a str subclass hides it")
        normal[text] = _normal(child, path + _step(text), levels - 1)
    return normal


def _text(value: str, path: str) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise Misuse(
            f"{path}: holds a lone surrogate {text[problem.start]!r} at character {problem.start}; "
            "decode it properly, or pass it as bytes"
        ) from None
    return text


def _moment(value: datetime, path: str) -> datetime:
    if value.utcoffset() is None:
        raise Misuse(f"{path}: {value.isoformat()} has no time zone; use an aware datetime, as datetime.now(UTC)")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Misuse(f"{path}: {value.isoformat()} is outside the years 1 to 9999 in UTC") from None


def _refuse_type(value: object, path: str) -> NoReturn:
    hint = next((hint for kinds, hint in _HINTS if isinstance(value, kinds)), _PLAIN_TYPES)
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise Misuse(f"{path}: a value of type {name[:VALUE_SHOWN_MAX]} cannot be stored; {hint}")


def _step(key: str) -> str:
    """One step of a path: `.name`, or `["any name"]` where it is not a plain word."""
    if len(key) <= KEY_SHOWN_MAX and _PLAIN_KEY.fullmatch(key):
        return f".{key}"
    return f"[{shown(key, KEY_SHOWN_MAX)}]"


def shown(value: object, most: int = VALUE_SHOWN_MAX) -> str:
    """`value` as one short printable piece of a message."""
    try:
        text = repr(value[: most + 1] if isinstance(value, str | bytes) else value)
    except Exception:  # someone's own __repr__, or an int of more digits than Python prints
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 3] + "..."


# --- unpacking -------------------------------------------------------------------------------------------------------

_HEADS = bytes(range(0x80, 0xA0)) + bytes(range(0xDC, 0xE0))
"""The first bytes of lists and maps."""
_NOT_HEADS = bytes(sorted(set(range(256)) - set(_HEADS)))
_NOT_LONG_HEADS = bytes(range(0xDC)) + bytes(range(0xE0, 0x100))
_SMALL = 4096
"""Bytes below which no header can claim enough to matter."""


def unpack(raw: bytes, *, what: str, limit: int = PAYLOAD_MAX) -> object:
    """The value that `pack` packed; Corrupt (naming `what`) for anything that it would not have written."""
    if len(raw) > limit:
        raise Corrupt(f"{what}: {len(raw):,} bytes, at most {limit:,}")
    heads = raw.translate(None, _NOT_HEADS)  # fewer of these bytes than levels: it cannot be too deep
    deep = len(heads) > DEPTH_MAX
    if deep and len(raw) > _SMALL and len(heads.translate(None, _NOT_LONG_HEADS)) > DEPTH_MAX:
        _check_claims(raw, what)
    try:
        value = msgpack.unpackb(raw, timestamp=3, object_pairs_hook=_checked_dict, ext_hook=_refuse_ext)
    except (ValueError, OverflowError, TypeError, RecursionError, MemoryError) as problem:
        raise Corrupt(f"{what}: {_reason(problem)}") from problem
    if deep and not _is_shallow(value, DEPTH_MAX):
        raise Corrupt(f"{what}: nested deeper than {DEPTH_MAX} lists and maps")
    return value


def _checked_dict(pairs: list[tuple[object, object]]) -> dict[object, object]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a map with a duplicate key")
    for key in mapping:
        if type(key) is not str:
            raise ValueError(f"a map key of type {type(key).__name__}")
    return mapping


def _refuse_ext(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code} of {len(data)} bytes")


def _is_shallow(value: object, levels: int) -> bool:
    children: Any = value
    kind = type(value)
    if kind is dict:
        children = children.values()
    elif kind is not list:
        return True
    if levels == 0:
        return False
    for child in children:  # noqa: SIM110  # as above
        if type(child) not in _SCALARS and not _is_shallow(child, levels - 1):
            return False
    return True


def _head_sizes() -> tuple[int, ...]:
    sizes = [1] * 256
    for first, size in {0xC4: 2, 0xC5: 3, 0xC6: 5, 0xC7: 3, 0xC8: 4, 0xC9: 6, 0xCA: 5, 0xCB: 9}.items():
        sizes[first] = size
    sizes[0xCC:0xD4] = [2, 3, 5, 9] * 2  # the integers
    sizes[0xD4:0xD9] = [3, 4, 6, 10, 18]  # fixed extensions
    sizes[0xD9:0xE0] = [2, 3, 5, 3, 5, 3, 5]  # long text, lists, maps
    return tuple(sizes)


_HEAD_SIZES = _head_sizes()
_LENGTH_BYTES = {
    **{0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4},
    **{0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4},
}


def _check_claims(raw: bytes, what: str) -> None:
    """Refuse, before anything is allocated, lists and maps that together claim more entries than there are bytes."""
    position = claimed = 0
    end = len(raw)
    while position < end and claimed <= end:
        first = raw[position]
        start = position + 1
        position += _HEAD_SIZES[first]
        if 0x80 <= first <= 0xBF:
            if first < 0x90:
                claimed += 2 * (first & 0x0F)
            elif first < 0xA0:
                claimed += first & 0x0F
            else:
                position += first & 0x1F
        elif first in _LENGTH_BYTES:
            length = int.from_bytes(raw[start : start + _LENGTH_BYTES[first]])
            if first < 0xDC:
                position += length
            else:
                claimed += length if first < 0xDE else 2 * length
    if claimed > end:
        raise Corrupt(f"{what}: lists and maps that claim more entries than its {end:,} bytes can hold")


def _reason(problem: BaseException) -> str:
    text = shown(str(problem))[1:-1]
    return f"not what was packed ({type(problem).__name__}{': ' if text else ''}{text})"


# --- Events ----------------------------------------------------------------------------------------------------------

_ENTRY_ID = re.compile(rb"([1-9][0-9]{0,13})-0")
_TIME = re.compile(rb"[0-9]{1,14}")
_CAUSER = re.compile(rb"[A-Za-z0-9_.~%@-]+")
_ITEM = re.compile(rb"[A-Za-z0-9_.~%-]+")
_FIELDS = frozenset({b"t", b"k", b"i", b"b", b"d"})
_WHOLE_NUMBERS = frozenset(
    {"epoch", "number", "size", "items", "width", "dependencies", "revision", "incarnation", "through"}
)


def _data_pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    whole, token = "[0-9]{1,14}", "[A-Za-z0-9_.~%@+-]*"
    asked = "(?:-|(?:named|preferred):[A-Za-z0-9_.~%,-]+)"
    shapes = {"to": asked, "milestones": "[A-Za-z0-9_.~%,-]+"} | dict.fromkeys(_WHOLE_NUMBERS, whole)
    parts = [shapes.get(name, whole if name.endswith("_ms") else token) for name in names]
    return re.compile(" ".join(parts).encode())


_VOID = {"to": "-", "phase": "-", "milestones": "-"}


def _void(kind: EventKind) -> tuple[str, ...]:
    """In place of data that cannot be read, so that whoever shows an Event shows this one too."""
    return tuple(_VOID.get(name, "0") for name in EVENT_FIELDS[kind])


_SHAPES = {
    kind.value.encode(): (kind, kind.value, kind.value.startswith("work."), _data_pattern(names))
    for kind, names in EVENT_FIELDS.items()
}
"""Of each kind: its text, whether it concerns an item, and what its data tokens look like."""


def read_entry(group: GroupId, entry_id: bytes, fields: Mapping[bytes, bytes]) -> tuple[int, str, str, str, list[str]]:
    """Sequence, kind, item ('' for none), causer and data of one entry; Corrupt for what no script writes.

    No data: it cannot be read, and its kind bears no state.
    """
    found = _ENTRY_ID.fullmatch(entry_id)
    shape = _SHAPES.get(fields.get(b"k", b""))
    if found is None or shape is None or fields.keys() != _FIELDS:
        raise _corrupt_event(group, entry_id, fields, "not an id, kind and fields known here")
    kind, text, concerns_item, data_pattern = shape
    item, by, data = fields[b"i"], fields[b"b"], fields[b"d"]
    if b"\n" in data:
        data = data.partition(b"\n")[0]
    is_read = data_pattern.fullmatch(data) is not None and len(data) <= EVENT_MAX
    if not is_read and kind not in QUIET_KINDS:
        raise _corrupt_event(group, entry_id, fields, f"its data is not {_wanted(kind)}")
    if not _TIME.fullmatch(fields[b"t"]) or not _CAUSER.fullmatch(by):
        raise _corrupt_event(group, entry_id, fields, "its time is not milliseconds, or its causer not a token")
    if (not _ITEM.fullmatch(item)) if concerns_item else item:
        raise _corrupt_event(group, entry_id, fields, "its item is not a token, or it concerns none")
    return int(found[1]), text, item.decode(), by.decode(), data.decode().split(" ") if is_read else []


def read_event(group: GroupId, incarnation: int, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """The Event in one entry of a Group's stream; Corrupt for an id, kind, field or token that no script writes."""
    seq, _, item, by, data = read_entry(group, entry_id, fields)
    kind, raw = _SHAPES[fields[b"k"]][0], fields[b"d"]
    payload, quarantined = raw.partition(b"\n")[2], ""
    is_read = bool(data)
    if not is_read:
        quarantined = f"{len(raw):,} bytes that are not {_wanted(kind)}, digest {digest(raw)}"
        data = list(_void(kind))
    elif len(payload) > EVENT_MAX:  # no state hangs on it: it is left out, not the Event
        quarantined = f"{len(payload):,} bytes, at most {EVENT_MAX:,}, digest {digest(payload)}"
    return Event(
        group=group,
        incarnation=incarnation,
        seq=seq,
        kind=kind,
        at_ms=int(fields[b"t"]),
        item=ItemId(item) if item else None,
        by=by,
        data=tuple(data),
        payload=b"" if quarantined else payload,
        quarantined=quarantined,
        is_void=not is_read,
    )


def _wanted(kind: EventKind) -> str:
    return f"({', '.join(EVENT_FIELDS[kind])}) in at most {EVENT_MAX:,} bytes"


def _corrupt_event(group: GroupId, entry_id: bytes, fields: Mapping[bytes, bytes], why: str) -> Corrupt:
    seen = ", ".join(f"{shown(name, 8)}: {shown(fields[name])}" for name in sorted(fields)[:8])
    raw = fields.get(b"d", b"")
    known = f"its data has {len(raw):,} bytes, digest {digest(raw)}"
    return Corrupt(f"group {group}: log entry {shown(entry_id)} is not an Event: {why}; {known}; {seen}")


def digest(raw: bytes) -> str:
    """What tells two contents apart: the first 32 hex characters of their SHA-256."""
    return hashlib.sha256(raw).hexdigest()[:32]
