"""docs/lifecycle.md shows the table of states as it is."""

from __future__ import annotations

from house.states import PAGE, page
from treadle.shared.lifecycle import ITEM_MOVES, MISSION_MOVES


def test_the_page_of_the_states_is_drawn_from_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "the table has changed: cd tests && ../.venv/bin/python -m house.states"
    assert all(kind.value in text for kind in (*(move.cause for move in ITEM_MOVES), *MISSION_MOVES))
