"""Commands of people to a Mission and its items, asked through a client, refused in the words of who asked.

Each is safe to repeat: a lost reply leads to the same call once more, and the store does it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from treadle.shared import codec
from treadle.shared.answers import Added, Ended
from treadle.shared.errors import Misuse, Refused
from treadle.shared.inputs import plain
from treadle.shared.model import UNBOUNDED, AgentId, GroupId, ItemId, NewItem, Priority
from treadle.shared.names import name_of, token, unknown_mission
from treadle.shared.store import Store, commands

from .asking import Asking, new_id
from .core.granting import bears_risk, over_quota, with_gates
from .core.items import batches
from .core.wording import quoted

_T = TypeVar("_T")
REASON = "requested"


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is about: a Mission, or one item of it, and what people call it."""

    group: GroupId
    item: ItemId | None = None
    called: str = ""
    """Of an item that is more to people than an item of a Mission: `job "jobs:acme/photo-17"`."""

    @property
    def mission(self) -> str:
        return f"mission {quoted(name_of(self.group))}"

    def __str__(self) -> str:
        if self.called or self.item is None:
            return self.called or self.mission
        return f"item {quoted(name_of(self.item))} of {self.mission}"


async def add(asking: Asking, target: Target, items: Sequence[NewItem], *, account: str | None = None) -> Added:
    """Add items to an open Mission, some hundred a call; one that is there already with the same content counts as repeated.

    `account`: the token of its account, where it is known.
    """
    parts: list[Added] = []
    if bears_risk(items):
        await asking.policy(anew=True)
    for batch in batches(items):
        try:
            part = await _add(asking, target, batch, account)
        except Refused as refused:
            if refused.code != "REVISION_CONFLICT":
                raise
            await asking.policy(anew=True)  # another one was applied since this client read it
            part = await _add(asking, target, batch, account, at_any_rate=True)
        parts.append(part)
    return _together(parts)


async def _add(
    asking: Asking, target: Target, batch: Sequence[NewItem], account: str | None, *, at_any_rate: bool = False
) -> Added:
    """Add some items, by the policy that this client knows of; refused where that is outdated, unless `at_any_rate`."""
    policy = await asking.policy()

    async def question(store: Store) -> Added:
        owner = await store.account_of(target.group) if account is None and policy.bounds_queued else account
        queued = policy.queued(owner, target.group) if owner else UNBOUNDED
        if not at_any_rate:
            queued = replace(queued, version=policy.version)
        work = with_gates(policy, batch)
        return await commands.add(store, target.group, work, actor=_actor(asking), queued=queued, account=owner)

    return await _commanded(asking, target, "be added to", question)


async def seal(asking: Asking, target: Target) -> None:
    """End the growth of an open Mission."""

    async def question(store: Store) -> None:
        await commands.seal(store, target.group, actor=_actor(asking))

    await _commanded(asking, target, "be sealed", question)


async def cancel(asking: Asking, target: Target, reason: str) -> str:
    """Cancel a Mission or one item of it; the state it is in now."""
    said = token(reason, field="reason")

    async def question(store: Store) -> str:
        return await commands.cancel(store, target.group, target.item, actor=_actor(asking), reason=said)

    return await _commanded(asking, target, "be cancelled", question)


async def fail(asking: Asking, target: Target, evidence: object) -> None:
    """Fail an item for good, with Evidence."""
    raw = codec.pack(evidence, field="evidence", limit=codec.EVIDENCE_MAX)
    item = _item(target)

    async def question(store: Store) -> None:
        digest = codec.digest(raw)
        await commands.fail_item(store, target.group, item, actor=_actor(asking), evidence=raw, digest=digest)

    await _commanded(asking, target, "fail", question)


async def retry(asking: Asking, target: Target) -> None:
    """Offer a failed or parked item again, now; done once, however often its reply is lost."""
    action = new_id("retry")
    item = _item(target)

    async def question(store: Store) -> None:
        await commands.retry(store, target.group, item, actor=_actor(asking), action=action)

    await _commanded(asking, target, "be tried again", question)


async def revoke(asking: Asking, target: Target, agent: str, reason: str) -> Ended:
    """End an Agent's Membership in a Mission's Group, and keep it out."""
    who, said = AgentId(token(agent, field="agent")), token(reason, field="reason")

    async def question(store: Store) -> Ended:
        return await commands.end_membership(store, target.group, who, actor=_actor(asking), reason=said)

    return await _commanded(asking, target, "keep anybody out", question)


async def admit(asking: Asking, target: Target, agent: str) -> bool:
    """Let an Agent in again; whether it had been kept out."""
    who = AgentId(token(agent, field="agent"))

    async def question(store: Store) -> bool:
        return await commands.admit(store, target.group, who, actor=_actor(asking))

    return await _commanded(asking, target, "let anybody in", question)


async def unblock(asking: Asking, target: Target, resolution: object) -> str:
    """Let a blocked item go on with a resolution; the state it is in now. Done once, however often its reply is lost."""
    action, item = new_id("unblock"), _item(target)
    raw = codec.pack(plain(resolution), field="resolution", limit=codec.RESULT_MAX)

    async def question(store: Store) -> str:
        return await commands.unblock(
            store, target.group, item, actor=_actor(asking), action=action, digest=codec.digest(raw), resolution=raw
        )

    return await _commanded(asking, target, "be unblocked", question)


