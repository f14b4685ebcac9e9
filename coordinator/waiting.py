"""What something that has not ended waits for, in one sentence: for the errors of those whose patience is over."""

from __future__ import annotations

from collections import Counter

from treadle.shared.answers import ItemView, MissionView
from treadle.shared.model import GroupId
from treadle.shared.store import Store, pictures
from treadle.shared.versions import spoken, versioned

from .core.gates import explain
from .core.readable import times

ITEMS_LOOKED_AT = 5_000
"""Of a larger Mission only the counts are said: reading its items would take longer than they are worth."""
CAPABILITIES_SHOWN = 5


async def why_mission(store: Store, view: MissionView) -> str:
    """How far a Mission is, and what no Worker is there for."""
    text = f"{view.verified:,} of {view.total:,} items are verified, {view.failed:,} failed"
    if view.cancelled:
        text += f", {view.cancelled:,} cancelled"
    if view.halted:
        return f"{text}; its Group is HALTED ({view.halted}): `treadle repair` makes its log anew"
    if view.is_open:
        text += "; it is open, and ends after `seal` only"
    if view.total > ITEMS_LOOKED_AT:
        return text
    items = await store.items(view.group)
    if asking := sum(item.blocked is not None for item in items):
        text += f"; BLOCKED: {times(asking, 'item waits', 'items wait')} for an answer (`treadle blocked`)"
    waiting = Counter(versioned(item.capability, item.version) for item in items if not item.has_ended)
    now_ms, workers = await pictures.workers(store)
    live = [worker for worker in workers if not worker.is_silent(now_ms)]
    missing = [
        f"{spoken(name)} ({count:,} {'item' if count == 1 else 'items'})"
        for name, count in sorted(waiting.items())
        if not any(worker.can(name) for worker in live)
    ]
    if missing:
        more = f" and {len(missing) - CAPABILITIES_SHOWN} more" if len(missing) > CAPABILITIES_SHOWN else ""
        text += f"; NO_WORKER: no live Worker offers {', '.join(missing[:CAPABILITIES_SHOWN])}{more}"
    return text


async def why_job(store: Store, view: ItemView, group: GroupId) -> str:
    """The gates that hold a job, the first to act upon first."""
    facts = await pictures.why(store, group, view.item)
    if facts is None:
        return f"it was {view.state}"
    return "; ".join(f"{gate.code}: {gate.text}" for gate in explain(facts))
