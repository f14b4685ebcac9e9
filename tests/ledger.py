"""An independent reading of Group logs: what must hold of every history, whatever crashed while it was made.

It shares no fold with the wings: from the logs, the store's items and what the handlers wrote down, each check gives a
list of faults, and an empty list is a kept promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet import Desk, Fleet, Line
from fleet_handlers import link, seed_of
from treadle.coordinator import Mission, WorkSpec
from treadle.shared import codec
from treadle.shared.answers import ItemView, MissionView
from treadle.shared.model import Event, EventKind, ItemState, MissionState
from treadle.shared.names import name_of

K = EventKind
RESULTS_WITHIN_S = 30.0
ENDS = frozenset({K.SUBMITTED, K.FAILED, K.CHECKPOINTED, K.RELEASED, K.LAPSED, K.REQUEUED})
"""What ends a run that goes on; without one, each of them is about an item that was only accepted."""
OF_THE_HOLDER = frozenset({K.STARTED, K.PROGRESSED, K.PROGRESS_SAVED, K.CHECKPOINTED, K.SUBMITTED, K.FAILED})


@dataclass(slots=True)
class Run:
    """One Execution Lease, from its grant to its end."""

    item: str
    by: str
    epoch: int
    lease: str
    number: int
    seq: int
    started_ms: int
    granted_until_ms: int
    ended_ms: int | None = None
    ended_by: EventKind | None = None

    @property
    def agent(self) -> str:
        return self.by.rpartition("@")[0]


@dataclass(frozen=True, slots=True)
class History:
    """One Mission as everything that bears witness has it."""

    work: Sequence[WorkSpec]
    events: Sequence[Event]
    view: MissionView
    items: Sequence[ItemView]
    lines: Sequence[Line]
    """Of this Mission's items."""
    results: Mapping[str, Any] = field(default_factory=dict)


async def history_of(desk: Desk, fleet: Fleet, mission: Mission, work: Sequence[WorkSpec]) -> History:
    """Everything about a Mission, once it has ended."""
    results = await mission.results(timeout=RESULTS_WITHIN_S)
    return History(
        work=work,
        events=await desk.log(mission.id),
        view=await mission.view(),
        items=await desk.store.items(mission.group, bodies=True),
        lines=[line for line in fleet.lines() if line.mission == mission.id],
        results=results,
    )


def item_of(event: Event) -> str:
    return name_of(event.item) if event.item else ""


def runs_of(events: Iterable[Event]) -> list[Run]:
    """Every run of every item, in the order they began. A lapse ends its run at the expiry, not when it was seen."""
    runs: list[Run] = []
    live: dict[str, Run] = {}
    for event in events:
        item = item_of(event)
        if event.kind is K.STARTED:
            expiry, number = int(event.get("expires_ms")), int(event.get("number"))
            run = Run(
                item, event.by, int(event.get("epoch")), event.get("lease"), number, event.seq, event.at_ms, expiry
            )
            runs.append(run)
            live[item] = run
        elif event.kind in ENDS and (ended := live.pop(item, None)):
            ended.ended_ms = int(event.get("at_ms")) if event.kind is K.LAPSED else event.at_ms
            ended.ended_by = event.kind
    return runs


def sequences_contiguous(history: History) -> list[str]:
    """1, 2, 3, ... without a hole, at times that never go back."""
    faults = []
    at_ms = 0
    for expected, event in enumerate(history.events, start=1):
        if event.seq != expected:
            faults.append(f"sequence {expected} expected, {event.seq} found")
            break
        if event.at_ms < at_ms:
            faults.append(f"sequence {event.seq} is of an earlier time than the one before it")
        at_ms = event.at_ms
    return faults


