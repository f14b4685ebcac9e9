"""What must hold in a store at any moment: the log told again gives just what the partition's other keys say.

Items, ownership, the indexes of takeable, held and due work, the directory, Mission counts, service counters. After each
test every Group is audited, but for halted ones and stores that a test tampered with.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from store.world import World
from treadle.shared.lifecycle import GROUP_CALLS, MISSION_MOVES, TERMINAL_ITEMS, is_ownerless, next_state
from treadle.shared.model import (
    EVENT_FIELDS,
    EXTENSION_KINDS,
    STARTS_EPOCH_MS,
    Event,
    EventKind,
    GroupId,
    ItemState,
    MissionState,
    Usage,
)
from treadle.shared.projection import Projection
from treadle.shared.store.differences import differences
from treadle.shared.store.replies import parse_usage
from treadle.shared.store.standing import state_of
from treadle.shared.versions import shelf
from treadle.worker.core.fairness import estimate_ms, next_typical

ENDS = {
    EventKind.SUBMITTED,
    EventKind.FAILED,
    EventKind.CHECKPOINTED,
    EventKind.BLOCKED,
    EventKind.RELEASED,
    EventKind.LAPSED,
    EventKind.REQUEUED,
    EventKind.CANCELLED,
}
"""What ends a run, if the item runs."""
OWNED = {ItemState.QUEUED, ItemState.ACTIVE}
LIVE = {ItemState.OFFERED, ItemState.BLOCKED, *OWNED}
DUE = {ItemState.ACTIVE: ("l", "lex"), ItemState.QUEUED: ("s", "sby"), ItemState.BLOCKED: ("b", "bex")}
"""By the state of an item that is owned: the kind of its due entry, and the field with its time."""


@dataclass
class Told:
    """An item as its Events tell it."""

    state: ItemState | None = None
    capability: str = ""
    width: int = 1
    owner: str = ""
    epoch: int = 0
    leases: int = 0
    checkpoint: int = 0
    start_ms: int = 0
    estimate_ms: int = 0
    expires_ms: int = 0
    lease: str = ""
    to: str = "-"
    """Whom it is offered to now, those who declined left out."""


@dataclass
class Story:
    """A Group as its log tells it."""

    items: dict[str, Told] = field(default_factory=dict)
    state: MissionState | None = None
    used_ms: int = 0
    typical_ms: int = 0
    lease_ids: list[str] = field(default_factory=list)


def tell(events: list[Event], renewed: dict[str, int]) -> Story:
    """Follow a log; AssertionError or ValueError where an Event may not stand where it stands."""
    story = Story()
    for event in events:
        if event.kind in GROUP_CALLS:
            continue
        if event.item is None:
            sources, target = MISSION_MOVES[event.kind]
            assert story.state in sources, f"{event.kind} of a Mission that is {story.state}"
            story.state = target
            continue
        if event.kind is EventKind.AUTHORIZED and _is_over(story.items.get(event.item)):
            del story.items[event.item]  # its time was over, and its id is used anew
        item = story.items.setdefault(event.item, Told())
        if event.kind in ENDS and item.state is ItemState.ACTIVE:
            _end_run(story, item, event, renewed)
        assert is_ownerless(event) is (event.kind is EventKind.UNBLOCKED and not item.owner)
        item.state = next_state(item.state, event.kind, ownerless=is_ownerless(event))
        if event.kind in (EventKind.RELEASED, EventKind.LAPSED):
            item.owner = ""
        match event.kind:
            case EventKind.AUTHORIZED:
                item.capability, item.width = event.get("capability"), int(event.get("width"))
            case EventKind.ACCEPTED:
                assert int(event.get("epoch")) == item.epoch + 1, "Ownership Epochs rise by one"
                item.epoch, item.owner = int(event.get("epoch")), event.by.partition("@")[0]
            case EventKind.OFFERED:
                item.to, item.expires_ms = event.get("to"), int(event.get("expires_ms"))
            case EventKind.OFFER_DECLINED:
                mode, _, asked = item.to.partition(":")
                left = [agent for agent in asked.split(",") if agent != event.get("agent")]
                assert left != asked.split(","), "who declines was asked"
                item.to = f"{mode}:{','.join(left)}"
            case EventKind.STARTED:
                _begin_run(story, item, event)
            case EventKind.PROGRESS_SAVED | EventKind.CHECKPOINTED | EventKind.BLOCKED:
                item.checkpoint = int(event.get("number"))
            case _:
                if event.kind in EXTENSION_KINDS and "epoch" in EVENT_FIELDS[event.kind]:
                    assert int(event.get("epoch")) == item.epoch, f"{event} is of another ownership"
    return story


def _is_over(item: Told | None) -> bool:
    return item is not None and item.state in TERMINAL_ITEMS


def _begin_run(story: Story, item: Told, event: Event) -> None:
    assert int(event.get("epoch")) == item.epoch
    assert event.by.partition("@")[0] == item.owner, "only its owner starts an item"
    assert int(event.get("number")) == item.leases + 1, "leases are counted"
    item.leases += 1
    item.lease, item.expires_ms = event.get("lease"), int(event.get("expires_ms"))
    assert item.lease not in story.lease_ids, "a Lease ID is used once"
    story.lease_ids.append(item.lease)
    item.start_ms, item.estimate_ms = event.at_ms, estimate_ms(story.typical_ms)


def _end_run(story: Story, item: Told, event: Event, renewed: dict[str, int]) -> None:
    expires_ms = renewed.get(item.lease, item.expires_ms)
    ended_ms = int(event.get("at_ms")) if event.kind is EventKind.LAPSED else min(event.at_ms, expires_ms)
    if event.kind is EventKind.LAPSED:
        assert ended_ms == expires_ms <= event.at_ms, "a lease lapses at its expiry, not before"
    run_ms = ended_ms - item.start_ms
    assert 0 <= run_ms <= expires_ms - item.start_ms, "a lease is charged up to its expiry, no longer"
    story.used_ms += item.width * run_ms
    story.typical_ms = next_typical(story.typical_ms, run_ms)


async def audit(world: World) -> None:
    """Compare every partition with the logs of its Groups."""
    for partition in range(world.store.partitions):
        await _audit_partition(world, partition)


async def _hash(world: World, partition: int, name: str) -> dict[str, str]:
    raw = await world.raw.hgetall(world.key(name, partition))
    return {key.decode(): value.decode() for key, value in raw.items()}


async def _audit_partition(world: World, partition: int) -> None:
    groups = await _hash(world, partition, "@groups")
    seqs = await _hash(world, partition, "@seqs")
    usage = {node: parse_usage(packed.split()) for node, packed in (await _hash(world, partition, "@usage")).items()}
    halted = {group for group, record in groups.items() if record.startswith("halted")}
    expected: dict[str, dict[str, float]] = defaultdict(dict)
    nodes: dict[str, list[Usage]] = defaultdict(list)
    unfinished: Counter[str] = Counter()
    for name, record in groups.items():
        if name in halted:
            continue
        group = GroupId(name)
        events = await world.log(group)
        assert len(events) == int(seqs[name]) == events[-1].seq, f"the sequence of {name}"
        story = tell(events, world.renewed)
        await _audit_projection(world, group, events)
        counts = await _hash(world, partition, f"{name}:mission")
        _audit_mission(story, counts, record)
        _expect_ends(group, counts, record, expected)
        running = await _audit_items(world, group, story, counts, expected)
        spent = usage[f"g:{name}"]
        assert (spent.used_ms, spent.typical_ms) == (story.used_ms, story.typical_ms), f"the service of {name}"
        assert (spent.running, spent.starts_ms, spent.estimate_ms) == running, f"what runs of {name}"
        _, _, account, class_, *_ = record.split()
        nodes[f"a:{class_}:{account}"].append(spent)
        nodes[f"c:{class_}"].append(spent)
        total, *ended = (int(counts[name]) for name in ("total", "verified", "failed", "cancelled"))
        unfinished[f"q:{account}"] += total - sum(ended)
    if not halted:
        buried = sum([await world.raw.hexists(key, "expired") for key in await _missions(world, partition)])
        for node, parts in nodes.items():
            _audit_sum(usage.get(node, Usage()), parts, node, has_lost_some=buried > 0)
        tally = await _hash(world, partition, "@tally")
        listed = Counter({node: len(parts) for node, parts in nodes.items()})
        for node, parts in nodes.items():
            if node.startswith("a:"):
                listed[f"a:{node.rpartition(':')[2]}"] += len(parts)
        assert tally == {node: str(number) for node, number in (listed + unfinished).items()}, (
            "the Groups of each account and class, and the items of an account that have not ended"
        )
        await _audit_indexes(world, partition, expected)


async def _audit_projection(world: World, group: GroupId, events: list[Event]) -> None:
    """S13: the log folds to just what the store's own keys say, in one go or cut and taken up again from a Snapshot."""
    if events[0].begins_anew:
        return
    whole, cut = Projection(group), Projection(group)
    for event in events:
        whole.fold(event)
        cut.fold(event)
        if event.seq % 7 == 0:
            cut = Projection.unpack(group, cut.pack())
    assert cut.canonical() == whole.canonical(), f"{group}: Snapshot and later Events against the whole log"
    base = world.store.base(world.store.partition_of(group))
    stored = await state_of(world.raw, base, group)
    assert differences(whole, stored) == [], f"{group}: its log against its keys"


