"""What people and Coordinators have the store do to Missions and WorkItems: one transaction each, all safe to repeat.

Refused carries the protocol's code: GROUP_NOT_FOUND, INVALID_COMMAND (no such item), INVALID_STATE_TRANSITION with
`details["state"]`, ACTION_ID_COLLISION, LOG_FOREIGN. `actor` is the token of who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..answers import Added, Ended
from ..model import UNBOUNDED, AgentId, GroupId, ItemId, NewItem, Priority, Queued
from .loading import item_arguments, who_could
from .store import Store


async def add(
    store: Store,
    group: GroupId,
    items: Sequence[NewItem],
    *,
    actor: str,
    queued: Queued = UNBOUNDED,
    account: str | None = None,
) -> Added:
    """Adds items to an open Mission, 256 at most; one that is there with the same digest counts as repeated.

    All or none: Refused (ACTION_ID_COLLISION) where an id has other content, INVALID_STATE_TRANSITION where it is sealed,
    QUOTA_EXCEEDED where those that are new would be more than may be `queued`, REVISION_CONFLICT where that is of an older
    policy than was noted here. `account`: the Mission's, where it is known.
    """
    bounds = await store.bounds(queued, group, account)
    answer = await store.call("add", store.partition_of(group), (group, 0, actor, bounds, *item_arguments(items)))
    created, repeated = answer[1].split()
    return Added(int(created), int(repeated), *who_could(answer[2:]))


async def seal(store: Store, group: GroupId, *, actor: str) -> None:
    """Ends an open Mission's growth: it ends by itself once nothing of it is left to do."""
    await store.call("seal", store.partition_of(group), (group, actor))


async def cancel(store: Store, group: GroupId, item: ItemId | None, *, actor: str, reason: str) -> str:
    """Cancels a Mission, or one item of it; gives the state it is in now.

    `cancelled`, or `failed` for an item that had failed and waited for another attempt, which it does not get now. `reason`
    is a token.
    """
    answer = await store.call("cancel", store.partition_of(group), (group, item or "-", actor, reason))
    return answer[2].decode()


async def fail_item(store: Store, group: GroupId, item: ItemId, *, actor: str, digest: str, evidence: bytes) -> None:
    """Fails an item that has not ended, for good, with Evidence (msgpack, 16 KiB at most) of that digest."""
    await store.call("fail_item", store.partition_of(group), (group, item, actor, digest, evidence))


async def unblock(
    store: Store, group: GroupId, item: ItemId, *, actor: str, action: str, digest: str, resolution: bytes
) -> str:
    """Lets a blocked item go on with a resolution (msgpack, 1 MiB at most) of that digest; gives the state it is in now.

    `queued` for the Worker it still belongs to, else `offered` to everybody; as of now where the action is repeated.
    """
    arguments = (group, item, actor, action, digest, resolution)
    answer = await store.call("unblock", store.partition_of(group), arguments)
    return answer[2].decode()


async def retry(store: Store, group: GroupId, item: ItemId, *, actor: str, action: str) -> None:
    """Offers a failed or parked item of an active Mission again; `action` is this command's id: repeated, it does nothing."""
    await store.call("retry", store.partition_of(group), (group, item, actor, action))


async def approve(store: Store, group: GroupId, item: ItemId, *, actor: str, reason: str) -> bool:
    """Lets an item be started that waits for Approval; False where it was approved before. `reason` is a token.

    Refused (INVALID_STATE_TRANSITION, `approval`) where it needs none, or has ended.
    """
    answer = await store.call("approve", store.partition_of(group), (group, item, actor, reason))
    return answer[1] == b"done"


async def end_membership(store: Store, group: GroupId, agent: AgentId, *, actor: str, reason: str) -> Ended:
    """Ends an Agent's Membership and keeps it out until it is admitted: all it asks there is refused (MEMBERSHIP_STALE).

    What it holds there goes to others, 64 items at once and the rest by ticks. `reason` is a token.
    """
    answer = await store.call("end_membership", store.partition_of(group), (group, agent, actor, reason))
    return Ended(was_member=answer[3] != b"0", items=int(answer[2]), repeated=answer[1] == b"repeated")


async def admit(store: Store, group: GroupId, agent: AgentId, *, actor: str) -> bool:
    """Lets an Agent in again whose Membership was ended; False where it was not kept out.

    Refused (INVALID_STATE_TRANSITION, state `expelling`) while something it held is still on its way to others.
    """
    answer = await store.call("admit", store.partition_of(group), (group, agent, actor))
    return answer[1] == b"done"


async def offer(store: Store, group: GroupId, item: ItemId, to: str, *, actor: str, action: str) -> None:
    """Offers an item of an active Mission that nobody owns again, to those `to` says (`NewItem.offer`); `action` as of `retry`.

    Refused with WORK_ALREADY_OWNED where a Worker owns it and neither its lease nor its start-by deadline is over.
    """
    await store.call("offer", store.partition_of(group), (group, item, actor, action, to))


async def prioritise(store: Store, group: GroupId, item: ItemId, to: Priority, *, actor: str, action: str) -> str:
    """Changes an item's place in its Group, at once where it waits; gives the state it is in now; `action` as of `retry`.

    What a Worker owns goes on as it is. Refused (INVALID_STATE_TRANSITION) where the item or its Mission has ended.
    """
    said = (to.urgency and to.urgency.value, to.deadline_ms, to.business_impact)
    arguments = (group, item, actor, action, *("-" if value is None else value for value in said))
    answer = await store.call("prioritise", store.partition_of(group), arguments)
    return answer[2].decode()