def nothing_lost(history: History) -> list[str]:
    """Each item that was asked for is verified exactly once and then rests; the Mission is approved, once, last."""
    faults = []
    accepted = Counter(item_of(event) for event in history.events if event.kind is K.RESULT_ACCEPTED)
    submitted = Counter(item_of(event) for event in history.events if event.kind is K.SUBMITTED)
    wanted = {work.id for work in history.work}
    for item in sorted(wanted | accepted.keys()):
        if (accepted[item], submitted[item]) != (1, 1):
            faults.append(f"{item}: submitted {submitted[item]} times, verified {accepted[item]} times")
    over: set[str] = set()
    for event in history.events:
        if event.item and item_of(event) in over:
            faults.append(f"{item_of(event)}: {event.kind} (sequence {event.seq}) after it was verified")
        if event.kind is K.RESULT_ACCEPTED:
            over.add(item_of(event))
    approvals = [event.seq for event in history.events if event.kind is K.MISSION_APPROVED]
    if approvals != [len(history.events)]:
        faults.append(f"the Mission was approved at {approvals}, its log has {len(history.events)} Events")
    if history.view.state is not MissionState.APPROVED:
        faults.append(f"the Mission is {history.view.state}")
    stored = {name_of(view.item): view.state for view in history.items}
    faults += [
        f"{item}: the store has it as {stored.get(item)}"
        for item in sorted(wanted | stored.keys())
        if stored.get(item) is not ItemState.VERIFIED
    ]
    return faults


def never_two_live_leases(history: History) -> list[str]:
    """A run begins only after the one before it has ended; a lease lapses no sooner than it was granted for."""
    faults = []
    live: dict[str, Run] = {}
    for run in runs_of(history.events):
        before = live.get(run.item)
        if before is not None and (before.ended_ms is None or before.ended_ms > run.started_ms):
            faults.append(
                f"{run.item}: lease {run.lease} began at {run.started_ms}, {before.lease} ended at {before.ended_ms}"
            )
        if run.ended_by is K.LAPSED and run.ended_ms is not None and run.ended_ms < run.granted_until_ms:
            faults.append(f"{run.item}: lease {run.lease} lapsed at {run.ended_ms}, before {run.granted_until_ms}")
        live[run.item] = run
    leases = Counter(run.lease for run in runs_of(history.events))
    return faults + [f"lease {lease} was granted {count} times" for lease, count in leases.items() if count > 1]


def epochs_strictly_increase(history: History) -> list[str]:
    """Each acceptance has the next Ownership Epoch, each start the next lease number; all else cites the current ones."""
    faults = []
    epochs: dict[str, int] = {}
    owners: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for event in history.events:
        item = item_of(event)
        if event.kind is K.ACCEPTED:
            epoch = int(event.get("epoch"))
            if epoch != epochs.get(item, 0) + 1:
                faults.append(f"{item}: Ownership Epoch {epoch} after {epochs.get(item, 0)}")
            epochs[item], owners[item] = epoch, event.by
        elif event.kind is K.REQUEUED:
            agent, session = event.get("agent"), int(event.get("session"))
            before, _, older = owners.get(item, "@0").rpartition("@")
            if agent != before or session <= int(older):
                faults.append(f"{item}: requeued for {agent}@{session}, owned by {before}@{older}")
            owners[item] = f"{agent}@{session}"
        elif event.kind in OF_THE_HOLDER and (int(event.get("epoch")), event.by) != (
            epochs.get(item),
            owners.get(item),
        ):
            faults.append(
                f"{item}: {event.kind} (sequence {event.seq}) by {event.by} at epoch {event.get('epoch')}, "
                f"but {owners.get(item)} owns it at {epochs.get(item)}"
            )
        if event.kind is K.STARTED:
            number = int(event.get("number"))
            if number != numbers.get(item, 0) + 1:
                faults.append(f"{item}: lease number {number} after {numbers.get(item, 0)}")
            numbers[item] = number
    return faults


