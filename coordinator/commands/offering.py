"""`treadle offer`: an item is offered again, to everybody or to some Workers."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Annotated

import typer
from treadle.shared.errors import Misuse
from treadle.shared.names import token
from treadle.shared.store import Store, commands

from ..core.items import offer_of
from ..core.moments import moment
from ..specs import OfferMode, OfferSpec
from .control import Items, Target, each
from .opening import default_actor, persist
from .options import AsJson, Prefix, Url


def offer(
    target: Items,
    to: Annotated[list[str] | None, typer.Option(help="A Worker to ask; may be repeated.", metavar="WORKER")] = None,
    named: Annotated[bool, typer.Option("--named", help="Only they may accept it.")] = False,
    preferred: Annotated[
        bool, typer.Option("--preferred", help="Everybody may, once they let it pass. So it is with --to alone.")
    ] = False,
    span: Annotated[
        str | None, typer.Option("--for", help="How long it may be accepted: 30s, 15min, 2h, 1d.", metavar="SPAN")
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Offer items again, now: to everybody, or to some Workers.

    What is open, offered, failed or parked, all its attempts before it; and what a Worker accepted and let its lease or its
    start-by time pass. Exit status 1 where one of them cannot be offered, because a Worker has it, it waits for others or
    has ended; the others are.

    --json: {"results": [{"target", "state", "error"}]}; error is null where it is offered now
    """
    if named and preferred:
        raise Misuse("--named, --preferred: give one of them")
    if (named or preferred) and not to:
        raise Misuse("--to: name the Workers to ask, or leave --named and --preferred out to ask all")
    mode: OfferMode = "named" if named else "preferred"
    try:
        said = offer_of(OfferSpec(offer_to=to or None, offer=mode, offer_s=_seconds(span)))
    except Misuse as misuse:
        raise Misuse(_in_flags(str(misuse))) from None

    async def one(store: Store, found: Target) -> str:
        assert found.item is not None
        item, actor, action = found.item, token(default_actor(), field="actor"), secrets.token_hex(8)
        await persist(
            store, lambda: commands.offer(store, found.group, item, said or "- 0", actor=actor, action=action)
        )
        return "offered"

    each(target, one, missions_too=False, url=url, prefix=prefix, as_json=as_json)


def _in_flags(said: str) -> str:
    """What is wrong with an offer, by the names of the options."""
    for field, flag in (("offer_to", "--to"), ("offer_s", "--for")):
        said = said.replace(field, flag)
    return said


def _seconds(span: str | None) -> float | None:
    if span is None:
        return None
    found = moment(f"+{span.strip().removeprefix('+')}", field="--for")
    if not isinstance(found, timedelta):
        raise Misuse("--for: takes a span such as 30s, 15min, 2h or 1d")
    return found.total_seconds()
