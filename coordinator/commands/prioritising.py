"""`treadle prioritise`: an item's place in its own Mission is changed, at once where it waits (C8)."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from treadle.shared.errors import Misuse
from treadle.shared.model import Priority, Urgency
from treadle.shared.names import token
from treadle.shared.store import Store, commands

from ..core.items import deadline_ms
from ..core.moments import moment
from ..specs import BUSINESS_IMPACT_MAX
from .control import Items, Target, each
from .opening import default_actor, persist
from .options import AsJson, Prefix, Url, whole


def prioritise(
    target: Items,
    urgency: Annotated[Urgency | None, typer.Option(help="Among the items of its own Mission.")] = None,
    deadline: Annotated[
        str | None, typer.Option(help="2030-01-01T09:00:00+01:00, +2h, or none: it has none.", metavar="WHEN")
    ] = None,
    impact: Annotated[
        int | None,
        typer.Option("--business-impact", help="More goes first.", parser=whole(0, BUSINESS_IMPACT_MAX), metavar="N"),
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Change the order of items in their own Mission, at once where they wait.

    What is not given stays as it is. What a Worker runs or has accepted goes on: its new place counts once it is offered
    again. Other Missions' shares do not change. Exit status 1 where one of them has ended; the others are changed.

    --json: {"results": [{"target", "state", "error"}]}; error is null where it is changed
    """
    if urgency is None and deadline is None and impact is None:
        raise Misuse("--urgency, --deadline, --business-impact: give at least one of them, it is what is to change")
    when = deadline if deadline in (None, "none") else moment(deadline, field="--deadline")

    async def one(store: Store, found: Target) -> str:
        assert found.item is not None
        item, actor, action = found.item, token(default_actor(), field="actor"), secrets.token_hex(8)
        now_ms = await store.now_ms()
        to = Priority(urgency, _deadline(when, now_ms), impact)
        return await persist(
            store, lambda: commands.prioritise(store, found.group, item, to, actor=actor, action=action)
        )

    each(target, one, missions_too=False, url=url, prefix=prefix, as_json=as_json)


def _deadline(when: datetime | timedelta | str | None, now_ms: int) -> int | None:
    """The deadline as the store has it: None to leave it, 0 for none; a span counts from the store's now."""
    if when is None or isinstance(when, str):
        return None if when is None else 0
    at = when if isinstance(when, datetime) else datetime.fromtimestamp(now_ms / 1000, UTC) + when
    return deadline_ms(at, "--deadline", now_ms)