async def _missions(world: World, partition: int) -> list[bytes]:
    found: list[bytes] = await world.raw.keys(f"{world.store.base(partition)}*:mission")
    return found


def _audit_sum(total: Usage, parts: list[Usage], node: str, *, has_lost_some: bool) -> None:
    """`has_lost_some`: Groups whose service it counts are buried."""
    if has_lost_some:
        assert total.used_ms >= sum(part.used_ms for part in parts), f"used_ms of {node}"
    for name in ("running", "starts_ms", *(() if has_lost_some else ("used_ms",))):
        assert getattr(total, name) == sum(getattr(part, name) for part in parts), f"{name} of {node}"


def _audit_mission(story: Story, counts: dict[str, str], record: str) -> None:
    loads = counts["state"] == "loading"
    assert counts["state"] == ("loading" if loads else story.state)
    standing = {MissionState.ACTIVE: "loading" if loads else "active", MissionState.CANCELLED: "cancelled"}
    assert record.split()[0] == standing.get(story.state or MissionState.ACTIVE, "ended")
    if story.state is MissionState.APPROVED:
        assert {item.state for item in story.items.values()} <= {ItemState.VERIFIED}


def _expect_ends(group: GroupId, counts: dict[str, str], record: str, expected: dict[str, dict[str, float]]) -> None:
    """What is due of a Mission itself: its items are kept for a time after its end, its load for a time before it."""
    if "ended" in counts:
        expected["@due"][f"z {group} 0"] = -1
    if record.startswith("loading"):
        expected["@due"][f"u {group} 0"] = -1


