"""Why an item waits: what the store knows of it, and what the Workers that could run it say."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.shared.errors import Refused
from treadle.shared.facts import ItemFacts
from treadle.shared.model import GroupId, ItemId
from treadle.shared.names import token
from treadle.shared.reasons import Answers
from treadle.shared.store import Store, questions

from .core.gates import Gate
from .core.told import explained


@dataclass(frozen=True, slots=True)
class Why:
    """Why an item waits: every gate that holds it, the one to act upon first, and who was asked."""

    facts: ItemFacts
    gates: tuple[Gate, ...]
    asked: int
    """How many Workers were asked: only of what is offered, or accepted and not started, is any."""
    answered: int


async def why_of(store: Store, facts: ItemFacts) -> Why:
    """Why an item waits of which the store's facts are known; within half a second and what the store takes."""
    group, item = GroupId(token(facts.mission, field="mission")), ItemId(token(facts.item, field="item"))
    try:
        answers = await questions.ask(store, group, item)
    except Refused:  # it went meanwhile: what was seen of it is said
        answers = Answers()
    return Why(facts, explained(facts, answers), answers.asked, len(answers.said))
