"""What is told of damage is told in one line of tokens, and read back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.damage import Damage
from treadle.shared.names import NAME_BYTES_MAX

NAMES = st.text(max_size=NAME_BYTES_MAX // 4).filter(lambda name: not any("\ud800" <= c <= "\udfff" for c in name))


@given(st.sampled_from(["inputs", "contract", "checkpoint", "resolution", "result"]), st.none() | st.binary(), NAMES)
def test_what_is_packed_is_one_line_of_at_most_1024_bytes_and_read_back(what: str, raw: bytes | None, of: str) -> None:
    damage = Damage.found(what, raw, of=of)
    packed = damage.packed()
    assert packed.isprintable()
    assert len(packed.encode()) <= 1_024
    assert Damage.parse(packed) == damage


@pytest.mark.parametrize("packed", ["", "inputs", "7 - ", "x - inputs", "7 0f inputs", "7 - inputs\n", "7 - INPUTS"])
def test_what_is_no_damage_is_none(packed: str) -> None:
    assert Damage.parse(packed) is None


def test_people_are_told_what_it_is_how_long_and_its_digest() -> None:
    raw = b"\xc1" * 1_234
    assert Damage.found("inputs", raw).words() == f"inputs: 1,234 bytes, digest {codec.digest(raw)}"
    assert Damage.found("checkpoint", None).words() == "checkpoint: missing"
    assert Damage.found("result", raw, of="a b").words() == f"result of 'a b': 1,234 bytes, digest {codec.digest(raw)}"
