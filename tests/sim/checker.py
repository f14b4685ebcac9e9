"""The independent checker: logs, the store's keys, the handlers' journal and what clients were told must agree.

`look` may be asked at any moment: a script is whole or not there. `check` is for the end, when all is quiet, and
`check_stopped` for after the fleet has stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim import dump
from sim.dump import Fields, GroupDump, PartitionDump
from sim.history import History, Item, read
from sim.replays import replays
from sim.scenario import GOOD_ENDINGS
from treadle.shared import codec
from treadle.shared.errors import Corrupt
from treadle.shared.model import STARTS_EPOCH_MS, EventKind, GroupId, ItemState
from treadle.worker.core.queues import Queues

if TYPE_CHECKING:
    from sim.scenario import Errand
    from sim.world import Runtime, World

S = ItemState
K = EventKind
NOTHING = codec.digest(codec.pack({}, field="state", limit=16))
"""The state of a handler that saved nothing, which is what one saves that is blocked before its first safe point."""


def look(world: World) -> list[str]:
    """What is wrong with the store and the Workers at this very moment."""
    faults: list[str] = []
    for part, histories in _read(world):
        faults += faults_of_store(part, histories)
        faults += _replays(world, part)
    faults += _projections(world)
    return faults


def check(world: World) -> int:
    """Everything, once all is quiet; faults are told to the world. The number of Events looked at."""
    events = 0
    for part, histories in _read(world):
        events += sum(len(group.events) for group in part.groups.values())
        for fault in (
            *faults_of_store(part, histories),
            *_replays(world, part),
            *_ended(world, part, histories),
            *_journal(world, histories),
            *_sessions(world, part),
            *_pauses(world, part),
        ):
            world.wrong(f"partition {part.number}: {fault}")
    for fault in (*_projections(world, quiet=True), *_told(world), *_slots(world)):
        world.wrong(fault)
    return events


def check_stopped(world: World) -> None:
    """After the whole fleet stopped: nothing is held, no session and nothing of one is left."""
    for part, _ in _read(world):
        for name in ("sessions", "live", "caps", "lanes", "wakes", "held", "members", "due"):
            left = getattr(part, name)
            if name == "due":  # what has ended is kept for a time, and the last session of each Agent known for one
                left = {member: at for member, at in left.items() if member[0] not in "yz"}
            if left:
                world.wrong(f"partition {part.number}: after all stopped, @{name} has {left}")


def _errands(world: World) -> dict[str, Errand]:
    return {errand.mission: errand for errand in world.errands}


def _read(world: World) -> Iterator[tuple[PartitionDump, dict[str, History]]]:
    from sim.world import PREFIX

    errands = _errands(world)
    for number in range(world.partitions):
        part = dump.read_partition(world.network.redis, PREFIX, number, world.partitions, world.kept)
        histories = {}
        for name, group in part.groups.items():
            jobs = errands[name].jobs
            history = History(
                name,
                {job.item: job.after for job in jobs},
                {job.item: job.start_by_s for job in jobs},
                world.renewed,
                quarantines=tuple(world.quarantines.get(part.base + "@meta", ())),
            )
            histories[name] = read(history, group.events)
        yield part, histories


# --- the store against the logs: at any moment ---


def _put_off(part: PartitionDump, history: History, item: str, member: str, at_ms: int) -> int:
    """When this is due, or to when a tick put it off in a quarantine: its end, or the start-by that is given again."""
    found = part.due.get(member, at_ms)
    put_off = any(since <= found <= until and at_ms <= until for since, until in history.quarantines)
    return found if put_off or found in history.start_by_ms(item, at_ms) else at_ms


def faults_of_store(part: PartitionDump, histories: dict[str, History]) -> Iterator[str]:
    due: dict[str, int] = {}
    held: dict[str, set[str]] = {}
    take: dict[str, set[str]] = {}
    for name, history in histories.items():
        group = part.groups[name]
        yield from history.faults
        yield from _group(group, history)
        for id_, item in history.items.items():
            fields = group.items[id_]
            yield from _item(group, id_, fields, item.state, history)
            member = f"{name} {id_}"
            if item.state is S.OFFERED:
                take.setdefault(fields["cap"], set()).add(f"{name} {fields['key']}")
            elif item.state is S.QUEUED:
                due[f"s {member}"] = _put_off(part, history, id_, f"s {member}", int(fields["sby"]))
            elif item.state is S.ACTIVE:
                due[f"l {member}"] = _put_off(part, history, id_, f"l {member}", int(fields["lex"]))
            elif item.state is S.BLOCKED and item.owner:
                due[f"b {member}"] = _put_off(part, history, id_, f"b {member}", int(fields["bex"]))
            elif "nb" in fields and group.state == "active":
                due[f"n {member}"] = int(fields["nb"])
            if item.state in (S.QUEUED, S.ACTIVE) or (item.state is S.BLOCKED and item.owner):
                held.setdefault(item.owner, set()).add(member)
    yield from _differ("@take", part.take, take)
    yield from _differ("@held", part.held, held)
    directory = {
        cap: names
        for cap, keys in take.items()
        if (names := {one.split(" ")[0] for one in keys if part.groups[one.split(" ")[0]].state == "active"})
    }
    yield from _differ("@dir", part.directory, directory)
    for cap, names in part.tombs.items():
        if both := names & part.directory.get(cap, set()):
            yield f"@tomb and @dir of {cap} both have {both}"
    timers = {member: score for member, score in part.due.items() if member[0] in "lsnb"}
    # What waits for its time in a Mission that was cancelled is withdrawn by a tick or by the pump, whichever comes first.
    timers = {
        member: at
        for member, at in timers.items()
        if member[0] != "n" or part.groups[member.split(" ")[1]].state == "active"
    }
    yield from _differ("@due", timers, due)
    yield from _registry(part)
    yield from _usage(part, histories)
    if part.halted:
        yield f"halted: {part.halted}"
    for name, tokens in part.wakes.items():
        if len(tokens) > 1:
            yield f"wake list {name} has {len(tokens)} tokens"


def _differ(name: str, found: object, wanted: object) -> Iterator[str]:
    if found == wanted:
        return
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                yield f"{name} {key}: {found.get(key)}, by the logs {wanted.get(key)}"


def _group(group: GroupDump, history: History) -> Iterator[str]:
    name = group.group
    if group.seq != len(group.events):
        yield f"{name}: stored sequence {group.seq}, the log has {len(group.events)} Events"
    if group.items.keys() != history.items.keys():
        yield f"{name}: items {sorted(group.items)}, by the log {sorted(history.items)}"
    states = [item.state for item in history.items.values()]
    pumps = sum("rel" in fields for fields in group.items.values())
    retrying = sum(item.state is S.FAILED and item.retry_ms > 0 for item in history.items.values())
    waiting = sum("nb" in fields or "hold" in fields for fields in group.items.values())
    counts = {
        "total": len(states),
        "verified": states.count(S.VERIFIED),
        "failed": states.count(S.FAILED) - retrying,
        "cancelled": states.count(S.CANCELLED),
        "live": sum(state in (S.OFFERED, S.QUEUED, S.ACTIVE, S.BLOCKED) for state in states) + pumps + waiting,
    }
    for field, wanted in counts.items():
        if group.mission.get(field) != str(wanted):
            yield f"{name}: {field} is {group.mission.get(field)}, by the log {wanted}"
    if group.mission.get("state") != history.mission:
        yield f"{name}: the Mission is {group.mission.get('state')}, by the log {history.mission}"
    ended = history.mission != "active"
    if group.state != {"active": "active", "cancelled": "cancelled"}.get(str(history.mission), "ended"):
        yield f"{name}: its record says {group.state}, by the log it is {history.mission}"
    if not ended and counts["live"] == 0:
        yield f"{name}: nothing of it can move, and it goes on"


def _item(
    group: GroupDump, id_: str, fields: dict[str, str], state: ItemState | None, history: History
) -> Iterator[str]:
    name, item = group.group, history.items[id_]
    wanted = {
        "st": str(state),
        "oe": str(item.epoch) if item.epoch else None,
        "ln": str(item.number) if item.number else None,
        "ckn": str(item.checkpoint) if item.checkpoint else None,
        "ckd": item.saved or None,
    }
    if state in (S.QUEUED, S.ACTIVE):
        wanted |= {"own": item.owner, "ses": str(item.session)}
    if state is S.ACTIVE and item.lease is not None:
        wanted |= {"lid": item.lease.lease, "lex": str(history.expiry_ms(item.lease, 1 << 62))}
    if state is S.OFFERED:
        wanted |= {"own": None}
    if state is S.BLOCKED:
        wanted |= {"own": item.owner or None, "bex": str(item.blocked_until_ms) if item.owner else None}
    for field, value in wanted.items():
        if fields.get(field) != value:
            yield f"{name}/{id_}: {field} is {fields.get(field)}, by the log {value}"
    left = sum(_is_awaited(group.items[other], history.items[other], id_) for other in fields.get("after", "").split())
    if int(fields.get("dep", "0")) != left:
        yield f"{name}/{id_}: waits for {fields.get('dep')}, by the log for {left}"


def _is_awaited(fields: dict[str, str], item: Item, dependent: str) -> bool:
    """Whether a dependent still waits: what it waits for is not verified, or its pump has not come to it yet."""
    pending = fields["out"].split()[int(fields.get("rel", "0")) :] if "rel" in fields else []
    return item.state is not S.VERIFIED or dependent in pending


def _registry(part: PartitionDump) -> Iterator[str]:
    """Sessions, their sets, lanes, due entries and members."""
    counts: dict[str, int] = {}
    offered: dict[str, set[str]] = {}
    silent = {}
    for agent, record in part.sessions.items():
        epoch, set_, ttl, _, capabilities = record.split(" ")
        counts[set_] = counts.get(set_, 0) + 1
        for capability in capabilities.split(","):
            name, tilde, version = capability.partition("~")
            offered.setdefault(name + tilde + version.partition(".")[0], set()).add(set_)  # found by its major version
        silent[f"x {agent} {epoch}"] = int(ttl)
    yield from _differ("@live", part.live, {name: str(count) for name, count in counts.items()})
    yield from _differ("@caps", {cap: set(sets.split()) for cap, sets in part.caps.items()}, offered)
    timers = {member for member in part.due if member[0] == "x"}
    if timers != silent.keys():
        yield f"@due has sessions {sorted(timers)}, registered are {sorted(silent)}"
    for lane in part.lanes:
        if lane.rpartition(" ")[0] not in part.sessions:
            yield f"@lanes keeps {lane!r}, whose session is over"
    for name, tokens in part.wakes.items():
        if name not in part.live:
            yield f"wake list {name} has {tokens}, no live session listens to it"
    yield from _memberships(part)


def _memberships(part: PartitionDump) -> Iterator[str]:
    """Members have a session and a Cursor within the log; an epoch is minted once, and forgotten once it is of no use."""
    for agent, records in part.members.items():
        if agent not in part.sessions:
            yield f"{agent} is a member of {sorted(records)} without a session (S27)"
        for name, record in records.items():
            epoch, previous, cursor = map(int, record.split(" "))
            last = part.groups[name].seq
            if not (0 < epoch <= previous <= last and cursor <= last):
                yield f"member {agent} of {name}: {record}, the log ends at {last} (S9)"
    for agent, record in part.minted.items():
        epoch = int(record.split(" ")[0])
        if epoch > int(part.meta["mint"]):
            yield f"{agent} has Session Epoch {epoch}, minted so far are {part.meta['mint']} (S8)"
        lives = part.sessions.get(agent, "").startswith(f"{epoch} ")
        if lives is (f"y {agent} {epoch}" in part.due):
            yield f"{agent}: Session Epoch {epoch} is {'forgotten in a while' if lives else 'kept for ever'} (S27)"


def _replays(world: World, part: PartitionDump) -> Iterator[str]:
    for name, group in part.groups.items():
        yield from replays(world.network.redis, part.base, GroupId(name), group.events, seed=world.seed)


# --- Workers against the logs: at any moment ---


def _projections(world: World, *, quiet: bool = False) -> Iterator[str]:
    for runtime in world.alive():
        if runtime.shifts and runtime.process.is_running and hasattr(runtime.shifts[-1], "_tenure"):
            yield from _projection(world, runtime, quiet)


def _projection(world: World, runtime: Runtime, quiet: bool) -> Iterator[str]:
    shift = runtime.shifts[-1]
    tenure, who = shift._tenure, runtime.process.name
    if tenure.halted:
        yield f"{who} halted {sorted(tenure.halted)}"
    replayed = Queues(tenure.session.agent, tenure.session.epoch)
    for group, cursor in sorted(tenure.inbox.cursors().items()):
        base = shift._store.base(shift._store.partition_of(group))
        events = dump.read_log(world.network.redis, base, group, world.kept)
        if cursor > len(events):
            yield f"{who}: Cursor of {group} is {cursor}, its log ends at {len(events)} (S9)"
        try:
            for event in events[:cursor]:
                replayed.fold(event)
        except Corrupt as error:
            yield f"{who}: a replay of {group} breaks: {error}"
            return
        if quiet:
            yield from _caught_up(world, runtime, group, cursor)
    if replayed.canonical() != tenure.queues.canonical():
        yield f"{who}: queues {tenure.queues.canonical()}, a replay gives {replayed.canonical()} (S13)"
    used = sum(run.grant.width for run in tenure.runs.values())
    if used > runtime.slots:
        yield f"{who}: {used} of {runtime.slots} slots are used (S16)"
    ready = tenure.taking.ready
    if quiet and ready.takeable:
        yield f"{who}: believes that {ready.takeable} items of {sorted(ready.standings())} may be taken"
    if quiet and not tenure.is_done:
        yield f"{who}: not at rest: runs {list(tenure.runs)}, owned {len(tenure.owned)}, lanes idle {tenure.lanes.is_idle}"


def _caught_up(world: World, runtime: Runtime, group: GroupId, cursor: int) -> Iterator[str]:
    """Whatever concerned this Agent has come to its Cursor, unless the doorbell itself was lost."""
    shift = runtime.shifts[-1]
    base = shift._store.base(shift._store.partition_of(group))
    record = world.network.redis.hget(f"{base}@joined:{runtime.agent}", group)
    inbox = f"{base}@inbox:{runtime.agent}"
    stolen = any(name == inbox and who is not runtime.process for name, who in world.network.heard_bells)
    if record is None or stolen or inbox in world.network.lost_bells:
        return  # a doorbell that an older runtime of this Agent took, or nobody, costs time and not truth
    previous = int(record.split()[1])
    if cursor < previous:
        yield f"{runtime.process.name}: Cursor of {group} is {cursor}, {previous} concerned it"


# --- the end ---


def _ended(world: World, part: PartitionDump, histories: dict[str, History]) -> Iterator[str]:
    errands = _errands(world)
    for name, history in histories.items():
        results, commands = errands[name].results(), world.commanded.get(name, set())
        whole = all(item.state is S.VERIFIED for item in history.items.values())
        if history.mission == "cancelled":
            if not any(verb == "cancel" for verb, _ in commands):
                yield f"{name}: cancelled by nobody"
        elif history.mission != ("approved" if whole else "failed"):
            yield f"{name}: ended {history.mission}"
        for job in errands[name].jobs:
            item = history.items[job.item]
            right = _right_ends(errands[name], history, job.item, commands)
            if item.state not in right:
                yield f"{name}/{job.item}: {item.state}, should be {' or '.join(right)}"
            elif item.state is S.FAILED and ("fail", job.item) not in commands and job.ending != "flaky":
                evidence = codec.unpack(item.reason, what="evidence")
                if not isinstance(evidence, dict) or (evidence["type"], evidence["text"]) != job.reason:
                    yield f"{name}/{job.item}: failed for {evidence}, its handler said {job.reason}"
            elif (
                item.state is S.VERIFIED
                and (found := codec.unpack(part.groups[name].results[job.item], what="result")) != results[job.item]
            ):
                yield f"{name}/{job.item}: its result is {found}"
    missing = {
        errand.mission for errand in world.errands if _partition(world, errand.mission) == part.number
    } - histories.keys()
    if missing:
        yield f"never created: {sorted(missing)}"
    pending = [member for member in part.due if member[0] not in "xyz"]
    if pending:
        yield f"@due still has {pending}"


def _right_ends(errand: Errand, history: History, id_: str, commands: set[tuple[str, str]]) -> list[ItemState]:
    """How an item may end: by what its handler does, by what became of those it waits for, by what people commanded."""
    job = next(job for job in errand.jobs if job.item == id_)
    right = {S.CANCELLED}
    if all(history.items[other].state is S.VERIFIED for other in job.after):
        right = {S.VERIFIED} if job.ending in GOOD_ENDINGS else {S.FAILED}
    if history.mission == "cancelled" or ("cancel_item", id_) in commands:
        # One that waits for another attempt has failed, and stays so.
        right |= {S.CANCELLED} if job.ending in ("ok", "block") else {S.CANCELLED, S.FAILED}
    if ("fail", id_) in commands:
        right.add(S.FAILED)
    return sorted(right)


def _partition(world: World, mission: str) -> int:
    from treadle.shared.store import keys

    return keys.partition_of(mission, world.partitions)


def _usage(part: PartitionDump, histories: dict[str, History]) -> Iterator[str]:
    """The counters are what the logs say: every run's time as long as its lease held, and what runs now."""
    wanted: dict[str, list[int]] = {}
    typical: dict[str, int] = {}
    for name, history in histories.items():
        group = part.groups[name]
        _, _, account, class_, *_ = group.record
        nodes = (f"g:{name}", f"a:{class_}:{account}", f"c:{class_}")
        for lease in history.leases:
            fields = group.items[lease.item]
            width = int(fields.get("w", "1"))
            if lease.end is None:
                change = [0, width, width * (lease.start_ms - STARTS_EPOCH_MS), width * int(fields["est"])]
            else:
                change = [width * max(0, lease.end_ms - lease.start_ms), 0, 0, 0]
            for node in nodes:
                wanted[node] = [before + more for before, more in zip(wanted.get(node, [0] * 4), change, strict=True)]
        for lease in history.ends:
            run_ms = max(0, lease.end_ms - lease.start_ms)
            before = typical.get(nodes[0], 0)
            typical[nodes[0]] = max(1, (4 * before + run_ms + 2) // 5 if before else run_ms)
    for node, packed in part.usage.items():
        if list(packed[:4]) != wanted.get(node, [0] * 4):
            yield f"usage of {node}: {packed[:4]}, by the logs {wanted.get(node)}"
        if node in typical and packed[4] != typical[node]:
            yield f"usage of {node}: a typical run is {packed[4]} ms, by the log {typical[node]}"
    if missing := wanted.keys() - part.usage.keys():
        yield f"no usage of {sorted(missing)}"
    unfinished: dict[str, int] = {}
    for group in part.groups.values():
        left = sum(
            fields["st"] not in ("verified", "cancelled") and not _failed(fields) for fields in group.items.values()
        )
        if left:
            unfinished[f"q:{group.record[2]}"] = unfinished.get(f"q:{group.record[2]}", 0) + left
    counted = {name: int(number) for name, number in part.tally.items() if name.startswith("q:")}
    yield from _differ("@tally", counted, unfinished)


def _failed(fields: Fields) -> bool:
    """Whether an item has failed for good."""
    return fields["st"] == "failed" and "nb" not in fields


def _journal(world: World, histories: dict[str, History]) -> Iterator[str]:
    """What handlers did, against the leases they did it under."""
    leases = {(name, lease.lease): lease for name, history in histories.items() for lease in history.leases}
    runtimes = {runtime.process.name: runtime for runtime in world.runtimes}
    begun: set[tuple[str, str]] = set()
    results: dict[tuple[str, str], str] = {}
    newest: dict[tuple[str, str], tuple[int, int, int, str]] = {}
    for line in world.journal:
        if line.mission not in histories:
            continue
        key = (line.mission, line.lease)
        lease = leases.get(key)
        what = f"{line.mission}/{line.item} {line.what} at {line.at_ms} by {line.runtime}"
        if lease is None:
            yield f"{what}: lease {line.lease} stands in no log (S7)"
            continue
        if line.what == "begin":
            if key in begun:
                yield f"{what}: begun twice under one lease (S6)"
            begun.add(key)
            # One whose lease was revoked just now may read what the next one saved: it will be refused.
            if line.detail != (lease.saved or NOTHING) and not 0 < lease.end_ms <= line.at_ms:
                yield f"{what}: began with state {line.detail}, saved last was {lease.saved or NOTHING}"
        if line.what == "result":
            results[key] = line.detail
        if line.what not in ("effect", "result"):
            continue
        place = (line.mission, line.item)
        # The place of the effect refuses a lower token; that it was tried is only right where its lease was over.
        if line.token < newest.get(place, line.token) and not 0 < lease.end_ms <= line.at_ms:
            yield f"{what}: token {line.token} after {newest[place]}, though its lease is live (S3)"
        newest[place] = max(line.token, newest.get(place, line.token))
        expiry_ms = histories[line.mission].expiry_ms(lease, line.at_ms)
        late_ms = line.at_ms - expiry_ms
        allowed_ms = world.ttl_s * 1000 / 4
        if late_ms > allowed_ms:
            runtime = runtimes[line.runtime]
            from_s = world.loop.time() - (world.now_ms - expiry_ms) / 1000 - world.ttl_s
            if not runtime.was_stopped(from_s, from_s + world.ttl_s * 3 + late_ms / 1000):
                yield f"{what}: works {late_ms} ms after its lease was over (S5)"
    for key, lease in leases.items():
        if lease.end is K.SUBMITTED and results.get(key) != lease.digest:
            yield f"{key[0]}/{lease.item}: submitted {lease.digest}, its handler returned {results.get(key)} (S6)"


def _sessions(world: World, part: PartitionDump) -> Iterator[str]:
    """After a session is installed in a partition, nothing of an older one of that Agent is written there (S8)."""
    for group in part.groups.values():
        for event in group.events:
            agent, at, session = event.by.rpartition("@")
            if not at or event.kind is K.RELEASED:
                continue
            for when, epoch in world.installed.get((f"{part.base}@meta", agent), []):
                if epoch > int(session) and event.at_ms > when:
                    yield (
                        f"{group.group} sequence {event.seq}: {event.kind} by {event.by} at {event.at_ms}, session "
                        f"{epoch} was installed at {when} (S8)"
                    )


def _pauses(world: World, part: PartitionDump) -> Iterator[str]:
    """While something is paused, nothing of it is accepted or started, whoever asks and however late the answer comes."""
    for name, group in part.groups.items():
        account = group.record[2]
        for event in group.events:
            if event.kind not in (K.ACCEPTED, K.STARTED):
                continue
            capability = group.items[str(event.item)]["cap"]
            for flag in ("all", f"a:{account}", f"c:{capability}", f"g:{name}"):
                for from_ms, to_ms in world.paused.get((f"{part.base}@meta", flag), []):
                    if from_ms < event.at_ms < to_ms:
                        yield f"{name} sequence {event.seq}: {event.kind} while {flag} is paused, {from_ms}..{to_ms}"


def _told(world: World) -> Iterator[str]:
    """What clients were told is what the store has."""
    for errand in world.errands:
        told = world.told[errand.mission]
        states = errand.states()
        if told.events != list(range(1, len(told.events) + 1)):
            yield f"{errand.mission}: followed the Events {told.events}"
        if errand.mission in world.commanded:
            continue
        if len({receipt.created_ms for receipt in told.receipts}) > 1:
            yield f"{errand.mission}: created at {sorted({receipt.created_ms for receipt in told.receipts})}"
        failures = tuple((job.item, *job.reason) for job in errand.jobs if states[job.item] is S.FAILED)
        if failures:
            if told.failures is None or sorted(told.failures) != sorted(failures):
                yield f"{errand.mission}: told of {told.failures}, failed are {failures}"
        elif told.results != errand.results():
            yield f"{errand.mission}: told {told.results}"


def _slots(world: World) -> Iterator[str]:
    """No Worker runs more than it has slots (S16), by its handlers' own journal."""
    busy: dict[str, dict[str, int]] = {}
    for line in world.journal:
        runs = busy.setdefault(line.runtime, {})
        if line.what == "begin":
            runs[line.lease] = line.width
        elif line.what == "end":
            runs.pop(line.lease, None)
        slots = next(runtime.slots for runtime in world.runtimes if runtime.process.name == line.runtime)
        if sum(runs.values()) > slots:
            yield f"{line.runtime}: at {line.at_ms} runs {runs} in {slots} slots (S16)"
