"""Every situation a WorkItem can be in, each made by the calls that lead there, and everything that can be tried on it.

What is allowed is nowhere said here: `test_every_transition` asks the table of states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from builders import GROUP, a_new_item, a_new_mission
from store.refused import code_of
from store.world import (
    SHORT_MS,
    Hand,
    World,
    a_block,
    a_disclosure,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_word,
    a_yield,
    an_ask,
)
from treadle.shared.lifecycle import Given
from treadle.shared.model import Grant, GroupId, ItemId, ItemState, Lease, LeaseId, Priority, Urgency
from treadle.shared.store import Accept, Decline, Operation, commands

ITEM = ItemId("a")
FIRST_BACK_OFF = "9 60000 60000"
AT_ONCE = "9 0 0"


@dataclass
class Scene:
    """One Mission that grows, with the item `a` in it, its owner in an old and a new session, a former owner, a rival."""

    world: World
    group: GroupId
    owner: Hand
    stale: Hand
    former: Hand
    other: Hand
    grant: Grant
    """What the owner would cite; of an item it does not own, what it last had, or nothing that ever was."""

    async def item(self) -> dict[str, str]:
        return await self.world.item(self.group, ITEM)

    async def add(self, item: str = ITEM, **fields: object) -> None:
        fields = {"retry": FIRST_BACK_OFF, **fields}
        made = replace(a_new_item(item), digest=f"digest of {item}", **fields)  # type: ignore[arg-type]  # a field of it each
        await commands.add(self.world.store, self.group, [made], actor="ana")

    async def started(self) -> Grant:
        self.grant = await self.owner.started(self.group)
        assert (await self.owner.do(a_save(self.grant))).code == "OK"
        self.grant = replace(self.grant, checkpoint_number=1)
        return self.grant


async def a_scene(world: World, number: int, *, ttl_ms: int = 60_000) -> Scene:
    group = GroupId(f"{GROUP}-{number}")
    await world.store.create(replace(a_new_mission(group), items=(), open=True))
    stale = await world.hand(f"owner-{number}", nonce="old", ttl_ms=ttl_ms)
    owner = await world.hand(f"owner-{number}", nonce="new", ttl_ms=ttl_ms)
    former, other = await world.hand(f"former-{number}"), await world.hand(f"other-{number}")
    lease = Lease(LeaseId("none"), group, ITEM, owner.session.agent, owner.session.epoch, 1, 1, 0, 1, "")
    nothing = Grant(0, group, ITEM, owner.session.capabilities[0], 1, 1, 0, 0, lease, 0, (), b"", b"")
    return Scene(world, group, owner, stale, former, other, nothing)


# --- situations ---


async def nothing(scene: Scene) -> None:
    """No item of that name was ever added."""


async def waiting(scene: Scene) -> None:
    await scene.add("gate", capability="other")
    await scene.add(after=(ItemId("gate"),))


async def not_yet(scene: Scene) -> None:
    await scene.add(not_before="+60000")


async def parked(scene: Scene) -> None:
    await scene.add(retry=AT_ONCE)
    for number in range(5):
        killed = await scene.world.hand(f"killed-{scene.group}", nonce=str(number))
        for grant in killed.requeued or await killed.take(scene.group):
            if grant.lease is None:
                await killed.do(a_start(grant))
    await scene.world.hand(f"killed-{scene.group}", nonce="last")


async def unapproved(scene: Scene) -> None:
    await scene.add(gates="approval")


async def unapproved_and_failed(scene: Scene) -> None:
    await unapproved(scene)
    await _commanded_to_fail(scene, "first-digest")


async def offered(scene: Scene) -> None:
    await scene.add()
    await scene.former.do(a_release(await scene.former.started(scene.group)))


async def offered_by_name(scene: Scene) -> None:
    await scene.add(offer=f"named:{scene.owner.session.agent},somebody-else 600000")


async def offered_by_name_too_long(scene: Scene) -> None:
    await scene.add(offer=f"named:{scene.owner.session.agent} {SHORT_MS}")
    await scene.world.pass_ms(SHORT_MS + 1)


async def queued(scene: Scene) -> None:
    await offered(scene)
    scene.grant = await scene.owner.accepted(scene.group)


async def queued_too_long(scene: Scene) -> None:
    await scene.add(start_by_s=1)
    scene.grant = await scene.owner.accepted(scene.group)
    await scene.world.pass_ms(1001)


async def yielded(scene: Scene) -> None:
    await active(scene)
    assert (await scene.owner.do(a_yield(scene.grant, 2))).code == "OK"
    scene.grant = replace(scene.grant, checkpoint_number=2, lease=None)  # its lease is given up


async def active(scene: Scene) -> None:
    await offered(scene)
    await scene.started()


async def lapsed(scene: Scene) -> None:
    await offered(scene)
    await scene.started()
    await scene.world.pass_ms(SHORT_MS + 1)


async def blocked(scene: Scene) -> None:
    await active(scene)
    assert (await scene.owner.do(a_block(scene.grant, 2))).code == "OK"
    scene.grant = replace(scene.grant, checkpoint_number=2)


async def blocked_by_nobody(scene: Scene) -> None:
    await offered(scene)
    away = await scene.world.hand(f"away-{scene.group}")
    assert (await away.do(a_block(await away.started(scene.group)))).code == "OK"
    await away.close()


async def verified(scene: Scene) -> None:
    await active(scene)
    await scene.owner.do(a_submit(scene.grant, b"the first result"))


async def failed(scene: Scene) -> None:
    await active(scene)
    await scene.owner.do(a_fail(scene.grant, b"the first evidence"))


async def retrying(scene: Scene) -> None:
    await active(scene)
    await scene.owner.do(replace(a_fail(scene.grant, b"the first evidence"), retryable=True))


async def failed_by_command(scene: Scene) -> None:
    await active(scene)
    await _commanded_to_fail(scene, "first-digest")


async def cancelled(scene: Scene) -> None:
    await active(scene)
    await _cancelled(scene)


@dataclass(frozen=True)
class Situation:
    """Where an item stands: how it got there, its state, and what else is true of it."""

    make: Callable[[Scene], Awaitable[None]]
    state: ItemState | None
    given: Given | None = None
    is_late: bool = False
    """Its lease, its start-by deadline or its offer is over, and no tick has seen it: what needs either is refused."""

    def __str__(self) -> str:
        return self.make.__name__

    async def scene(self, world: World, number: int = 0) -> Scene:
        made = await a_scene(world, number, ttl_ms=SHORT_MS if self.make is lapsed else 60_000)
        await self.make(made)
        assert (await made.item()).get("st") == self.state
        return made


_S = ItemState
SITUATIONS = (
    Situation(nothing, None),
    Situation(waiting, _S.OPEN, Given.DEPENDENT),
    Situation(not_yet, _S.OPEN),
    Situation(parked, _S.OPEN, Given.PARKED),
    Situation(unapproved, _S.OPEN, Given.UNAPPROVED),
    Situation(unapproved_and_failed, _S.FAILED, Given.UNAPPROVED),
    Situation(offered, _S.OFFERED),
    Situation(offered_by_name, _S.OFFERED, Given.NAMED),
    Situation(offered_by_name_too_long, _S.OFFERED, Given.NAMED, is_late=True),
    Situation(queued, _S.QUEUED),
    Situation(yielded, _S.QUEUED),
    Situation(queued_too_long, _S.QUEUED, Given.LATE, is_late=True),
    Situation(active, _S.ACTIVE),
    Situation(lapsed, _S.ACTIVE, Given.LATE, is_late=True),
    Situation(blocked, _S.BLOCKED, Given.OWNED),
    Situation(blocked_by_nobody, _S.BLOCKED, Given.OWNERLESS),
    Situation(verified, _S.VERIFIED),
    Situation(failed, _S.FAILED),
    Situation(failed_by_command, _S.FAILED),
    Situation(retrying, _S.FAILED, Given.RETRYING),
    Situation(cancelled, _S.CANCELLED),
)
NEVER_STANDS_IN = {_S.SUBMITTED}
"""The standing instruction accepts a result in the call that submits it."""

# --- what can be tried ---

OPERATIONS: Mapping[str, Callable[[Grant], Operation]] = {
    "take": lambda grant: a_take(grant.group),
    "accept": lambda grant: Accept(grant.group, grant.item),
    "decline": lambda grant: Decline(grant.group, grant.item, "capacity"),
    "start": a_start,
    "disclose": a_disclosure,
    "progress": lambda grant: a_word(grant, phase="another phase"),
    "save": lambda grant: a_save(grant, grant.checkpoint_number + 1, b"another state"),
    "yield": lambda grant: a_yield(grant, grant.checkpoint_number + 1, b"another state"),
    "yield to all": lambda grant: a_yield(grant, grant.checkpoint_number + 1, b"another state", keep=False),
    "ask_yield": an_ask,
    "block": lambda grant: a_block(grant, grant.checkpoint_number + 1, b"another state"),
    "release": a_release,
    "submit": lambda grant: a_submit(grant, b"another result"),
    "fail": lambda grant: a_fail(grant, b"other evidence"),
    "fail for now": lambda grant: replace(a_fail(grant, b"other evidence"), retryable=True),
}
"""The first word is the operation of a turn."""


async def _added(scene: Scene) -> None:
    new = replace(a_new_item(ITEM), digest="other-digest")
    await commands.add(scene.world.store, scene.group, [new], actor="ana")


async def _cancelled(scene: Scene) -> None:
    await commands.cancel(scene.world.store, scene.group, ITEM, actor="ana", reason="r")


async def _commanded_to_fail(scene: Scene, digest: str = "other-digest") -> None:
    await commands.fail_item(scene.world.store, scene.group, ITEM, actor="ana", digest=digest, evidence=b"e")


async def _retried(scene: Scene) -> None:
    await commands.retry(scene.world.store, scene.group, ITEM, actor="ana", action="another action")


async def _unblocked(scene: Scene) -> None:
    said = {"actor": "ana", "action": "another action", "digest": "d", "resolution": b"r"}
    await commands.unblock(scene.world.store, scene.group, ITEM, **said)  # type: ignore[arg-type]  # bytes and str


async def _offered_again(scene: Scene) -> None:
    await commands.offer(scene.world.store, scene.group, ITEM, "- 0", actor="ana", action="another action")


async def _approved(scene: Scene) -> None:
    await commands.approve(scene.world.store, scene.group, ITEM, actor="ana", reason="seen")


async def _prioritised(scene: Scene) -> None:
    to = Priority(Urgency.CRITICAL, 0, 5)
    await commands.prioritise(scene.world.store, scene.group, ITEM, to, actor="ana", action="another action")


COMMANDS: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "add": _added,
    "cancel": _cancelled,
    "fail_item": _commanded_to_fail,
    "retry": _retried,
    "unblock": _unblocked,
    "offer": _offered_again,
    "approve": _approved,
    "prioritise": _prioritised,
}


async def _closed(scene: Scene) -> None:
    await scene.owner.close()


async def _replaced(scene: Scene) -> None:
    await scene.world.hand(scene.owner.session.agent, nonce="newest")


async def _kept_out(scene: Scene) -> None:
    who = scene.owner.session.agent
    await commands.end_membership(scene.world.store, scene.group, who, actor="ana", reason="no")


SESSIONS: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "close_session": _closed,
    "install_session": _replaced,
    "end_membership": _kept_out,
}
"""What ends or replaces the session of the owner, or its Membership: never refused, and it moves what the table says."""


def call_of(name: str) -> str:
    """The call of the store that an attempt is."""
    return name.split()[0]


# --- who tries it, citing what ---


@dataclass(frozen=True)
class Citation:
    """Who carries out an operation, and with which Ownership Epoch and Lease ID."""

    who: str
    cites: str = "what is current"

    def __str__(self) -> str:
        return f"{self.who} cites {self.cites}"

    def hand(self, scene: Scene) -> Hand:
        hand: Hand = getattr(scene, self.who)
        return hand

    def grant(self, scene: Scene) -> Grant:
        grant, lease = scene.grant, scene.grant.lease
        match self.cites:
            case "an older epoch":
                return replace(grant, ownership_epoch=grant.ownership_epoch - 1)
            case "an epoch to come":
                return replace(grant, ownership_epoch=grant.ownership_epoch + 1)
            case "another lease":
                return replace(grant, lease=replace(lease, lease_id=LeaseId("another")) if lease else None)
            case _:
                return grant


RIGHT = Citation("owner")
CITATIONS: Sequence[Citation] = (
    RIGHT,
    Citation("owner", "an older epoch"),
    Citation("owner", "an epoch to come"),
    Citation("owner", "another lease"),
    Citation("former"),
    Citation("former", "an older epoch"),
    Citation("other"),
    Citation("stale"),
)


async def tried(scene: Scene, name: str, citation: Citation = RIGHT) -> str:
    """What an attempt is answered with: OK, REPEATED, or the code of its refusal."""
    if name in OPERATIONS:
        operation = OPERATIONS[name](citation.grant(scene))
        hand, outcomes = citation.hand(scene), list[str]()

        async def call() -> None:
            outcomes.append((await hand.do(operation, slots=1)).code)

        refused = await code_of(call())
        return outcomes[0] if outcomes else refused
    return await code_of({**COMMANDS, **SESSIONS}[name](scene))
