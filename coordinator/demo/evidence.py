"""The demo's figures, from the Group logs, the Workers' evidence and the exit statuses; nothing is counted as it goes.

Pure: the same logs and lines give the same figures, whoever reads them, whenever.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from treadle.shared.errors import Corrupt
from treadle.shared.facts import Progress
from treadle.shared.lifecycle import TERMINAL_ITEMS, next_state
from treadle.shared.model import AgentId, Event, EventKind, ItemId, ItemState, MissionState

ENDS = frozenset(
    {
        EventKind.SUBMITTED,
        EventKind.FAILED,
        EventKind.CHECKPOINTED,
        EventKind.RELEASED,
        EventKind.LAPSED,
        EventKind.REQUEUED,
    }
)
"""What ends a run."""
WAITING = frozenset({ItemState.OFFERED, ItemState.QUEUED})


@dataclass(frozen=True, slots=True)
class Run:
    """One lease's work on one item, from `work.started` to its end; `ended_ms` is None while it runs."""

    item: ItemId
    agent: AgentId
    number: int
    width: int
    started_ms: int
    saves: int = 0
    ended_ms: int | None = None
    ended_by: EventKind | None = None

    def is_open_at(self, at_ms: int) -> bool:
        return self.started_ms <= at_ms and (self.ended_ms is None or at_ms < self.ended_ms)


@dataclass(frozen=True, slots=True)
class Processed:
    """One line of a Worker's evidence: this run has processed this file."""

    mission: str
    item: str
    file: str
    attempt: int
    worker: str
    pid: int
    order: int


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """What became of one Worker process. `killed_ms` is the store's time just before SIGKILL was sent, if it was."""

    agent: AgentId
    pid: int
    status: int
    killed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Shares:
    """Slot-milliseconds of both Missions while both had a shard waiting to start."""

    from_ms: int
    to_ms: int
    a_ms: int
    b_ms: int

    @property
    def share_a(self) -> float | None:
        return self.a_ms / (self.a_ms + self.b_ms) if self.a_ms + self.b_ms else None

    @property
    def share_b(self) -> float | None:
        return self.b_ms / (self.a_ms + self.b_ms) if self.a_ms + self.b_ms else None


def runs_of(events: Sequence[Event]) -> list[Run]:
    """All runs in one Group's log, in the order they started."""
    runs: list[Run] = []
    open_: dict[ItemId, int] = {}
    widths: dict[ItemId, int] = {}
    for event in events:
        item = event.item
        if item is None:
            continue
        if event.kind is EventKind.AUTHORIZED:
            widths[item] = int(event.get("width"))
        elif event.kind is EventKind.STARTED:
            open_[item] = len(runs)
            agent = AgentId(event.by.partition("@")[0])
            runs.append(Run(item, agent, int(event.get("number")), widths.get(item, 1), event.at_ms))
        elif event.kind is EventKind.PROGRESS_SAVED and item in open_:
            runs[open_[item]] = replace(runs[open_[item]], saves=runs[open_[item]].saves + 1)
        elif event.kind in ENDS and item in open_:
            at_ms = int(event.get("at_ms")) if event.kind is EventKind.LAPSED else event.at_ms
            place = open_.pop(item)
            runs[place] = replace(runs[place], ended_ms=at_ms, ended_by=event.kind)
    return runs


def states_of(events: Sequence[Event]) -> dict[ItemId, ItemState]:
    """Each item's state after these Events; ValueError where the log breaks the table of transitions."""
    states: dict[ItemId, ItemState] = {}
    for event in events:
        if event.item is not None:
            states[event.item] = next_state(states.get(event.item), event.kind)
    return states


def shards_of(events: Sequence[Event]) -> frozenset[ItemId]:
    """The items that wait for no other: all but the merge."""
    return frozenset(
        event.item
        for event in events
        if event.kind is EventKind.AUTHORIZED and event.item is not None and event.get("dependencies") == "0"
    )


