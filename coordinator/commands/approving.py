"""`treadle approve`: items that wait for a person's Approval may be started."""

from __future__ import annotations

from typing import Annotated

import typer
from treadle.shared.names import token
from treadle.shared.store import Store, commands

from .control import Items, Target, each
from .opening import default_actor, persist
from .options import AsJson, Prefix, Url


def approve(
    target: Items,
    reason: Annotated[str, typer.Option(help="Recorded with it.", metavar="TEXT")] = "asked",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Let items be started that wait for Approval.

    They start at once, or once nothing else holds them. Recorded with who and why. To deny it, `treadle cancel MISSION/ITEM
    --reason TEXT`. Exit status 1 where one of them needs no Approval or has ended; the others are approved.

    --json: {"results": [{"target", "state", "error"}]}; error is null where it is approved now
    """
    said = token(reason, field="--reason")

    async def one(store: Store, found: Target) -> str:
        assert found.item is not None
        item, actor = found.item, token(default_actor(), field="actor")
        await persist(store, lambda: commands.approve(store, found.group, item, actor=actor, reason=said))
        return "approved"

    each(target, one, missions_too=False, url=url, prefix=prefix, as_json=as_json)
