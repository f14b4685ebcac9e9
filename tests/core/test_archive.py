"""An archive is read whole and unaltered, or not at all: what is wrong is said with its line and sequence."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from builders import GROUP, ITEM, NOW_MS
from treadle.shared import codec
from treadle.shared.archive import LINE_MAX, ArchivedItem, Body, End, Header, Part, Record, Scribe, Snapshot, read
from treadle.shared.errors import Corrupt
from treadle.shared.model import Event, EventKind

RESULT, LONG = codec.pack({"count": 3, "raw": b"\xff\x00"}, field="result", limit=1000), b"\xc1" * 100_000


def entry(seq: int, kind: EventKind, item: str, data: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    fields = {b"t": b"%d" % NOW_MS, b"k": kind.value.encode(), b"i": item.encode(), b"b": b"ana", b"d": data}
    return b"%d-0" % seq, fields


def an_archive(*, through: int = 3, last: int = 3, snapshot: bytes = b"") -> list[bytes]:
    """A Mission of one item that failed, its Evidence with bytes that are no text."""
    scribe = Scribe()
    lines = [scribe.header(Header("日本/1", GROUP, 1, NOW_MS, 1, through))]
    lines.append(scribe.mission({b"state": b"failed", b"objective": "é\n{".encode(), b"odd": b"\xff"}))
    lines += scribe.snapshot(snapshot)
    entries = [
        entry(1, EventKind.MISSION_CREATED, "", b"d acme 1 standard 1"),
        entry(2, EventKind.AUTHORIZED, ITEM, b"index 1 0"),
        entry(3, EventKind.FAILED, ITEM, b"0 digest 0\n" + RESULT),
    ]
    lines += [scribe.event(*one) for one in entries[:last]]
    lines += scribe.item(ITEM, {b"st": b"failed", b"cap": b"index"}, {"in": LONG, "fl": RESULT})
    return [*lines, scribe.end()]


def parts(lines: list[bytes]) -> list[Part]:
    return list(read(lines, what="m.gz"))


def altered(lines: list[bytes], number: int, **changes: Any) -> list[bytes]:
    """One line with other values in it, as somebody who edits the file would have it."""
    ((what, said),) = json.loads(lines[number]).items()
    line = json.dumps({what: said | changes}).encode() + b"\n"
    return [*lines[:number], line, *lines[number + 1 :]]


def test_what_was_written_is_read_back_to_the_byte() -> None:
    header, record, *events, item, end = parts(an_archive())
    assert header == Header("日本/1", GROUP, 1, NOW_MS, 1, 3)
    assert isinstance(record, Record)
    assert record.fields["objective"] == "é\n{"
    assert record.fields["odd"].encode("utf-8", "surrogateescape") == b"\xff"
    assert [event.seq for event in events if isinstance(event, Event)] == [1, 2, 3]
    assert isinstance(events[2], Event)
    assert (events[2].data, events[2].payload) == (("0", "digest", "0"), RESULT)
    assert item == ArchivedItem(ITEM, {"st": "failed", "cap": "index"}, {"in": LONG, "fl": RESULT})
    assert isinstance(end, End)
    assert (end.events, end.items, len(end.digest)) == (3, 1, 64)


def test_a_snapshot_longer_than_a_line_is_read_back_whole_and_refused_where_a_part_of_it_is_not_there() -> None:
    raw = bytes(range(256)) * 8192 + b"end"
    lines = an_archive(snapshot=raw)
    (snapshot,) = (part for part in parts(lines) if isinstance(part, Snapshot))
    assert snapshot == Snapshot(GROUP, raw)
    with pytest.raises(Corrupt, match=r"line 5: its Snapshot ends after 2,097,152 of 2,097,155 bytes"):
        parts([*lines[:4], *lines[5:]])
    with pytest.raises(Corrupt, match=r"line 6: 3,145,731 of 2,097,155 bytes of a Snapshot"):
        parts([*lines[:5], lines[3]])
    with pytest.raises(Corrupt, match=r"line 6: 'snapshot' may not stand here"):
        parts([*an_archive()[:5], lines[2]])


def test_the_same_mission_gives_the_same_bytes() -> None:
    assert an_archive() == an_archive()


def test_an_archive_cut_after_any_line_or_inside_one_is_refused_with_how_far_it_reaches() -> None:
    lines = an_archive()
    for number in range(1, len(lines)):
        with pytest.raises(Corrupt, match=rf"^m.gz: line {number}: it is cut: it ends after sequence \d"):
            parts(lines[:number])
        with pytest.raises(Corrupt, match="it is cut"):
            parts([*lines[:number], lines[number][:-1]])
    with pytest.raises(Corrupt, match="it is cut"):
        parts([])


def test_no_altered_byte_goes_unseen() -> None:
    whole, chance = b"".join(an_archive()), random.Random(7)
    end = len(an_archive()[-1])
    places = [*chance.sample(range(len(whole) - end), 300), *range(len(whole) - end, len(whole) - 3)]
    for place in places:
        other = bytes([whole[place] ^ chance.choice((1, 2, 4, 8, 16, 32, 64))])
        with pytest.raises(Corrupt):
            parts((whole[:place] + other + whole[place + 1 :]).splitlines(keepends=True))


def test_a_newer_schema_is_refused_by_its_number() -> None:
    with pytest.raises(Corrupt, match="line 1: it has schema 2, this program reads 1; use the program that wrote it"):
        parts(altered(an_archive(), 0, schema=2))


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        (0, {"format": "other"}, "line 1: it is no archive of treadle"),
        (0, {"more": 1}, "line 1: not what is written in an archive"),
        (0, {"first": "1"}, "line 1: not what is written in an archive"),
        (2, {"k": "mission.painted"}, "log entry .* is not an Event"),
        (3, {"id": "4-0"}, "line 4: sequence 2 is missing, 4 follows"),
        (4, {"payload": "?"}, "line 5: not what is written in an archive"),
        (5, {"bytes": "AAAA"}, "line 6: a body has the digest"),
        (7, {"bodies": {"in": "0" * 32}}, "line 8: not what is written in an archive"),
        (7, {"fields": {"st": "verified"}}, "line 9: the lines before have the SHA-256"),
        (8, {"items": 2}, "line 9: it counts other Events or items than stand before it"),
        (8, {"sha256": "0" * 64}, "line 9: the lines before have the SHA-256"),
    ],
)
def test_what_was_altered_is_named(number: int, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Corrupt, match=said):
        parts(altered(an_archive(), number, **changes))


def test_an_archive_that_ends_before_its_last_sequence_is_refused() -> None:
    with pytest.raises(Corrupt, match="it ends after sequence 2 and 1 items"):
        parts(an_archive(last=2))


@pytest.mark.parametrize(
    "lines",
    [
        [b"\x00\x01\n"],
        [b"[]\n"],
        [b'{"a":1,"b":2}\n'],
        [b'{"event":{}}\n'],
        [b"[" * 100_000 + b"\n"],
        [b"x" * (LINE_MAX + 1)],
        [*an_archive(), b"{}\n"],
        [an_archive()[0], *an_archive()],
        [an_archive()[0], *an_archive()[2:]],
        [*an_archive()[:6], *[an_archive()[5]] * 5],
    ],
    ids=["bytes", "list", "two", "event", "deep", "long", "behind the end", "two headers", "no record", "bodies"],
)
def test_what_is_no_archive_is_refused_and_never_crashes_its_reader(lines: list[bytes]) -> None:
    with pytest.raises(Corrupt, match=r"^m\.gz: line"):
        parts(lines)


def test_a_body_is_shown_without_its_bytes() -> None:
    assert "raw" not in repr(Body("d", b"secret"))