async def approve(asking: Asking, target: Target, reason: str) -> bool:
    """Let an item be started that waits for Approval; False where it was approved before."""
    item, said = _item(target), token(reason, field="reason")

    async def question(store: Store) -> bool:
        return await commands.approve(store, target.group, item, actor=_actor(asking), reason=said)

    return await _commanded(asking, target, "be approved", question)


async def offer(asking: Asking, target: Target, to: str) -> None:
    """Offer an item again, to those `to` says (`NewItem.offer`); done once, however often its reply is lost."""
    action = new_id("offer")
    item = _item(target)

    async def question(store: Store) -> None:
        await commands.offer(store, target.group, item, to or "- 0", actor=_actor(asking), action=action)

    await _commanded(asking, target, "be offered", question)


async def prioritise(asking: Asking, target: Target, to: Priority) -> str:
    """Change an item's place in its Mission; the state it is in now. Done once, however often its reply is lost."""
    action = new_id("prioritise")
    item = _item(target)

    async def question(store: Store) -> str:
        return await commands.prioritise(store, target.group, item, to, actor=_actor(asking), action=action)

    return await _commanded(asking, target, "be prioritised", question)


def _actor(asking: Asking) -> str:
    return token(asking.actor, field="actor")


def _item(target: Target) -> ItemId:
    if target.item is None:
        raise AssertionError("this command is about an item")
    return target.item


async def _commanded(asking: Asking, target: Target, wish: str, question: Callable[[Store], Awaitable[_T]]) -> _T:
    try:
        return await asking.ask(question)
    except Refused as refused:
        raise _said(refused, target, wish) from None


def _said(refused: Refused, target: Target, wish: str) -> Exception:
    """The same refusal, in the names that people gave and with what to do."""
    state = refused.details.get("state", "")
    item = f"item {quoted(name_of(refused.details.get('item', '')))}"
    ended = refused.details.get("mission", "active") not in ("active", state)
    match refused.code:
        case "GROUP_NOT_FOUND":
            return unknown_mission(target.group)
        case "INVALID_COMMAND" if target.item is not None:
            text = f"{target} is not there; check its id"
        case "INVALID_STATE_TRANSITION" if state == "expelling":
            who = quoted(name_of(refused.details["agent"]))
            text = f"{target}: what {who} held is still on its way to others; let it in a second later"
        case "INVALID_STATE_TRANSITION" if wish == "be added to" and state == "active":
            text = f"{target} does not grow: it was not submitted with open=True, or it is sealed; submit another one"
        case "INVALID_STATE_TRANSITION" if refused.details.get("dependencies", "0") != "0":
            text = f"{target} waits for others (`treadle why` names them) and can {wish} once they are verified"
        case "INVALID_STATE_TRANSITION" if refused.details.get("asked") == "0":
            text = f"{target} was declined by every Worker it was offered to: say whom to ask now (`treadle offer`)"
        case "INVALID_STATE_TRANSITION" if wish == "be tried again" and state == "cancelled":
            text = f"{target} is cancelled, which is final; submit it anew"
        case "INVALID_STATE_TRANSITION" if wish == "be tried again" and not ended:
            text = f"{target} is {state}: only what failed or is parked can be tried again"
        case "INVALID_STATE_TRANSITION" if refused.details.get("approval") == "none" and not ended:
            text = f"{target} needs no Approval: neither it nor the policy asked for it"
        case "APPROVAL_REQUIRED":
            text = f"{target} waits for Approval (`treadle approve`): before that it cannot {wish}"
        case "INVALID_STATE_TRANSITION" if wish == "be unblocked" and not ended:
            text = f"{target} is {state}, not blocked: there is nothing to unblock"
        case "WORK_ALREADY_OWNED":
            owner = quoted(name_of(refused.details.get("owner", "-")))
            text = (
                f"{target} is {state} at Worker {owner}; cancel it, or offer it once its lease or start-by time is over"
            )
        case "INVALID_STATE_TRANSITION" if ended:
            text = f"{target} cannot {wish} any more: its Mission {_is(refused.details['mission'])}"
        case "INVALID_STATE_TRANSITION" if state:
            text = f"{target} {_is(state)} and cannot {wish} any more"
        case "QUOTA_EXCEEDED":
            return over_quota(refused)
        case "ACTION_ID_COLLISION":
            text = (
                f"{item} is in {target.mission} with other content; give it unchanged to have it counted once, or give "
                "this one another id"
            )
        case "SCHEMA_VALIDATION_FAILED" if wish == "be added to" and "waits for" in str(refused):
            return Misuse(
                f"{item}: after: names an item that is neither in {target.mission} nor in this call; add that one first"
            )
        case _:
            return refused
    return Refused(text, code=refused.code, details=refused.details)


def _is(state: str) -> str:
    """A Group's record knows only that its Mission has ended, not how."""
    return "has ended" if state == "ended" else f"is {state}"


def _together(parts: Sequence[Added]) -> Added:
    return Added(
        created=sum(part.created for part in parts),
        repeated=sum(part.repeated for part in parts),
        no_worker=tuple(dict.fromkeys(name for part in parts for name in part.no_worker)),
        unschedulable={name: slots for part in parts for name, slots in part.unschedulable.items()},
        lacking={name: most for part in parts for name, most in part.lacking.items()},
    )
