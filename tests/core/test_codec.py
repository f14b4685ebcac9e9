"""What is packed comes back; what cannot come back is refused with its path; what nobody packed is never trusted."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.lifecycle import QUIET_KINDS
from treadle.shared.model import EVENT_FIELDS, EventKind, GroupId

GROUP = GroupId("m-1")


def pack(value: object, limit: int = codec.PAYLOAD_MAX) -> bytes:
    return codec.pack(value, field="inputs", limit=limit)


def unpack(raw: bytes) -> object:
    return codec.unpack(raw, what="inputs of m-1/a")


def packed(value: object) -> bytes | Misuse:
    try:
        return pack(value)
    except Misuse as refused:
        return refused


def unpacked(raw: bytes) -> object:
    try:
        return unpack(raw)
    except Corrupt as refused:
        return refused


def refusal(value: object, limit: int = codec.PAYLOAD_MAX) -> str:
    with pytest.raises(Misuse) as caught:
        pack(value, limit)
    return str(caught.value)


def nested(levels: int, inner: object = 1) -> object:
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


def normal(value: object) -> object:
    """The documented changes: tuples to lists, datetimes to UTC, byte arrays to bytes."""
    if isinstance(value, dict):
        return {key: normal(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [normal(child) for child in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


# --- round trip ------------------------------------------------------------------------------------------------------

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31), timezones=ZONES)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(codec.INT_MIN, codec.INT_MAX)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.binary().map(bytearray)
    | MOMENTS
)
VALUES = st.recursive(
    SCALARS,
    lambda children: (
        st.lists(children, max_size=20)
        | st.lists(children, max_size=4).map(tuple)
        | st.dictionaries(st.text(), children, max_size=20)
    ),
    max_leaves=40,
)


@given(VALUES)
def test_what_is_packed_comes_back(value: object) -> None:
    raw = packed(value)
    if isinstance(raw, Misuse):
        assert "nested deeper" in str(raw)
        return
    back = unpack(raw)
    assert back == normal(value)
    assert pack(back) == raw


ANYTHING = st.recursive(
    SCALARS
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.datetimes()
    | st.characters(categories=["Cs"])
    | st.uuids(),
    lambda children: (
        st.lists(children, max_size=3)
        | st.sets(st.integers(), max_size=2)
        | st.dictionaries(
            st.text() | st.integers() | st.binary() | st.none() | st.tuples(st.text()), children, max_size=3
        )
    ),
    max_leaves=15,
)


@given(ANYTHING)
def test_nothing_that_packs_is_poison_to_its_reader(value: object) -> None:
    raw = packed(value)
    if isinstance(raw, Misuse):
        assert str(raw).startswith("inputs")
        return
    assert pack(unpack(raw)) == raw


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def test_subclasses_come_back_as_the_plain_type_below_them() -> None:
    value = OrderedDict([(Colour.RED, Level.HIGH), ("user", UserDict({"a": (Colour.RED,)}))])
    back = unpack(pack(value))
    assert back == {"red": 3, "user": {"a": ["red"]}}
    assert isinstance(back, dict)
    assert {type(key) for key in back} == {str}


def test_nan_and_infinities_pass() -> None:
    back = unpack(pack([math.nan, math.inf, -math.inf]))
    assert isinstance(back, list)
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf]


# --- refused by its path ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63)])
def test_br_59_integers_of_64_bits_round_trip_exactly(number: int) -> None:
    assert unpack(pack({"items": [0, 1, 2, {"id": number}]})) == {"items": [0, 1, 2, {"id": number}]}


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, pytest.param(10**5000, id="10**5000")])
def test_br_59_larger_integers_are_refused_with_their_path(number: int) -> None:
    message = refusal({"items": [0, 1, 2, {"id": number}]})
    assert message.startswith("inputs.items[3].id: ")
    assert "-2**63 .. 2**64-1" in message
    assert len(message) < 250


class Twin(str):
    """A str that differs from its equal: two such keys are one key once packed."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({1: 2}, "inputs: key 1 is of type int, must be str"),
        ({(1, 2): 0}, "inputs: key (1, 2) is of type tuple, must be str"),
        ({b"k": 1, "k": 2}, "inputs: key b'k' is of type bytes, must be str"),
        ({"a": [{None: 1}]}, "inputs.a[0]: key None is of type NoneType, must be str"),
        ({"a": {True: 1}}, "inputs.a: key True is of type bool, must be str"),
        ({Twin("k"): 1, Twin("k"): 2}, "inputs: key 'k' is there twice"),
        ({"\ud800": 1}, "inputs: key '\\ud800': holds a lone surrogate '\\ud800' at character 0"),
    ],
)
def test_br_61_keys_that_would_not_unpack_are_refused_with_their_path(value: object, said: str) -> None:
    assert said in refusal(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": {1, 2}}, "inputs.a: a value of type set cannot be stored; use sorted(...)"),
        ({"a b": Decimal("1.5")}, "inputs['a b']: a value of type decimal.Decimal cannot be stored; use str(...)"),
        ([UUID(int=1)], "inputs[0]: a value of type uuid.UUID cannot be stored; use str(...)"),
        (PurePosixPath("/tmp"), "use str(...)"),
        ({"d": date(2026, 1, 1)}, "inputs.d: a value of type datetime.date cannot be stored; use .isoformat()"),
        ({"d": timedelta(1)}, "use .total_seconds()"),
        ({"f": print}, "inputs.f: a value of type builtin_function_or_method cannot be stored; pass only None, bool"),
        ({"r": range(3)}, "inputs.r: a value of type range cannot be stored"),
        ({"e": object()}, "inputs.e: a value of type object cannot be stored; pass only None, bool"),
        ({"t": datetime(2026, 3, 29, 2, 30)}, "inputs.t: 2026-03-29T02:30:00 has no time zone"),
        ({"t": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, "is outside the years 1 to 9999 in UTC"),
        ({"s": ["fine", "ab\udc80"]}, "inputs.s[1]: holds a lone surrogate '\\udc80' at character 2"),
        ({"x" * 100: {"имя": 2**64}}, f"inputs['{'x' * 36}...].имя: 18446744073709551616 is outside"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path_and_what_to_do(value: object, said: str) -> None:
    assert said in refusal(value)


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_even_be_shown_is_refused_all_the_same() -> None:
    assert refusal({Mute(): 1}) == "inputs: key <Mute> is of type Mute, must be str; use str(key)"


def test_sixteen_levels_pass_and_seventeen_are_refused() -> None:
    assert unpack(pack(nested(16))) == nested(16)
    assert "nested deeper than 16" in refusal(nested(17))
    assert "nested deeper than 16" in refusal(nested(17, inner={}))


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append({"again": endless})
    assert "nested deeper than 16" in refusal(endless)


@pytest.mark.parametrize("over", [0, 1])
def test_the_size_limit_is_exact_and_said(over: int) -> None:
    value = "x" * (1000 - 3 + over)
    if over:
        assert refusal(value, limit=1000).startswith("inputs: 1,001 bytes when packed, at most 1,000;")
    else:
        assert len(pack(value, limit=1000)) == 1000


def test_a_two_mebibyte_input_is_refused_without_showing_it() -> None:
    message = refusal({"blob": b"x" * (2 << 20)})
    assert "2,097," in message
    assert "at most 1,048,576" in message
    assert "xxx" not in message


# --- bytes nobody packed ---------------------------------------------------------------------------------------------


@given(st.binary(max_size=400))
@example(b"\xc7\x0c\xff" + b"\x00" * 4 + b"\x7f" + b"\xff" * 7)
@example(b"\xd7\xff" + b"\xff" * 8)
def test_random_bytes_unpack_or_are_corrupt(raw: bytes) -> None:
    value = unpacked(raw)
    if isinstance(value, Corrupt):
        assert str(value).startswith("inputs of m-1/a: ")
    else:
        assert pack(unpack(pack(value))) == pack(value)


@given(VALUES, st.data())
def test_a_flipped_byte_unpacks_or_is_corrupt(value: object, data: st.DataObject) -> None:
    raw = bytearray(pack([value]))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    back = unpacked(bytes(raw))
    assert isinstance(back, Corrupt) or pack(unpack(pack(back))) == pack(back)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "incomplete"),
        (b"\x01\x02", "extra data"),
        (b"\xc1", "FormatError"),
        (b"\xa1\xff", "utf-8"),
        (b"\x81\x01\x01", "map key"),
        (b"\x81\xc4\x01k\x01", "map key of type bytes"),
        (b"\x81\x90\x01", "map key"),
        (b"\x82\xa1a\x01\xa1a\x02", "duplicate key"),
        (b"\xd4\x05x", "extension type 5"),
        (b"\x91" * 17 + b"\xc0", "nested deeper than 16"),
        (b"\x81\xa1a" * 17 + b"\xc0", "nested deeper than 16"),
        (b"\x91" * 5000 + b"\xc0", "StackError"),
        (b"\xdd\xff\xff\xff\xff", "exceeds"),
        (b"x" * (codec.PAYLOAD_MAX + 1), "1,048,577 bytes, at most 1,048,576"),
    ],
)
def test_malformed_bytes_are_corrupt_and_the_message_says_why(raw: bytes, said: str) -> None:
    with pytest.raises(Corrupt, match=r"^inputs of m-1/a: ") as caught:
        unpack(raw)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("head", [b"\xdd\x00\x0f\x00\x00", b"\xdf\x00\x07\x00\x00", b"\xdc\xff\xff", b"\xde\xff\xff"])