def _audit_counts(
    present: dict[str, tuple[Told, dict[str, str]]], gone: list[Told], counts: dict[str, str], group: GroupId
) -> None:
    """The counters of a Mission against its items: a failed one counts once it is not tried again, and when it is gone."""
    lost = [told.state for told in gone if told.state is not ItemState.VERIFIED]
    states = [*(told.state for told, item in present.values() if "nb" not in item), *lost]
    for state in (ItemState.VERIFIED, ItemState.FAILED, ItemState.CANCELLED):
        assert int(counts[state.value]) == states.count(state), f"the count of {state} of {group}"
    assert int(counts["total"]) == len(present) + len(lost)
    live = sum(told.state in LIVE or "rel" in item or "nb" in item or "hold" in item for told, item in present.values())
    assert int(counts["live"]) == live, f"what of {group} can still move"


async def _audit_items(
    world: World,
    group: GroupId,
    story: Story,
    counts: dict[str, str],
    expected: dict[str, dict[str, float]],
) -> tuple[int, int, int]:
    """Compare the items; note in `expected` what the indexes must hold; give what runs: widths, starts, estimates."""
    running = starts = estimates = 0
    present: dict[str, tuple[Told, dict[str, str]]] = {}
    gone: list[Told] = []
    grew = counts["form"] in ("open", "sealed")
    for name, told in story.items.items():
        item = await world.item(group, name)
        where = f"{group}/{name}"
        if not item and told.state in TERMINAL_ITEMS and (grew or "ended" in counts):
            gone.append(told)  # its time was over
            continue
        present[name] = told, item
        assert await world.raw.hlen(world.key(f"{group}:ef:{name}")) == int(item.get("ef", "0")), where
        assert item["st"] == told.state, where
        stored = tuple(int(item.get(field_, "0")) for field_ in ("oe", "ln", "ckn"))
        assert stored == (told.epoch, told.leases, told.checkpoint), where
        if told.state is ItemState.BLOCKED:
            assert item.get("own", "") == told.owner, where
            expected["@blocked"][f"{group} {name}"] = int(item["br"].split()[0])
        else:
            assert not {"br", "bex", "nd", "ndx"} & item.keys(), f"nothing of a block is left of {where}"
        if told.state not in (ItemState.FAILED, ItemState.BLOCKED):
            assert ("own" in item) is (told.state in (*OWNED, ItemState.VERIFIED)), where
        if told.state is ItemState.OFFERED:
            await _audit_offer(world, group, name, told, item, expected, is_listed=counts["state"] == "active")
        if "nb" in item and ("dep" not in item or item["dep"] == "0"):
            expected["@due"][f"n {group} {name}"] = int(item["nb"])
        if "hold" in item:
            expected["@parked"][f"{group} {name}"] = -1
        if grew and told.state in TERMINAL_ITEMS and "nb" not in item:
            expected["@due"][f"e {group} {name}"] = -1
        if told.state in DUE and told.owner:
            assert item["own"] == told.owner, where
            expected[f"@held:{told.owner}"][f"{group} {name}"] = 0
            kind, at = DUE[told.state]
            expected["@due"][f"{kind} {group} {name}"] = int(item[at])
        assert "ya" not in item or told.state is ItemState.ACTIVE, f"{where} is asked for a slot it does not fill"
        if item.get("ya", "0") != "0":
            expected["@due"][f"v {group} {name}"] = int(item["ya"])
        if "rel" in item:
            expected["@due"][f"r {group} {name}"] = -1
        if told.state is ItemState.ACTIVE:
            assert item["lid"] == told.lease, where
            running += told.width
            starts += told.width * (told.start_ms - STARTS_EPOCH_MS)
            estimates += told.width * told.estimate_ms
    _audit_counts(present, gone, counts, group)
    return running, starts, estimates


