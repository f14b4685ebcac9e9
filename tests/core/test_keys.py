"""Key names: P hash tags divide a Cluster evenly, and no name of anybody's can leave its partition (BR-45)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot
from treadle.shared.model import GroupId
from treadle.shared.names import TOKEN_CHARS_MAX, token
from treadle.shared.store import keys

SLOTS = 16384
NAMES = st.text(min_size=1, max_size=64).filter(
    lambda name: not any(0xD800 <= ord(character) < 0xE000 for character in name)
)


def slots_of(partitions: int) -> list[int]:
    return [key_slot(keys.meta(keys.base("treadle", p, partitions)).encode()) for p in range(partitions)]


@pytest.mark.parametrize("partitions", range(1, 257))
def test_each_partition_lies_in_its_own_equal_share_of_the_slots(partitions: int) -> None:
    slots = slots_of(partitions)
    for partition, slot in enumerate(slots):
        assert partition * SLOTS // partitions <= slot < (partition + 1) * SLOTS // partitions


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6, 16])
@pytest.mark.parametrize("partitions", [16, 48, 256])
def test_nodes_that_share_the_slots_evenly_share_the_partitions_evenly(nodes: int, partitions: int) -> None:
    held = Counter(slot * nodes // SLOTS for slot in slots_of(partitions))
    assert max(held.values()) - min(held.values()) <= 1


def test_tags_are_the_same_everywhere_and_for_ever() -> None:
    """A store's keys are named by them: another rule would be another store."""
    assert [keys.hash_tag(p, 16) for p in range(16)] == [
        *("0.13", "1.10", "2.3", "3.0", "4.63", "5.60", "6.43", "7.40"),
        *("8.20", "9.23", "10.40", "11.43", "12.1", "13.2", "14.23", "15.20"),
    ]


def test_a_group_lies_in_the_same_partition_everywhere_and_for_ever() -> None:
    assert [keys.partition_of(f"m-{n}", 16) for n in range(8)] == [2, 4, 14, 8, 11, 13, 7, 1]


@given(NAMES, st.integers(1, 256))
def test_a_group_of_any_name_has_all_its_keys_in_the_slot_of_its_partition(name: str, partitions: int) -> None:
    group = GroupId(token(name, field="name"))
    partition = keys.partition_of(group, partitions)
    assert 0 <= partition < partitions
    base = keys.base("treadle", partition, partitions)
    slot = key_slot(keys.meta(base).encode())
    named = [keys.log(base, group), keys.mission(base, group), keys.items(base, group)]
    named += [keys.item(base, group, group), keys.body(base, group, group, "in")]
    named += [keys.inbox(base, group), keys.wake(base, group)]
    assert {key_slot(key.encode()) for key in named} == {slot}


@given(NAMES, NAMES)
def test_two_groups_never_share_a_key(one: str, other: str) -> None:
    if one == other:
        return
    first, second = (GroupId(token(text, field="name")) for text in (one, other))
    assert first != second
    assert len(first) <= TOKEN_CHARS_MAX
    base = keys.base("treadle", 0, 1)

    def of(group: GroupId) -> set[str]:
        named = {keys.log(base, group), keys.mission(base, group), keys.items(base, group)}
        return named | {keys.item(base, group, item) for item in (first, second)}

    assert not of(first) & of(second)


@given(NAMES)
def test_no_group_has_a_key_that_is_the_partitions_own(name: str) -> None:
    base = keys.base("treadle", 0, 1)
    assert not keys.log(base, GroupId(token(name, field="name"))).removeprefix(base).startswith("@")
