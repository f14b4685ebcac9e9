"""What a place in the order of a Group says of the item that stands there."""

from __future__ import annotations

import pytest
from builders import an_entry
from treadle.shared.model import SortKey

KEY = "01800003600000299999:"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (f"{KEY}a", ("a", 1, 0)),
        (f"{KEY}a*4", ("a", 4, 0)),
        (f"{KEY}a+1500", ("a", 1, 1500)),
        (f"{KEY}a*12+1", ("a", 12, 1)),
        (f"m-1 {KEY}nightly%401800000000000*2", ("nightly%401800000000000", 2, 0)),
        (f"m%3A1 {KEY}a-b_c.d~e", ("a-b_c.d~e", 1, 0)),
        ("", ("", 1, 0)),
        ("no key", ("", 1, 0)),
        (f"{KEY}a*wide", ("", 1, 0)),
    ],
)
def test_a_sort_key_says_of_its_item_how_wide_it_is_and_when_it_is_over(key: str, said: tuple[str, int, int]) -> None:
    found = SortKey.parse(key)
    assert (found.item, found.width, found.timeout_ms) == said


def test_a_directory_entry_says_the_same_of_its_head() -> None:
    wide, plain, none = an_entry(head=f"{KEY}a*4+1500"), an_entry(head=f"{KEY}b"), an_entry(head="")
    assert (wide.head_item, wide.head_width, wide.head_timeout_ms) == ("a", 4, 1500)
    assert (plain.head_item, plain.head_width, plain.head_timeout_ms) == ("b", 1, 0)
    assert (none.head_item, none.head_width, none.head_timeout_ms) == ("", 1, 0)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (f"{KEY}a&gpu=2", ("a", 1, 0, (("gpu", 2),), "")),
        (f"{KEY}a*3+20&gpu=2,license-x=1@w-1", ("a", 3, 20, (("gpu", 2), ("license-x", 1)), "w-1")),
        (f"{KEY}a&gpu", ("", 1, 0, (), "")),
    ],
)
def test_a_head_says_what_resources_it_needs_and_who_keeps_them(key: str, said: tuple[object, ...]) -> None:
    entry = an_entry(head=key)
    found = (entry.head_item, entry.head_width, entry.head_timeout_ms, entry.head_needs, entry.head_holder)
    assert found == said