def shares_of(a: Sequence[Event], b: Sequence[Event]) -> Shares | None:
    """Slot-milliseconds from B's first offer to the first moment when either has no shard waiting to start.

    After that moment the other Mission takes the slots that this one cannot fill, as it should, so it says nothing
    about weights. None where that moment comes at once.
    """
    from_ms = next((event.at_ms for event in b if event.kind is EventKind.OFFERED), None)
    if from_ms is None:
        return None
    moments = [_has_none_waiting_ms(events, since_ms=from_ms) for events in (a, b)]
    last_ms = max(event.at_ms for event in (*a, *b))
    to_ms = min(last_ms if moment is None else moment for moment in moments)
    if to_ms <= from_ms:
        return None
    a_ms, b_ms = (sum(_overlap_ms(run, from_ms, to_ms) for run in runs_of(events)) for events in (a, b))
    return Shares(from_ms, to_ms, a_ms, b_ms)


def _has_none_waiting_ms(events: Sequence[Event], *, since_ms: int) -> int | None:
    """The first moment at or after `since_ms` when no shard of this log waits to start; None where there is none yet."""
    shards = shards_of(events)
    states: dict[ItemId, ItemState] = {}
    waiting: set[ItemId] = set()
    at_ms = since_ms
    for event in events:
        if event.at_ms > at_ms and not waiting:
            return at_ms
        if event.item is not None and event.item in shards:
            state = states[event.item] = next_state(states.get(event.item), event.kind)
            (waiting.add if state in WAITING else waiting.discard)(event.item)
        at_ms = max(since_ms, event.at_ms)
    return None if waiting else at_ms


def _overlap_ms(run: Run, from_ms: int, to_ms: int) -> int:
    ended_ms = to_ms if run.ended_ms is None else min(run.ended_ms, to_ms)
    return run.width * max(0, ended_ms - max(run.started_ms, from_ms))


def resumptions_s(events: Sequence[Event], end: WorkerEnd) -> list[float]:
    """For each run that the kill cut: seconds from the kill until its item started on another Worker."""
    if end.killed_ms is None:
        return []
    runs = runs_of(events)
    seconds: list[float] = []
    for cut in runs:
        if cut.agent != end.agent or not cut.is_open_at(end.killed_ms):
            continue
        later = [run for run in runs if run.item == cut.item and run.number > cut.number and run.agent != end.agent]
        if later:
            seconds.append((min(run.started_ms for run in later) - end.killed_ms) / 1000)
    return seconds


def offered_again_s(events: Sequence[Event], end: WorkerEnd) -> list[float]:
    """For each run that the kill cut: seconds from the kill until its lease was found lapsed and its item offered again."""
    if end.killed_ms is None:
        return []
    return [
        (event.at_ms - end.killed_ms) / 1000
        for event in events
        if event.kind is EventKind.LAPSED and event.get("agent") == end.agent and event.at_ms >= end.killed_ms
    ]


def redone(lines: Iterable[Processed]) -> int:
    """How often a file was processed again for the same item: it lay behind the last saved progress of a cut run."""
    attempts: dict[tuple[str, str, str], set[int]] = {}
    for line in lines:
        attempts.setdefault((line.mission, line.item, line.file), set()).add(line.attempt)
    return sum(len(numbers) - 1 for numbers in attempts.values())


def duplicates(events: Iterable[Event]) -> int:
    """How many results were accepted beyond the first of each item."""
    accepted = Counter((event.group, event.item) for event in events if event.kind is EventKind.RESULT_ACCEPTED)
    return sum(count - 1 for count in accepted.values())


def read_lines(raw: bytes, *, name: str) -> list[Processed]:
    """The lines of one Worker's evidence; a torn last one, which a kill may leave, is passed over."""
    *whole, _torn = raw.split(b"\n")
    lines: list[Processed] = []
    for number, line in enumerate(whole, start=1):
        try:
            fields = json.loads(line)
            lines.append(Processed(**{field: fields[field] for field in Processed.__slots__}))
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"evidence {name} line {number}: {error}") from error
    return lines