async def _audit_offer(
    world: World,
    group: GroupId,
    name: str,
    told: Told,
    item: dict[str, str],
    expected: dict[str, dict[str, float]],
    *,
    is_listed: bool,
) -> None:
    """An offer stands under the item's capability, or under each who is still asked, until a tick has seen that it is over."""
    asked = item["to"].partition(":")[2].split(",") if "to" in item else []
    assert told.to == item.get("to", "-"), f"whom {group}/{name} is offered to"
    assert told.expires_ms == int(item.get("ox", "0")), f"until when {group}/{name} is offered"
    partition = world.store.partition_of(group)
    member = f"o {group} {name}"
    if told.expires_ms and (not asked or asked[0]):
        due = await world.raw.zscore(world.key("@due", partition), member)
        if due is None:
            assert told.expires_ms <= await world.store.now_ms(), (
                f"{group}/{name} has an offer that is not over by itself"
            )
            return
        expected["@due"][member] = told.expires_ms
    if "rsv" in item:
        expected["@due"][f"h {group} {name}"] = int(item["rsv"].split(" ")[1])
    for place in [f">{agent}" for agent in asked if agent] if "to" in item else [shelf(told.capability)]:
        expected[f"@take:{place}"][f"{group} {item['key']}"] = 0
        if is_listed:
            expected[f"@dir:{place}"][group] = -1


async def _audit_indexes(world: World, partition: int, expected: dict[str, dict[str, float]]) -> None:
    base = world.store.base(partition)
    for kind in ("@take:", "@dir:", "@held:", "@due", "@parked", "@blocked"):
        stored = {key.decode().removeprefix(base) for key in await world.raw.keys(f"{base}{kind}*")}
        for name in stored | {name for name in expected if name.startswith(kind)}:
            rows: list[Any] = await world.raw.zrange(base + name, 0, -1, withscores=True)
            found = {member.decode(): score for member, score in rows}
            if kind == "@due":
                # A Mission's items are kept for a time once a pump has withdrawn what was left of them.
                pumped = {member.split(" ")[1] for member in found if member[0] == "c"}
                for group in pumped:
                    expected[name].pop(f"z {group} 0", None)
                # Ends of sessions, mints and quarantines, pumps that cancel or expel and schedules are not told by a log.
                found = {member: score for member, score in found.items() if member[0] not in "xycfmq"}
            assert found.keys() == expected[name].keys(), name
            for member, score in expected[name].items():
                assert score in (-1, found[member]), f"{name}: {member}"
