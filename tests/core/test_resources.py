"""What a Worker has besides slots: read as people write it, refused with the name, the value and the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.errors import Misuse
from treadle.shared.resources import (
    Resources,
    capacity,
    covers,
    left,
    packed,
    parse,
    parse_capacity,
    resources,
    together,
)
from treadle.shared.settings import Settings
from treadle.worker import Worker

NAMES = st.sampled_from(["cpu", "gpu", "license-x"])
SOME = st.dictionaries(NAMES, st.integers(1, 9)).map(lambda counts: tuple(sorted(counts.items())))


def test_they_are_read_as_people_write_them_and_kept_in_the_order_of_their_names() -> None:
    assert parse("license-x=1, gpu=2") == (("gpu", 2), ("license-x", 1)) == resources({"license-x": 1, "gpu": 2})
    assert parse("") == resources({}) == ()
    assert packed(parse("b=1,a=2")) == "a=2,b=1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu", "'gpu' must be NAME=COUNT, the count a whole number, 1 to 1,000,000"),
        ("gpu=two", "'gpu=two' must be NAME=COUNT"),
        ("gpu=-1", "'gpu=-1' must be NAME=COUNT"),
        ("gpu=0", "gpu=0 must be a whole number, 1 to 1,000,000"),
        ("gpu=1000001", "gpu=1000001 must be a whole number, 1 to 1,000,000"),
        ("gpu=1,gpu=2", "gpu is there twice; give its sum once"),
        ("Gpu=1", "'Gpu' is no name of a resource; a name is 1 to 64 of a-z"),
        ("=1", "'' is no name of a resource"),
        (",".join(f"r{n}=1" for n in range(9)), "9 names, at most 8"),
    ],
)
def test_what_is_none_is_refused_with_name_value_and_bound(text: str, said: str) -> None:
    with pytest.raises(Misuse) as refused:
        parse(text)
    assert str(refused.value).startswith(said)
    with pytest.raises(Misuse, match=r"resources \(TREADLE_RESOURCES\): .* is not allowed; must be NAME=COUNT"):
        Settings(resources=text)


def test_a_worker_is_not_made_of_what_is_none() -> None:
    with pytest.raises(Misuse, match="resources: gpu=0 must be a whole number"):
        Worker({}, endpoint="redis://nowhere:1", name="w", resources={"gpu": 0})  # type: ignore[arg-type]


@given(st.integers(0, 99), SOME)
def test_the_store_gives_back_what_it_was_told(slots: int, has: Resources) -> None:
    assert parse_capacity(capacity(slots, has)) == (slots, has)


@given(SOME, SOME)
def test_what_is_left_and_what_is_used_are_all_there_is(has: Resources, needs: Resources) -> None:
    assert covers(has, needs) == all(dict(has).get(name, 0) >= count for name, count in needs)
    if covers(has, needs):
        assert together(left(has, [needs]), needs) == has
        assert covers(has, left(has, [needs]))