def running(events: Sequence[Event]) -> frozenset[AgentId]:
    """The Workers that have an item of this log started and not ended."""
    return frozenset(run.agent for run in runs_of(events) if run.ended_ms is None)


def holders(logs: Iterable[Sequence[Event]], alive: frozenset[AgentId]) -> list[AgentId]:
    """The living Workers in the middle of a shard (started, progress saved, not ended), most such shards first."""
    middle = Counter(
        run.agent
        for events in logs
        for run in runs_of(events)
        if run.saves and run.ended_ms is None and run.agent in alive
    )
    return sorted(middle, key=lambda agent: (-middle[agent], agent))


def figures(
    a: Sequence[Event], b: Sequence[Event], lines: Sequence[Processed], ends: Sequence[WorkerEnd]
) -> dict[str, object]:
    """Every figure of the demo but the comparison of the reports."""
    both = [*a, *b]
    states = [state for events in (a, b) for state in states_of(events).values()]
    killed = [end for end in ends if end.killed_ms is not None and end.status == -signal.SIGKILL]
    resumed = [seconds for end in killed for events in (a, b) for seconds in resumptions_s(events, end)]
    again = [seconds for end in killed for events in (a, b) for seconds in offered_again_s(events, end)]
    shares = shares_of(a, b)
    times = [event.at_ms for event in both]
    return {
        "missions": sum(1 for events in (a, b) if events),
        "items": len(states),
        "verified": sum(state is ItemState.VERIFIED for state in states),
        "unfinished": sum(state not in TERMINAL_ITEMS for state in states),
        "duplicates": duplicates(both),
        "events": len(both),
        "files": len({line.file for line in lines}),
        "saves": sum(event.kind is EventKind.PROGRESS_SAVED for event in both),
        "kills": len(killed),
        "lapsed_leases": sum(event.kind is EventKind.LAPSED for event in both),
        "offered_again_after_s": max(again, default=None),
        "resumed_items": len(resumed),
        "resumed_after_s": max(resumed, default=None),
        "resumed_after_s_least": min(resumed, default=None),
        "redone_files": redone(lines),
        "share_a": _rounded(shares.share_a if shares else None),
        "share_b": _rounded(shares.share_b if shares else None),
        "share_window_s": (shares.to_ms - shares.from_ms) / 1000 if shares else 0.0,
        "seconds": (max(times) - min(times)) / 1000 if times else 0.0,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def progress(logs: Mapping[str, Sequence[Event]], alive: frozenset[AgentId]) -> tuple[Progress, ...]:
    """How far each Mission is; what runs, at living Workers only."""
    found: list[Progress] = []
    for name, events in logs.items():
        if events:
            states = Counter(states_of(events).values())
            kinds = {event.kind for event in events if event.item is None}
            ended = MissionState.APPROVED if EventKind.MISSION_APPROVED in kinds else MissionState.FAILED
            is_over = not kinds.isdisjoint((EventKind.MISSION_APPROVED, EventKind.MISSION_TERMINATED))
            found.append(
                Progress(
                    mission=name,
                    group=events[0].group,
                    state=ended if is_over else MissionState.ACTIVE,
                    total=states.total(),
                    verified=states[ItemState.VERIFIED],
                    failed=states[ItemState.FAILED],
                    cancelled=states[ItemState.CANCELLED],
                    running=sum(run.ended_ms is None and run.agent in alive for run in runs_of(events)),
                )
            )
    return tuple(found)


def progress_line(logs: Mapping[str, Sequence[Event]], alive: frozenset[AgentId], *, slots_each: int) -> str:
    """How far each Mission is and how many of the living Workers' slots are busy; '' before the first Event."""
    missions = progress(logs, alive)
    parts = [f"{one.mission} {one.verified:>2}/{one.total} verified, {one.running} running" for one in missions]
    busy = sum(one.running for one in missions)
    return f"{' | '.join(parts)} | {busy} of {len(alive) * slots_each} slots busy" if parts else ""
