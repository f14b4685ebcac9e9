"""What this Worker is asked by people: why an item waits. Heard with doorbells, answered in the next round of the loop."""

from __future__ import annotations

from collections import deque

from treadle.shared.model import ItemState
from treadle.shared.reasons import Question, Reason
from treadle.shared.store import Store, Wake, questions

from .core.explaining import Here, behind, explain, quotas
from .tenure import Tenure

ROUND_MAX = 64
"""Questions answered in one round; of more the oldest go unanswered: who asks does not wait for long."""
STALE_MS = 2_000
"""After so long nobody waits for an answer any more."""


class Questions:
    """What was asked and is not answered yet."""

    def __init__(self) -> None:
        self._asked: deque[tuple[int, Question]] = deque(maxlen=ROUND_MAX)

    def hear(self, wake: Wake) -> None:
        """Keeps a question for this round; any other ring is none of ours."""
        if wake.question is not None:
            self._asked.append((wake.partition, wake.question))

    async def answer(self, store: Store, tenure: Tenure, now_ms: int) -> None:
        """Says of each what is so now; nothing that was asked longer ago than anybody waits."""
        asked, self._asked = self._asked, deque(maxlen=ROUND_MAX)
        said = [
            (partition, question, reasons(tenure, question, now_ms))
            for partition, question in asked
            if now_ms - question.at_ms <= STALE_MS
        ]
        if said:
            await questions.answer(store, tenure.session, said)


def reasons(tenure: Tenure, question: Question, now_ms: int) -> tuple[Reason, ...]:
    """Why the item waits, as far as it is up to this Worker."""
    group = question.group
    held = tenure.queues.get(group, question.item)
    ready = tenure.taking.ready
    leaf = ready.leaf_of(group)
    used_up, resumes_in_ms = quotas(ready, group, question.width, now_ms)
    here = Here(
        slots=tenure.slots,
        free_slots=max(0, tenure.open_slots),
        resources=tenure.resources,
        spare=tenure.taking.open_to_all(tenure.spare),
        quotas=used_up,
        resumes_in_ms=resumes_in_ms,
        is_known=leaf is not None,
        behind=behind(ready, group, now_ms),
        typical_ms=leaf.standing.usage.typical_ms if leaf is not None else 0,
        is_mine=held is not None and held.state is ItemState.QUEUED,
        is_stopping=tenure.is_stopping,
        serves=tenure.serves(group),
        is_kept_out=group in tenure.bars.groups,
        is_reserved=tenure.reserving.is_known_for(group, question.item),
        is_set_aside=group in tenure.halted,
    )
    return explain(question, here)
