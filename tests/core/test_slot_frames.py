"""What a Worker and the process of a slot say to each other: whole frames, bounded, and nothing unknown."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.worker.slots import frames
from treadle.worker.slots.frames import FRAME_MAX, Frame, Kind, Reader

EXAMPLES: dict[type, Any] = {str: "x", bytes: b"x", int: 1, bool: True, list: ["x"], dict: {"x": 1}}


def example(kind: Kind) -> tuple[Any, ...]:
    return tuple(EXAMPLES[one] for one in frames._SHAPES[kind])


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_is_read_as_it_was_written(kind: Kind) -> None:
    assert Reader().feed(frames.write(kind, *example(kind))) == [Frame(kind, example(kind))]


@given(st.lists(st.sampled_from(list(Kind)), max_size=6), st.lists(st.integers(0, 80), max_size=12))
def test_frames_are_the_same_in_whatever_pieces_they_come(kinds: list[Kind], cuts: list[int]) -> None:
    raw = b"".join(frames.write(kind, *example(kind)) for kind in kinds)
    ends = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    reader = Reader()
    read = [frame for start, end in pairwise(ends) for frame in reader.feed(raw[start:end])]
    assert read == [Frame(kind, example(kind)) for kind in kinds]


def framed(value: object) -> bytes:
    raw = codec.pack(value, field="x", limit=1 << 20)
    return len(raw).to_bytes(4) + raw


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ((FRAME_MAX + 1).to_bytes(4), r"2,097,153 bytes, at most 2,097,152"),
        (framed(["shout", "x"]), "'shout' is no kind known here"),
        (framed([]), "None is no kind"),
        (framed("stop"), "None is no kind"),
        (framed(["stop"]), r"frame stop: its fields are \(str, bool\), not \(\)"),
        (framed(["stop", "x", 1]), r"not \(str, int\)"),
        (framed(["stop", "x", True, True]), r"not \(str, bool, bool\)"),
        (b"\0\0\0\1\xc1", "frame: not what was packed"),
    ],
)
def test_what_nobody_writes_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        Reader().feed(raw)


def test_a_frame_is_refused_where_it_is_written_too() -> None:
    with pytest.raises(Misuse, match=r"frame body: 2,\d+,\d+ bytes when packed, at most 2,097,152"):
        frames.write(Kind.BODY, "inputs", bytes(FRAME_MAX))
    with pytest.raises(Misuse, match=r"frame stop: its fields are \(str, bool\), not \(str\)"):
        frames.write(Kind.STOP, "why")
