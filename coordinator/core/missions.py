"""From what people wrote (`MissionSpec`) to what the store takes (`NewMission`): checked, packed, in topological order.

Pure: the same spec, id, actor and `now_ms` give the same plan in every process. Nothing is sent before all is checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import GroupId, MissionId, NewItem, NewMission
from treadle.shared.names import NAME_BYTES_MAX, token

from ..specs import KEEP_RESULTS_S, PRIORITY_CLASS, MissionSpec
from .items import TIME_MS_MAX, deadline_ms, listed, plan_items
from .wording import quoted

DEADLINE_DEFAULT_MS = 30 * 86_400_000
CAPABILITIES_MAX = 512
"""Of one Mission (`_plan.lua`): sealing lists each of them."""
DIGEST_FORM = "treadle.mission.2"
STANDING = "jobs:"
"""The id of an account's standing Mission is this and the account: one-off jobs are its items."""


def plan_mission(spec: MissionSpec, *, mission_id: str, actor: str, now_ms: int) -> NewMission:
    """Plan a Mission's creation at the store's time `now_ms`; Misuse for what could not be stored, or could never end.

    `actor` and `account` become tokens. The digest covers the content and the account, neither the actor nor the time:
    the same Mission is recognised whoever repeats it, wherever, in whatever order its dicts and its `work` are.
    """
    group = GroupId(token(mission_id, field="id"))
    if mission_id.startswith(STANDING):
        raise Misuse(
            f'id: ids that begin with "{STANDING}" are of the Missions that one-off jobs stand in; choose another'
        )
    account = token(actor if spec.account is None else spec.account, field="account")
    ends_ms = deadline_ms(spec.deadline, "deadline", now_ms)
    items = plan_items(spec.work, now_ms=now_ms, alone=True)
    if (kinds := len({name for item in items for name in listed(item)})) > CAPABILITIES_MAX:
        raise Misuse(
            f"work: {kinds:,} capabilities and Workers asked by name, at most {CAPABILITIES_MAX} in one Mission; "
            "split it into several"
        )
    header: list[object] = [
        spec.objective,
        account,
        spec.weight,
        spec.priority_class,
        ends_ms,
        spec.open,
        spec.keep_results_s,
    ]
    if spec.budget_slot_s is not None:
        header.append(spec.budget_slot_s)
    return NewMission(
        mission=MissionId(mission_id),
        group=group,
        digest=_digest(header, items),
        actor=token(actor, field="actor"),
        objective=spec.objective,
        account=account,
        weight=spec.weight,
        priority_class=spec.priority_class,
        deadline_ms=ends_ms or now_ms + DEADLINE_DEFAULT_MS,
        items=items,
        open=spec.open,
        keep_results_s=spec.keep_results_s,
        budget_ms=round(1000 * (spec.budget_slot_s or 0)),
    )


@lru_cache(maxsize=1024)
def plan_standing(account: str, *, actor: str) -> NewMission:
    """Plan the Mission that the one-off jobs of an account are items of: open, never sealed, the same for everybody."""
    mission_id = standing_id(account)
    objective = "the one-off jobs of an account"
    named = token(account, field="account")
    return NewMission(
        mission=MissionId(mission_id),
        group=GroupId(token(mission_id, field="account")),
        digest=_digest([objective, named, 1.0, PRIORITY_CLASS, 0, True, KEEP_RESULTS_S], ()),
        actor=token(actor, field="actor"),
        objective=objective,
        account=named,
        weight=1.0,
        priority_class=PRIORITY_CLASS,
        deadline_ms=TIME_MS_MAX - 1,
        items=(),
        open=True,
        keep_results_s=KEEP_RESULTS_S,
    )


def standing_id(account: str) -> str:
    """The id of the account's standing Mission; Misuse where the account's name leaves no room for it."""
    token(account, field="account")
    mission_id = f"{STANDING}{account}"
    if (size := len(mission_id.encode())) > NAME_BYTES_MAX:
        most = NAME_BYTES_MAX - len(STANDING)
        raise Misuse(f"account: {size - len(STANDING)} bytes, at most {most} for one-off jobs; shorten it")
    return mission_id


def check_ends(mission_id: str) -> None:
    """Misuse for the standing Mission of an account: ended, it would take no job of that account ever again."""
    if mission_id.startswith(STANDING):
        raise Misuse(
            f"mission {quoted(mission_id)} is where the account's one-off jobs stand and does not end; cancel jobs of it "
            f"one by one (their addresses are {quoted(mission_id + '/KEY')}), or pause the account"
        )


def _digest(header: Sequence[object], items: Sequence[NewItem]) -> str:
    """Of the Mission's own content, and of its items' digests in an order that is nobody's."""
    content = codec.pack([DIGEST_FORM, *header], field="mission", limit=codec.PAYLOAD_MAX)
    summed = hashlib.sha256(content)
    for digest in sorted([item.digest for item in items]):
        summed.update(digest.encode())
    return summed.hexdigest()[:32]
