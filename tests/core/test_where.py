"""`--where`: which items it means, and that what it cannot mean is refused before anything is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from treadle.coordinator.core.where import DEFAULT_STATES, parse_where
from treadle.shared.errors import Misuse
from treadle.shared.facts import StuckFacts
from treadle.shared.model import Capability, GroupId, ItemId

ONE = StuckFacts(
    "m-1", GroupId("m-1"), "photo-17", ItemId("photo-17"), "acme", Capability("thumbs"), "failed", type="OSError"
)


@pytest.mark.parametrize(
    ("given", "matches"),
    [
        ([], True),
        (["state=failed"], True),
        (["state=parked"], False),
        (["state=parked|failed"], True),
        (["capability=thumbs,account=acme"], True),
        (["capability=thumbs", "account=other"], False),
        (["item=photo-*"], True),
        (["item=photo-?"], False),
        (["mission=m-[12]"], True),
        (["type=OSError|ValueError"], True),
        (["type=oserror"], False),
        (["account=a\\,b"], False),
    ],
)
def test_an_item_is_meant_where_all_conditions_hold(given: list[str], matches: bool) -> None:
    assert parse_where(given).matches(ONE) is matches


def test_a_name_may_hold_a_comma() -> None:
    assert parse_where(["account=a\\,b"]).matches(replace(ONE, account="a,b"))


def test_what_goes_on_by_itself_is_meant_only_where_it_is_named() -> None:
    waiting = replace(ONE, state="waiting")
    assert parse_where([]).states == DEFAULT_STATES
    assert not parse_where([]).matches(waiting)
    assert parse_where(["state=waiting"]).matches(waiting)


@pytest.mark.parametrize(
    ("given", "everything"),
    [
        ([], True),
        (["state=failed"], True),
        (["account=*"], True),
        (["account=a*"], False),
        (["state=failed,item=x"], False),
    ],
)
def test_everything_is_what_nothing_narrows(given: list[str], everything: bool) -> None:
    assert parse_where(given).is_everything is everything


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ("failed", "is no condition; write --where state=failed,capability=thumbnails"),
        ("capabillity=x", "did you mean capability?"),
        ("colour=red", "use one of state, mission"),
        ("state=active", "must be of failed, parked, waiting"),
        ("state=", "state has no value"),
        ("item=a|", "item has no value"),
        ("item=a,item=b", "item is there twice; give its values as item=one|two"),
    ],
)
def test_what_it_cannot_mean_is_refused(given: str, saying: str) -> None:
    with pytest.raises(Misuse) as refused:
        parse_where([given])
    assert saying in str(refused.value)
