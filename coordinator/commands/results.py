"""`treadle results`: what came of a Mission, or of one item of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from treadle.shared.errors import Refused
from treadle.shared.model import GroupId, ItemId, ItemState
from treadle.shared.names import token

from ..client import Client
from ..core.readable import safe
from ..core.wording import quoted
from ..failures import result_of
from .opening import with_client, with_store
from .options import AsJson, Prefix, Timeout, Url
from .output import document, note, plain, say

MissionId = Annotated[str, typer.Argument(help="A Mission's id; jobs:ACCOUNT for jobs.", show_default=False)]


def results(
    mission: MissionId,
    item: Annotated[str | None, typer.Argument(help="One item of it, or a job's key.", show_default=False)] = None,
    timeout: Timeout = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Print what came of a Mission, once it is approved, or of one item.

    A line an item: its id and its result as JSON; of one item the result alone, as it is now. A Mission is waited for;
    --timeout 0 asks once. Exit status 1 where it failed or was cancelled, has not ended, or where its results were kept for
    their time and are gone.

    --json: {"mission", "results": {item: result}}, of one item {"mission", "item", "result"}
    """
    if item is not None:
        result = _of_item(mission, item, url, prefix)
        if as_json:
            document({"mission": mission, "item": item, "result": result})
        else:
            say(json.dumps(result))
        return

    async def work(client: Client) -> None:
        try:
            found = await client.mission(mission).results(timeout=timeout)
        except TimeoutError as error:
            note(f"treadle: {error}")
            raise typer.Exit(1) from None
        if as_json:
            document({"mission": mission, "results": {name: plain(result) for name, result in found.items()}})
            return
        for name, result in found.items():
            say(f"{safe(name)}  {json.dumps(plain(result))}")

    with_client(url, prefix, work)


def _of_item(mission: str, item: str, url: str | None, prefix: str | None) -> object:
    group, name = GroupId(token(mission, field="MISSION")), ItemId(token(item, field="ITEM"))
    view = with_store(url, prefix, lambda store: store.item(group, name, bodies=True))
    if view is None:
        raise Refused(f"item {quoted(item)} of mission {quoted(mission)} is not in this store, or no longer")
    if view.state is not ItemState.VERIFIED:
        raise Refused(f"item {quoted(item)} of mission {quoted(mission)} is {view.state}: treadle why says more")
    return plain(result_of(view))
