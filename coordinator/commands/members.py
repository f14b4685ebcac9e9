"""`treadle revoke` and `treadle admit`: which Agents a Mission keeps out."""

from __future__ import annotations

from typing import Annotated

import typer
from treadle.shared.answers import Ended

from ..client import Client
from ..core.readable import safe, times
from .opening import with_client
from .options import AsJson, Prefix, Url
from .output import document, note, say

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="A Worker's name (`treadle workers`).", show_default=False)]
Of = Annotated[str, typer.Option("--mission", "-m", help="The Mission.", metavar="MISSION", show_default=False)]


def revoke(
    agent: Agent,
    mission: Of,
    reason: Annotated[str, typer.Option(help="Recorded with it.", metavar="TEXT")] = "asked",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Keep an Agent out of a Mission, at once.

    Its handlers there are stopped, what it held goes to others, and all it still asks there is refused; elsewhere it works
    on. `treadle admit` lets it in again. It need not work there yet. Exit status 1 where the Mission is not there or has ended.

    --json: {"mission", "agent", "was_member", "items", "repeated"}; items: how many it lost at once
    """

    async def work(client: Client) -> Ended:
        return await client.mission(mission).revoke(agent, reason)

    ended = with_client(url, prefix, work)
    if as_json:
        found = {"was_member": ended.was_member, "items": ended.items, "repeated": ended.repeated}
        document({"mission": mission, "agent": agent, **found})
        return
    name, where = safe(agent), safe(mission)
    if ended.repeated:
        say(f"{name} was kept out of {where} already")
    elif ended.was_member:
        say(f"{name} is out of {where}; {times(ended.items, 'item')} of it went to others")
    else:
        say(f"{name} is kept out of {where}")
        note(f"treadle: {name} was no member of it: check the name (`treadle workers`) if it should have been")


def admit(agent: Agent, mission: Of, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Let an Agent in again that `treadle revoke` keeps out of a Mission.

    It sees what happens there from now on. Exit status 1 where the Mission is not there or has ended, and for a moment after
    the revocation of an Agent that held more than 64 items.

    --json: {"mission", "agent", "admitted"}; admitted is false where it was not kept out
    """

    async def work(client: Client) -> bool:
        return await client.mission(mission).admit(agent)

    admitted = with_client(url, prefix, work)
    if as_json:
        document({"mission": mission, "agent": agent, "admitted": admitted})
    else:
        say(
            f"{safe(agent)} is let in to {safe(mission)}"
            if admitted
            else f"{safe(agent)} was not kept out of {safe(mission)}"
        )
