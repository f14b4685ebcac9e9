"""`treadle pause`, `resume`: what is kept from being started."""

from __future__ import annotations

from typing import Annotated, Protocol

import typer
from treadle.shared.errors import Refused
from treadle.shared.store import Store, controls

from ..core.addresses import pausable
from ..core.readable import safe, span
from ..core.wording import quoted
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url
from .output import Column, document, note, say, table


class _Act(Protocol):
    async def __call__(self, store: Store, what: str, *, actor: str) -> bool: ...


What = Annotated[
    str | None,
    typer.Argument(
        metavar="[WHAT]",
        help="all, account:NAME, capability:NAME or mission:ID; without it, what is paused is listed.",
        show_default=False,
    ),
]


def pause(what: What = None, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Keep work from being started; what runs goes on.

    When it returns, nothing of it is accepted or started anywhere. Without WHAT it lists what is paused.

    --json: {"changed", "now_ms", "paused": [{"what", "actor", "since_ms"}]}
    """
    _switch(what, controls.pause, ("paused", "was paused before"), url=url, prefix=prefix, as_json=as_json)


def resume(what: What = None, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Let paused work start again.

    It takes back the pause of just this WHAT. Without WHAT it lists what is paused.

    --json: {"changed", "now_ms", "paused": [{"what", "actor", "since_ms"}]}
    """
    _switch(what, controls.resume, ("resumed", "was not paused"), url=url, prefix=prefix, as_json=as_json)


def _switch(
    what: str | None, act: _Act, sayings: tuple[str, str], *, url: str | None, prefix: str | None, as_json: bool
) -> None:
    wanted = None if what is None else pausable(what)
    done, before = sayings

    async def work(store: Store) -> tuple[bool, int, list[controls.Pause]]:
        changed, target = False, wanted
        if target is not None:
            try:
                changed = await persist(store, lambda: act(store, target, actor=default_actor()))
            except Refused as refused:
                if refused.code != "GROUP_NOT_FOUND":
                    raise
                text = f"{quoted(target)}: there is no such Mission in this store; check its id (`treadle missions`)"
                raise Refused(text, code=refused.code) from None
        return changed, await store.now_ms(), await controls.pauses(store)

    changed, now_ms, found = with_store(url, prefix, work)
    if as_json:
        rows = [{"what": one.what, "actor": one.actor, "since_ms": one.since_ms} for one in found]
        document({"changed": changed, "now_ms": now_ms, "paused": rows})
        return
    if wanted is not None:
        say(f"{safe(wanted)}: {done if changed else before}")
    if not found:
        note("nothing is paused")
        return
    columns = [Column("PAUSED"), Column("BY"), Column("SINCE", right=True)]
    table(columns, ((one.what, one.actor, f"{span(now_ms - one.since_ms)} ago") for one in found))