def resumed_from_last_saved(history: History) -> list[str]:
    """Every run begins with the very state that was saved last; Checkpoint numbers go on without a hole."""
    faults = []
    saved: dict[str, tuple[int, str]] = {}
    at_start: dict[tuple[str, int], tuple[int, str]] = {}
    for event in history.events:
        item = item_of(event)
        if event.kind in (K.PROGRESS_SAVED, K.CHECKPOINTED):
            number, digest = int(event.get("number")), event.get("digest")
            last, held = saved.get(item, (0, ""))
            # A yield may name the Checkpoint that was saved before it once more.
            if number != last + 1 and (event.kind, number, digest) != (K.CHECKPOINTED, last, held):
                faults.append(f"{item}: Checkpoint {number} (sequence {event.seq}) after {last}")
            saved[item] = (number, digest)
        elif event.kind is K.STARTED:
            at_start[item, int(event.get("number"))] = saved.get(item, (0, ""))
    begun: Counter[tuple[str, int]] = Counter()
    for line in history.lines:
        if line.what != "begin":
            continue
        begun[line.item, line.attempt] += 1
        if (line.item, line.attempt) not in at_start:
            faults.append(f"{line.item}: attempt {line.attempt} ran on {line.worker}, the log has no start of it")
            continue
        number, digest = at_start[line.item, line.attempt]
        state = line.more["state"]
        seen = codec.digest(codec.pack(state, field="state", limit=codec.CHECKPOINT_MAX)) if state else ""
        if seen != digest:
            faults.append(f"{line.item}: attempt {line.attempt} began with {state}, Checkpoint {number} was saved last")
    faults += [f"{item}: attempt {attempt} ran {n} times" for (item, attempt), n in begun.items() if n > 1]
    return faults


def dependencies_first(history: History) -> list[str]:
    """No item is offered before all that it waits for are verified."""
    faults = []
    verified: set[str] = set()
    waits = {work.id: set(work.after) for work in history.work}
    for event in history.events:
        if event.kind is K.RESULT_ACCEPTED:
            verified.add(item_of(event))
        elif event.kind is K.OFFERED and (missing := waits[item_of(event)] - verified):
            faults.append(f"{item_of(event)}: offered (sequence {event.seq}) before {sorted(missing)}")
    return faults


def runs_apart(history: History) -> list[str]:
    """By the machine's own clock, no run of an item did anything after a later run of it had begun (kills, not stops)."""
    faults = []
    latest: dict[str, Line] = {}
    for line in sorted(history.lines, key=lambda line: line.at_s):
        before = latest.get(line.item)
        if before is not None and line.attempt < before.attempt:
            faults.append(f"{line.item}: attempt {line.attempt} did {line.what} after attempt {before.attempt} began")
        else:
            latest[line.item] = line
    return faults


def results_right(history: History) -> list[str]:
    """Each chain ends with the value that one undisturbed process computes."""
    expected: dict[str, str] = {}
    todo = [work for work in history.work if work.capability == "fleet.chain"]
    while todo:
        ready = [work for work in todo if all(other in expected for other in work.after)]
        assert ready, "the items of a Mission have no cycle"
        for work in ready:
            value = seed_of(work.id, {other: expected[other] for other in work.after})
            for number in range(1, work.inputs["steps"] + 1):
                value = link(value, number)
            expected[work.id] = value
        todo = [work for work in todo if work.id not in expected]
    return [
        f"{item}: {str(history.results.get(item))[:16]} is not {value[:16]}"
        for item, value in expected.items()
        if history.results.get(item) != value
    ]


CHECKS = (
    sequences_contiguous,
    nothing_lost,
    never_two_live_leases,
    epochs_strictly_increase,
    resumed_from_last_saved,
    dependencies_first,
    runs_apart,
    results_right,
)


def faults_of(history: History, *, but: Iterable[object] = ()) -> list[str]:
    """What is wrong with a history, each fault by the name of the check that found it."""
    left_out = set(but)
    return [f"{check.__name__}: {fault}" for check in CHECKS if check not in left_out for fault in check(history)]