def test_headers_that_claim_more_than_there_is_are_refused_before_anything_is_allocated(head: bytes) -> None:
    raw = head * 40
    raw += b"\xc0" * (1_000_000 - len(raw))
    with pytest.raises(Corrupt, match="claim more entries"):
        unpack(raw)


def test_honest_values_full_of_header_bytes_pass_the_claim_check() -> None:
    blob = bytes(range(256)) * 40
    value = {
        "blob": blob,
        "short": [bytes([0xDD] * size) for size in range(40)],
        "text": ["Ü" * size for size in (0, 31, 32, 300, 70_000)],
        "long": [list(range(300)) for _ in range(20)] + [[[]] * 70_000],
        "maps": [{str(key): key for key in range(20)} for _ in range(20)],
        "numbers": [
            0xDDDDDDDD,
            0xDDDD,
            0xDD,
            0xDDDDDDDDDDDDDDDD,
            -0x22,
            -0x2223,
            -0x22232223,
            -(2**62),
            -1,
            1.5,
            None,
            True,
        ],
        "moments": [
            datetime(1969, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 1, 1, 1, 5, UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
        ],
        "wide": [b"x" * 70_000, "y" * 300],
    }
    assert unpack(pack(value)) == value


# --- Events ----------------------------------------------------------------------------------------------------------


def entry(kind: EventKind = EventKind.STARTED, **changes: bytes) -> dict[bytes, bytes]:
    fields = {
        b"t": b"1767225600000",
        b"k": kind.value.encode(),
        b"i": b"a%20b",
        b"b": b"host-1@7",
        b"d": b"1 3.0.0.7.1 1767225610000 2",
    }
    return fields | {name.encode(): value for name, value in changes.items()}


def test_an_event_is_read_with_its_derived_id_and_named_tokens() -> None:
    event = codec.read_event(GROUP, 2, b"12-0", entry())
    assert (event.event_id, event.seq, event.kind, event.at_ms) == ("m-1.2.12", 12, EventKind.STARTED, 1767225600000)
    assert (event.item, event.by) == ("a%20b", "host-1@7")
    assert {name: event.get(name) for name in EVENT_FIELDS[event.kind]} == {
        "epoch": "1",
        "lease": "3.0.0.7.1",
        "expires_ms": "1767225610000",
        "number": "2",
    }


def test_a_payload_stays_bytes_behind_the_first_newline() -> None:
    event = codec.read_event(GROUP, 1, b"3-0", entry(EventKind.FAILED, d=b"1 abc 0\n\n\xc1 x"))
    assert event.data == ("1", "abc", "0")
    assert event.payload == b"\n\xc1 x"


@pytest.mark.parametrize("kind", list(EventKind))
def test_every_kind_is_known_with_its_tokens(kind: EventKind) -> None:
    data = " ".join({"to": "named:a,b%2C"}.get(name, "5") for name in EVENT_FIELDS[kind]).encode()
    item = b"a" if kind.value.startswith("work.") else b""
    event = codec.read_event(GROUP, 1, b"1-0", entry(kind, d=data, i=item))
    assert len(event.data) == len(EVENT_FIELDS[kind])


def without(name: bytes) -> dict[bytes, bytes]:
    fields = entry()
    del fields[name]
    return fields


@pytest.mark.parametrize(
    ("entry_id", "fields"),
    [
        (b"12-1", entry()),
        (b"0-0", entry()),
        (b"01-0", entry()),
        (b"12-0\n", entry()),
        (b"12", entry()),
        (b"12-0", {}),
        *((b"12-0", without(name)) for name in (b"t", b"k", b"i", b"b", b"d")),
        (b"12-0", entry(x=b"1")),
        (b"12-0", entry(k=b"work.exploded")),
        (b"12-0", entry(t=b"soon")),
        (b"12-0", entry(t=b"1" * 15)),
        (b"12-0", entry(i=b"")),
        (b"12-0", entry(i=b"a b")),
        (b"12-0", entry(i=b"\xff")),
        (b"12-0", entry(EventKind.MISSION_APPROVED, d=b"when_verified")),
        (b"12-0", entry(b=b"")),
        (b"12-0", entry(b=b"a b")),
        (b"12-0", entry(d=b"")),
        (b"12-0", entry(d=b"1 l 1767225610000")),
        (b"12-0", entry(d=b"1 l 1767225610000 2 3")),
        (b"12-0", entry(d=b"1 l 1767225610000 2 ")),
        (b"12-0", entry(d=b"-1 l 1767225610000 2")),
        (b"12-0", entry(d=b"1 l soon 2")),
        (b"12-0", entry(d=b"1 {l} 1767225610000 2")),
        (b"12-0", entry(d=b"1 " + b"x" * codec.EVENT_MAX + b" 1767225610000 2")),
    ],
)
def test_an_entry_no_script_writes_is_corrupt(entry_id: bytes, fields: dict[bytes, bytes]) -> None:
    with pytest.raises(Corrupt, match=r"^group m-1: log entry") as caught:
        codec.read_event(GROUP, 1, entry_id, fields)
    assert len(str(caught.value)) < 1000


def test_a_payload_beyond_its_bound_is_quarantined_and_its_event_is_processed() -> None:
    """Fault 43: no state hangs on a payload, so nothing stops for it; what came is known by its digest."""
    payload = b"x" * (codec.EVENT_MAX + 1)
    event = codec.read_event(GROUP, 1, b"12-0", entry(d=b"1 l 1767225610000 2\n" + payload))
    assert (event.seq, event.get("lease"), event.payload) == (12, "l", b"")
    assert event.quarantined == f"65,537 bytes, at most 65,536, digest {codec.digest(payload)}"


@pytest.mark.parametrize("kind", sorted(QUIET_KINDS))
def test_s12_of_a_kind_that_bears_no_state_all_that_cannot_be_read_is_quarantined(kind: EventKind) -> None:
    """Its envelope is sound; whoever shows it finds each field that its kind has."""
    item, garbage = (b"a" if kind.value.startswith("work.") else b""), b"\xc1\n\xff"
    event = codec.read_event(GROUP, 1, b"12-0", entry(kind, d=garbage, i=item))
    assert (event.seq, event.kind, event.payload, event.is_void) == (12, kind, b"", True)
    assert event.quarantined.startswith("3 bytes that are not (")
    assert event.quarantined.endswith(f"digest {codec.digest(garbage)}")
    again = entry(kind, d=" ".join(event.data).encode(), i=item)
    assert codec.read_event(GROUP, 1, b"12-0", again).data == event.data, "what stands in place is of its shape"


@pytest.mark.parametrize("kind", sorted(set(EventKind) - QUIET_KINDS))
def test_s12_of_a_kind_that_bears_state_nothing_is_left_out(kind: EventKind) -> None:
    item = b"a" if kind.value.startswith("work.") else b""
    with pytest.raises(Corrupt, match=rf"its data has 1 bytes, digest {codec.digest(bytes([0xC1]))}"):
        codec.read_event(GROUP, 1, b"12-0", entry(kind, d=b"\xc1", i=item))


@given(
    st.binary(max_size=12),
    st.dictionaries(st.sampled_from([b"t", b"k", b"i", b"b", b"d", b"z"]), st.binary(max_size=30)),
)
def test_random_entries_are_corrupt(entry_id: bytes, fields: dict[bytes, bytes]) -> None:
    with pytest.raises(Corrupt):
        codec.read_event(GROUP, 1, entry_id, fields)


def test_the_digest_is_the_same_everywhere() -> None:
    assert codec.digest(b"treadle") == "fa2dcc179e78832e772bfd87677350b9"
