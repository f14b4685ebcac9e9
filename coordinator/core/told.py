"""What Workers answered to why an item waits, beside what the store knows: one list of gates. Pure.

What the store knows holds for all Workers and comes first; what Workers say is counted: "2 of 3 Workers". Of one gate that both
know of, the store's words stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from treadle.shared.facts import ItemFacts
from treadle.shared.model import ItemState
from treadle.shared.reasons import Answer, Answers, Because, Level, Reason
from treadle.shared.resources import packed

from .gates import Code, Gate, before, explain
from .readable import safe, span, times

_CODES = {
    Because.STOPPING: Code.STOPPING,
    Because.NOT_SERVED: Code.NOT_SERVED,
    Because.KEPT_OUT: Code.KEPT_OUT,
    Because.SET_ASIDE: Code.HALTED,
    Because.TOO_WIDE: Code.UNSCHEDULABLE,
    Because.RESERVED: Code.RESERVED,
    Because.QUOTA: Code.QUOTA,
    Because.RATE: Code.QUOTA,
    Because.CAPACITY: Code.CAPACITY,
    Because.RESOURCES: Code.RESOURCES,
    Because.FAIR_SHARE: Code.FAIR_SHARE,
    Because.QUEUED: Code.QUEUED,
    Because.UNHEARD: Code.UNHEARD,
    Because.NEXT: Code.NEXT,
}
_UNABLE = frozenset({Because.STOPPING, Because.NOT_SERVED, Because.KEPT_OUT, Because.SET_ASIDE, Because.TOO_WIDE})


def explained(facts: ItemFacts, answers: Answers) -> tuple[Gate, ...]:
    """Every gate that holds the item, by what the store knows and by what the Workers that could run it said."""
    known = explain(facts)
    if not answers.asked:
        return known
    from_s, to_s = _window(one for said in answers.said for one in said.reasons)
    gates = [*known, *_told(facts, answers, {gate.code for gate in known})]
    for vague in (Code.NEXT, Code.UNHEARD):  # said where nothing more is to be said
        gates = [gate for gate in gates if gate.code is not vague] or gates
    return tuple(replace(gate, from_s=from_s, to_s=to_s) for gate in gates)


def expected(gate: Gate) -> str:
    """When a start is expected, as people read it; '' where nobody can say."""
    if gate.to_s is not None:
        return f"within {span(1000 * gate.to_s)}" + (f", not before {span(1000 * gate.from_s)}" if gate.from_s else "")
    return f"not before {span(1000 * gate.from_s)} from now" if gate.from_s else ""


def _told(facts: ItemFacts, answers: Answers, known: set[Code]) -> list[Gate]:
    """What Workers say that the store does not; a Worker that would take it next says that nothing holds it there."""
    if not answers.said:
        return [_no_answer(answers)]
    free = any(reason.because is Because.NEXT for said in answers.said for reason in said.reasons)
    if free and facts.state is ItemState.OFFERED:
        return []
    gates: list[Gate] = []
    # Of what one Worker is too small for, but another is not, the small one is no gate.
    unsaid = {Because.NEXT, Because.TOO_WIDE} if any(map(_is_able, answers.said)) else {Because.NEXT}
    for because in Because:
        levels = [reason.level for said in answers.said for reason in said.reasons if reason.because is because]
        if levels and because not in unsaid and _CODES[because] not in known:
            gates.append(_gate(because, max(levels, key=list(Level).index), len(levels), facts, answers))
    return gates


def _is_able(said: Answer) -> bool:
    """Whether it would run the item, some time."""
    return not any(reason.because in _UNABLE for reason in said.reasons)


def _window(reasons: Iterable[Reason]) -> tuple[int | None, int | None]:
    """The earliest start that any Worker expects, and the latest of those who know an end: one of them is enough."""
    said = list(reasons)
    return (
        min((one.from_s for one in said if one.from_s is not None), default=None),
        min((one.to_s for one in said if one.to_s is not None), default=None),
    )


def _gate(because: Because, level: Level, count: int, facts: ItemFacts, answers: Answers) -> Gate:
    # Those that never will run it are not counted beside those that will, but where all that is said is theirs.
    able = sum(map(_is_able, answers.said))
    who = _who(count, able if able and because not in _UNABLE else len(answers.said))
    mission = safe(facts.mission)
    match because:
        case Because.STOPPING:
            return Gate(
                Code.STOPPING, f"{who} about to stop: nothing new is taken", "another Worker, or its next start"
            )
        case Because.NOT_SERVED:
            text = f"{who} there for other Missions only (--groups)"
            return Gate(Code.NOT_SERVED, text, f"a Worker whose --groups matches {mission}")
        case Because.KEPT_OUT:
            text = f"{who} kept out of its Mission"
            return Gate(Code.KEPT_OUT, text, f"`treadle admit AGENT --mission {mission}`, or another Worker")
        case Because.SET_ASIDE:
            text = f"{who} unable to trust what was read of its Mission's log"
            return Gate(Code.HALTED, text, f"`treadle verify {mission}`; it is looked at again within a minute or two")
        case Because.TOO_WIDE:
            needs, flags = f"{times(facts.width, 'slot')} at once", f"--slots {facts.width}"
            if facts.resources:
                needs, flags = (
                    f"{needs} with {packed(facts.resources)}",
                    f"{flags} --resources {packed(facts.resources)}",
                )
            return Gate(Code.UNSCHEDULABLE, f"{who} too small: it needs {needs}", f"a Worker with {flags} or more")
        case Because.RESERVED:
            text = f"a Worker keeps the slots that get free for it, until there are the {facts.width} that it needs"
            if facts.resources:
                needs = f"{times(facts.width, 'slot')} with {packed(facts.resources)}"
                text = f"a Worker keeps what gets free for it, until there is all that it needs: {needs}"
            return Gate(Code.RESERVED, text, "runs that end on that Worker")
        case Because.RESOURCES:
            text = f"{who} without {packed(facts.resources)} free now"
            return Gate(Code.RESOURCES, text, "runs that end, or another Worker")
        case Because.QUOTA:
            if facts.width > 1:
                text = f"the policy leaves {_OF[level]} fewer than the {facts.width} slots that it needs at once"
                more = f"`slots` of {facts.width} or more in the policy"
                return Gate(Code.QUOTA, text, f"runs of {_OF[level]} that end; where none runs, {more}")
            text = f"{_OF[level]} has as much running as the policy grants it slots"
            return Gate(Code.QUOTA, text, f"runs of {_OF[level]} that end, or more `slots` in the policy")
        case Because.RATE:
            text = f"{_OF[level]} has had as many starts in this window as the policy grants it"
            return Gate(Code.QUOTA, text, "the next window, or a higher `rate` in the policy")
        case Because.CAPACITY:
            text = f"{who} without {'a slot' if facts.width == 1 else f'{facts.width} slots at once'} free now"
            return Gate(Code.CAPACITY, text, "runs that end, or another Worker")
        case Because.FAIR_SHARE:
            return Gate(Code.FAIR_SHARE, f"{who} giving the next slot to other work: {_SHARE[level]}", _CHANGE[level])
        case Because.QUEUED:
            return Gate(Code.QUEUED, before(facts), "their start")
        case Because.UNHEARD | Because.NEXT:
            text = f"{who} unaware of anything to take of its Mission now"
            return Gate(Code.UNHEARD, text, "time: each Worker looks again within five seconds")


_OF = {
    **{Level.NONE: "its Mission or account", Level.MISSION: "its Mission"},
    **{Level.ACCOUNT: "its account", Level.CLASS: "its priority class"},
}
_SHARE = {
    Level.NONE: "that has the better claim by weight and service",
    Level.MISSION: "its Mission has had its share for now",
    Level.ACCOUNT: "its account has had its share for now",
    Level.CLASS: "its priority class has had its share for now",
}
_CHANGE = {
    Level.NONE: "time, more slots, or a higher weight",
    Level.MISSION: "time, more slots, or a higher weight of its Mission",
    Level.ACCOUNT: "time, more slots, or a higher weight of its account",
    Level.CLASS: "time, more slots, or a higher weight of its class",
}


def _who(count: int, answered: int) -> str:
    """How many Workers of those that answered, with the verb."""
    if count == answered:
        return "the Worker that could run it is" if count == 1 else f"all {count} Workers that could run it are"
    return f"{count} of {answered} Workers that could run it {'is' if count == 1 else 'are'}"


def _no_answer(answers: Answers) -> Gate:
    was = "was" if answers.asked == 1 else "were"
    return Gate(
        Code.NO_ANSWER,
        f"{times(answers.asked, 'Worker')} that could run it {was} asked, and none answered",
        "look at `treadle workers`: one that is gone is found out by its silence, and a handler that blocks its Worker's event "
        "loop lets it answer nobody",
    )
