"""Draws the states of a WorkItem and of a Mission from the table in `shared/lifecycle.py`, for docs/lifecycle.md.

After a change of the table: `cd tests && ../.venv/bin/python -m house.states`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from treadle.shared.lifecycle import ITEM_MOVES, MISSION_CALLS, MISSION_MOVES, Move
from treadle.shared.model import EventKind, ItemState, MissionState

PAGE = Path(__file__).resolve().parents[2] / "docs" / "lifecycle.md"
_BLOCK = re.compile(r"(<!-- (\w+): .*? -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def _name(state: ItemState | MissionState | None) -> str:
    return state.value if state else "[*]"


def _ordered(states: frozenset[ItemState | None], kinds: type[ItemState] = ItemState) -> list[ItemState | None]:
    return [state for state in (None, *kinds) if state in states]


def _drawn(edges: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (source, target), causes in edges.items():
        yield f"    {source} --> {target}: {', '.join(dict.fromkeys(causes))}"
    yield "```"


def _short(cause: EventKind) -> str:
    return cause.value.partition(".")[2]


def _row(move: Move) -> str:
    given = f", where {move.given}" if move.given else f", unless {' or '.join(move.unless)}" if move.unless else ""
    sources = ", ".join("-" if state is None else state.value for state in _ordered(move.sources))
    calls = " ".join(f"`{call}`" for call in sorted(move.by)) or "-"
    then = " ".join(f"`{call}`" for call in sorted(move.then)) or "-"
    return f"| {sources}{given} | {move.cause} | {move.target} | {move.who} | {calls} | {then} |"


def items() -> str:
    """The diagram of WorkItem states and the rows behind it."""
    edges: dict[tuple[str, str], list[str]] = {}
    for move in ITEM_MOVES:
        for source in _ordered(move.sources):
            edges.setdefault((_name(source), _name(move.target)), []).append(_short(move.cause))
    head = ["", "| from | Event | to | who | asked for by | may follow in |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*_drawn(edges), *head, *map(_row, ITEM_MOVES), ""])


def missions() -> str:
    """The diagram of Mission states, with the calls in which each Event happens."""
    edges: dict[tuple[str, str], list[str]] = {}
    for cause, (sources, target) in MISSION_MOVES.items():
        for source in (None, *MissionState):
            if source in sources:
                edges.setdefault((_name(source), _name(target)), []).append(_short(cause))
    rows = [
        f"| {cause} | {target} | {' '.join(f'`{call}`' for call in sorted(MISSION_CALLS[cause]))} |"
        for cause, (_, target) in MISSION_MOVES.items()
    ]
    return "\n".join([*_drawn(edges), "", "| Event | to | in |", "| --- | --- | --- |", *rows, ""])


def page(text: str) -> str:
    """The text of the page with its blocks drawn anew."""
    drawn = {"items": items, "missions": missions}
    return _BLOCK.sub(lambda found: found[1] + drawn[found[2]]() + found[3], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
