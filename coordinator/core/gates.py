"""Why a WorkItem waits, as a rule over what the store knows: each gate with what would change it. Pure.

Every gate that holds an item is named, the one to act upon first. Nothing is said of other Groups (design.md 4): how the
Workers share their slots between Groups is theirs to know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from treadle.shared.answers import Block
from treadle.shared.facts import NEVER_MS, ItemFacts
from treadle.shared.lifecycle import TERMINAL_ITEMS, TERMINAL_MISSIONS
from treadle.shared.model import ItemState, Risk
from treadle.shared.names import shown
from treadle.shared.resources import covers, packed
from treadle.shared.versions import spoken

from .readable import cut, listed, safe, span, times

NAMED_MAX = 5
FAILURE_CHARS_MAX = 200


class Code(StrEnum):
    """Why it waits, or what has become of it."""

    VERIFIED = "VERIFIED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RUNNING = "RUNNING"
    ACCEPTED = "ACCEPTED"
    BLOCKED = "BLOCKED"
    SUBMITTED = "SUBMITTED"
    MISSION_ENDED = "MISSION_ENDED"
    HALTED = "HALTED"
    HELD = "HELD"
    APPROVAL = "APPROVAL"
    DEPENDENCY = "DEPENDENCY"
    NOT_BEFORE = "NOT_BEFORE"
    BACKOFF = "BACKOFF"
    OFFER_OVER = "OFFER_OVER"
    OFFERED_TO = "OFFERED_TO"
    QUARANTINE = "QUARANTINE"
    PAUSED = "PAUSED"
    BUDGET = "BUDGET"
    NO_WORKER = "NO_WORKER"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    RESERVED = "RESERVED"
    CAPACITY = "CAPACITY"
    RESOURCES = "RESOURCES"
    QUOTA = "QUOTA"
    QUEUED = "QUEUED"
    KEPT_OUT = "KEPT_OUT"
    STOPPING = "STOPPING"
    NOT_SERVED = "NOT_SERVED"
    FAIR_SHARE = "FAIR_SHARE"
    UNHEARD = "UNHEARD"
    NO_ANSWER = "NO_ANSWER"
    NEXT = "NEXT"


@dataclass(frozen=True, slots=True)
class Gate:
    """One reason: what is so, and what would change it."""

    code: Code
    text: str
    change: str
    from_s: int | None = None
    """Before which a start is not to be expected, in seconds from now, coarse; None: nobody can say."""
    to_s: int | None = None
    """Until when it is to be expected."""


def explain(facts: ItemFacts) -> tuple[Gate, ...]:
    """Every gate that holds the item, or the one thing that is to be said of it where it runs or has ended."""
    match facts.state:
        case ItemState.VERIFIED | ItemState.FAILED | ItemState.CANCELLED if not _is_waiting(facts):
            return (_ended(facts),)
        case ItemState.ACTIVE | ItemState.QUEUED | ItemState.BLOCKED | ItemState.SUBMITTED:
            halted = _halted(facts)
            return (halted, _at_work(facts)) if halted else (_at_work(facts),)
        case ItemState.OPEN | ItemState.OFFERED | ItemState.FAILED | ItemState.VERIFIED | ItemState.CANCELLED:
            return _waiting(facts)
        case _:
            assert_never(facts.state)


def _is_waiting(facts: ItemFacts) -> bool:
    """A failed item that is tried again later waits; every other ended one stays as it is."""
    return facts.state not in TERMINAL_ITEMS or (facts.state is ItemState.FAILED and facts.next_ms > 0)


def _ended(facts: ItemFacts) -> Gate:
    if facts.state is ItemState.VERIFIED:
        return Gate(Code.VERIFIED, f"it is done, in {times(facts.runs, 'run')}", "nothing: its result is accepted")
    if facts.state is ItemState.CANCELLED:
        return Gate(
            Code.CANCELLED, "it was cancelled and is not run any more", "nothing: submit it anew where it is wanted"
        )
    reason = f": {cut(facts.failure, FAILURE_CHARS_MAX)}" if facts.failure else ""
    retry = (
        f"`treadle retry {_address(facts)}` runs it again"
        if facts.mission_state not in TERMINAL_MISSIONS
        else "submit it anew"
    )
    return Gate(Code.FAILED, f"it failed for good after {times(facts.runs, 'run')}{reason}", retry)


def _at_work(facts: ItemFacts) -> Gate:
    who = shown(facts.owner or "")
    if facts.state is ItemState.ACTIVE:
        left_ms = facts.lease_expires_ms - facts.now_ms
        lease = f"its lease is renewed until {span(left_ms)} from now" if left_ms > 0 else "its lease has just run out"
        return Gate(
            Code.RUNNING,
            f"Worker {who} has run it for {span(facts.now_ms - facts.started_ms)} (run {facts.runs}); {lease}"
            + _progress(facts)
            + _expected(facts),
            "its handler ends it; where that Worker dies, it goes on elsewhere when the lease has run out",
        )
    if facts.state is ItemState.QUEUED:
        left_ms = facts.start_by_ms - facts.now_ms
        until = f"must start it within {span(left_ms)}" if left_ms > 0 else "has let its start-by time pass"
        return Gate(
            Code.ACCEPTED,
            f"Worker {who} has accepted it and {until}",
            "a slot of that Worker; where none is free in time it is offered to all again",
        )
    if facts.blocked is not None:
        return _blocked(facts, facts.blocked)
    return Gate(Code.SUBMITTED, f"Worker {who} has handed in its result", "its review")


def _progress(facts: ItemFacts) -> str:
    """How far it is, as its handler said it."""
    said = facts.progress
    if said is None:
        return ""
    reached = f", reached: {listed(said.milestones)}" if said.milestones else ""
    ago = span(max(0, facts.now_ms - said.said_ms))
    return f"; it is at {cut(said.words(), FAILURE_CHARS_MAX)}{reached}, as it said {ago} ago"


def _expected(facts: ItemFacts) -> str:
    """When its run ends, as its Worker disclosed it."""
    said = facts.forecast
    if said is None or not said.end_ms:
        return ""
    left_ms = said.end_ms - facts.now_ms
    when = f"is expected within {span(left_ms)}" if left_ms > 0 else f"was expected {span(-left_ms)} ago"
    sure = f"{said.confidence} % sure" if said.confidence else "a guess"
    return f"; its end {when} ({sure})"


def _blocked(facts: ItemFacts, block: Block) -> Gate:
    needs = needs_of(block)
    reason = f"{cut(block.reason, FAILURE_CHARS_MAX)}" + (
        f"; it needs {cut(needs, FAILURE_CHARS_MAX)}" if needs else ""
    )
    left_ms = block.until_ms - facts.now_ms
    where = "it goes on with whichever Worker is free"
    if facts.owner and left_ms > 0:
        where = f"answered within {span(left_ms)} it goes on with Worker {shown(facts.owner)}, later with any"
    return Gate(
        Code.BLOCKED,
        f"it has been blocked for {span(facts.now_ms - block.since_ms)}: {reason}",
        f"`treadle unblock {_address(facts)} --resolution JSON`; {where}",
    )


def needs_of(block: Block) -> str:
    """What it needs, as text; '' where its handler said nothing."""
    return "" if block.needs is None else json.dumps(block.needs, ensure_ascii=False, default=str)


def _waiting(facts: ItemFacts) -> tuple[Gate, ...]:
    gates = [gate for rule in _RULES if (gate := rule(facts)) is not None]
    return tuple(gates) or (_NEXT,)


def _mission(facts: ItemFacts) -> Gate | None:
    if facts.mission_state in TERMINAL_MISSIONS:
        return Gate(
            Code.MISSION_ENDED,
            f"its Mission is {facts.mission_state}, nothing of it starts any more",
            "nothing: submit it in another Mission",
        )
    return _halted(facts)


def _halted(facts: ItemFacts) -> Gate | None:
    if not facts.group_state.startswith("halted"):
        return None
    code = facts.group_state.partition(":")[2] or "unknown"
    return Gate(
        Code.HALTED,
        f"its Group was halted ({code}): its log is not what the store wrote",
        "find out who else writes to this server's keys, then `treadle repair MISSION`",
    )


def _approval(facts: ItemFacts) -> Gate | None:
    if not facts.needs_approval:
        return None
    return Gate(
        Code.APPROVAL,
        ("" if facts.risk is Risk.NONE else f"its risk is {facts.risk}; ")
        + "nobody has approved its execution, and it is not to start before",
        f"`treadle approve {_address(facts)}`, or `treadle cancel {_address(facts)}` to deny it",
    )


def _held(facts: ItemFacts) -> Gate | None:
    if facts.held in ("", "APPROVAL"):
        return None
    found = f" ({facts.damage.words()})" if facts.damage else ""
    if facts.held == "CHECKPOINT":
        return Gate(
            Code.HELD,
            f"it is parked (CHECKPOINT): none of its Checkpoints can be trusted, the store's memory was damaged{found}",
            f"restore the store, or `treadle retry {_address(facts)}` has it done from its beginning",
        )
    if facts.damage or not facts.lost_runs:
        return Gate(
            Code.HELD,
            f"it is parked ({facts.held}): what it needs to run cannot be read as it stands in the store{found}",
            f"restore the store and `treadle retry {_address(facts)}`; or `treadle cancel` it, and submit it anew",
        )
    return Gate(
        Code.HELD,
        f"it is parked ({facts.held}): {times(facts.lost_runs, 'run')} of it ended with their Worker, as if it kills it",
        f"find the cause, then `treadle retry {_address(facts)}`; or `treadle cancel` it",
    )


def _dependency(facts: ItemFacts) -> Gate | None:
    if facts.state is not ItemState.OPEN or facts.dependencies_left <= 0:
        return None
    named = [f"{shown(item)} ({state})" for item, state in facts.waits_for[:NAMED_MAX]]
    more = max(facts.dependencies_left, len(facts.waits_for)) - len(named)
    if more > 0:
        named.append(f"{more:,} more" if named else times(more, "item"))
    dead = [item for item, state in facts.waits_for if state in (ItemState.FAILED, ItemState.CANCELLED)]
    change = "their results"
    if dead:
        change = f"`treadle retry {safe(facts.mission)}/{shown(dead[0])}`, which will not be verified by itself"
    return Gate(Code.DEPENDENCY, f"it waits for {', '.join(named)}", change)


def _clock(facts: ItemFacts) -> Gate | None:
    left_ms = facts.next_ms - facts.now_ms
    if facts.next_ms <= 0 or left_ms <= 0:
        return None
    if facts.state is not ItemState.FAILED and facts.lost_runs > 1:
        return Gate(
            Code.BACKOFF,
            f"{facts.lost_runs} runs of it ended with their Workers; it is offered again in {span(left_ms)}",
            "time; look at what it does to its Workers",
        )
    if facts.state is ItemState.FAILED or facts.failures > 0:
        reason = f" ({cut(facts.failure, FAILURE_CHARS_MAX)})" if facts.failure else ""
        return Gate(
            Code.BACKOFF,
            f"it failed {times(facts.failures or facts.runs, 'time')}{reason} and is tried again in {span(left_ms)}",
            f"time; or `treadle retry {_address(facts)}` tries it now",
        )
    return Gate(Code.NOT_BEFORE, f"it is not to start within the next {span(left_ms)}", "time, nothing else")


def _offer(facts: ItemFacts) -> Gate | None:
    offer = facts.offer
    if offer is None or (offer.mode == "all" and not offer.is_over):
        return None
    again = f"`treadle offer {_address(facts)}` offers it to everybody, with --to WORKER to some"
    if offer.mode != "all" and not offer.asked:
        return Gate(Code.OFFER_OVER, "all Workers that it was offered to by name have declined", again)
    live = {one.agent for one in facts.workers}
    asked = ", ".join(shown(agent) + ("" if agent in live else " (not live)") for agent in offer.asked) or "everybody"
    left_ms = offer.expires_ms - facts.now_ms
    if offer.is_over:
        return Gate(Code.OFFER_OVER, f"its offer to {asked} is over since {span(-left_ms)}", again)
    until = f" for another {span(left_ms)}" if offer.expires_ms else ""
    text = f"it is offered by name, to {asked}{until}"
    if offer.mode == "preferred":
        return Gate(Code.OFFERED_TO, text, "one of them; or time: what they let pass is offered to everybody")
    return Gate(Code.OFFERED_TO, text, f"one of them; or {again}")


def _quarantine(facts: ItemFacts) -> Gate | None:
    left_ms = facts.quarantine_ms - facts.now_ms
    if left_ms <= 0:
        return None
    if facts.quarantine_ms >= NEVER_MS:
        return Gate(
            Code.QUARANTINE,
            "the store went back in time, as an old backup does: nothing is accepted or started until a person has looked",
            "`treadle doctor` says who found it; then `treadle new-incarnation`",
        )
    return Gate(
        Code.QUARANTINE,
        f"the store's server changed, and what ran may still run: nothing is accepted or started for the next {span(left_ms)}",
        "time, nothing else: as long as the longest lease",
    )


def _paused(facts: ItemFacts) -> Gate | None:
    if not facts.paused:
        return None
    return Gate(Code.PAUSED, f"paused: {listed(facts.paused)}", f"`treadle resume {safe(facts.paused[0])}`")


def _budget(facts: ItemFacts) -> Gate | None:
    if not 0 < facts.budget_ms <= facts.spent_ms:
        return None
    return Gate(
        Code.BUDGET,
        f"its Mission has had {span(facts.spent_ms)} of slots, and its budget is {span(facts.budget_ms)}: nothing more starts",
        "nothing: what is done is kept; cancel the Mission, and submit the rest in another",
    )


def _workers(facts: ItemFacts) -> Gate | None:
    if not facts.workers:
        return Gate(
            Code.NO_WORKER,
            f"no live Worker offers {spoken(facts.capability)}",
            f"start one: treadle-worker run --handlers MODULE, with a handler of {spoken(facts.capability)}",
        )
    kept_out = [one.agent for one in facts.workers if one.agent in facts.kept_out]
    if len(kept_out) == len(facts.workers):
        named = listed([shown(agent) for agent in kept_out[:NAMED_MAX]])
        return Gate(
            Code.KEPT_OUT,
            f"{named} offer{'s' if len(kept_out) == 1 else ''} {spoken(facts.capability)} and "
            f"{'is' if len(kept_out) == 1 else 'are'} kept out of its Mission, no other live Worker does",
            f"`treadle admit AGENT --mission {safe(facts.mission)}`, or another Worker",
        )
    widest = max(one.slots for one in facts.workers)
    if facts.width > widest:
        return Gate(
            Code.UNSCHEDULABLE,
            f"it needs {times(facts.width, 'slot')} at once, the largest live Worker that offers "
            f"{spoken(facts.capability)} has {widest}",
            f"start a Worker with --slots {facts.width} or more",
        )
    if facts.resources and not any(
        one.slots >= facts.width and covers(one.resources, facts.resources) for one in facts.workers
    ):
        has = _most(facts)
        return Gate(
            Code.UNSCHEDULABLE,
            f"it needs {packed(facts.resources)}, no live Worker that offers {spoken(facts.capability)} has all of it "
            f"(at most {has})",
            f"start a Worker with --resources {packed(facts.resources)} or more",
        )
    return None


def _most(facts: ItemFacts) -> str:
    """What those Workers have at most of each resource that it needs."""
    counts = [dict(one.resources) for one in facts.workers]
    return ",".join(f"{name}={max(has.get(name, 0) for has in counts)}" for name, _ in facts.resources)


def _capacity(facts: ItemFacts) -> Gate | None:
    slots = sum(one.slots for one in facts.workers)
    if facts.state is not ItemState.OFFERED or not slots or facts.busy < slots:
        return None
    return Gate(
        Code.CAPACITY,
        f"all {slots} slots of the {times(len(facts.workers), 'Worker')} that offer {spoken(facts.capability)} are in use",
        "a run that ends, or another Worker",
    )


def before(facts: ItemFacts) -> str:
    """What of its own Group and capability stands before an item."""
    come = "comes" if facts.ahead == 1 else "come"
    return f"{times(facts.ahead, 'item')} of its own Mission and capability {come} before it"


def _queue(facts: ItemFacts) -> Gate | None:
    if facts.state is not ItemState.OFFERED or facts.ahead <= 0:
        return None
    return Gate(
        Code.QUEUED,
        before(facts),
        "their start; a higher urgency or a nearer deadline would put it before them",
    )


def _address(facts: ItemFacts) -> str:
    return safe(f"{facts.mission}/{facts.item}")


_NEXT = Gate(
    Code.NEXT,
    "nothing holds it: it is the first of its Mission, and a Worker that offers its capability takes it in its turn",
    "the next free slot that is this account's and Mission's share; ask again in a moment",
)
_RULES = (
    *(_mission, _approval, _held, _dependency, _clock, _offer, _quarantine, _paused, _budget),
    *(_workers, _capacity, _queue),
)
