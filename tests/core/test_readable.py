"""Spans, sizes, counts and names as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator.core.addresses import pausable, readings
from treadle.coordinator.core.readable import cut, listed, safe, size, span, times
from treadle.shared.errors import Misuse


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 ms"),
        (99, "99 ms"),
        (100, "0.1 s"),
        (9_949, "9.9 s"),
        (9_950, "10 s"),
        (59_499, "59 s"),
        (59_500, "1 min"),
        (65_000, "1 min 5 s"),
        (3_600_000, "1 h"),
        (3_660_000, "1 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_span_has_two_units_at_most(ms: int, text: str) -> None:
    assert span(ms) == text


@given(st.floats(min_value=0, max_value=1e13))
def test_any_span_can_be_said(ms: float) -> None:
    assert span(ms)


def test_sizes_counts_and_lists() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536 << 20, 5 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5242880.0 TiB",
    ]
    assert (times(1, "run"), times(1_000, "run"), times(2, "entry", "entries")) == ("1 run", "1,000 runs", "2 entries")
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"


@given(st.text())
def test_no_name_steers_a_terminal(name: str) -> None:
    assert safe(name).isprintable()
    assert cut(name, 20).isprintable()
    assert len(cut(name, 20)) <= 20


def test_names_in_any_script_stay_as_they_are() -> None:
    for name in ("日本語", "שלום", "مرحبا", "naïve", "😀"):
        assert safe(name) == name
    assert safe("a\x1b[31m\u202eb\u200dc") == "a\\x1b[31m\\u202eb\\u200dc"


def test_an_address_is_read_in_every_way_that_it_may_be_meant() -> None:
    assert readings("m/a") == [("m", "a")]
    assert readings("jobs:acme/x/y") == [("jobs%3Aacme", "x%2Fy"), ("jobs%3Aacme%2Fx", "y")]
    assert readings("m//a") == [("m", "%2Fa"), ("m%2F", "a")]


@pytest.mark.parametrize("address", ["", "m", "/", "/a", "m/", "a/b/c/d/e/f/g/h/i/j"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(Misuse, match="is no address of a WorkItem; write MISSION/ITEM"):
        readings(address)


@pytest.mark.parametrize("what", ["all", "account:acme", "account:a:b/c", "capability:thumbs", "mission:日本"])
def test_what_can_be_paused(what: str) -> None:
    assert pausable(what) == what


@pytest.mark.parametrize(
    ("what", "saying"),
    [
        ("acme", "write all, account:acme, capability:acme or mission:acme"),
        ("", "write all, account:NAME"),
        ("group:x", "cannot be paused"),
        ("account:", "account: 0 bytes"),
        ("capability:A B", "is not a capability name"),
    ],
)
def test_what_cannot_be_paused_is_refused(what: str, saying: str) -> None:
    with pytest.raises(Misuse) as refused:
        pausable(what)
    assert saying in str(refused.value)
