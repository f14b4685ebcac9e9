"""Asking live Workers why an item waits, and answering: a question rings their inboxes, the answers come to one of its own."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

import anyio

from ..errors import Corrupt, TreadleError, Unavailable
from ..model import AgentId, GroupId, ItemId, Session
from ..reasons import Answer, Answers, Question, Reason, packed, parse_answer
from . import keys, views
from .store import FencedCall, Store

WAIT_S = 0.5
"""A Worker whose event loop runs answers in a few milliseconds; one that does not need not be waited for."""
_log = logging.getLogger("treadle.store")


async def ask(store: Store, group: GroupId, item: ItemId, *, wait_s: float = WAIT_S) -> Answers:
    """What the live Workers that could run an item say why it waits: as soon as all have, or who has within `wait_s`.

    Nobody is asked of an item that is neither offered nor accepted. Refused: GROUP_NOT_FOUND, INVALID_COMMAND (no such item).
    """
    nonce = f"why.{secrets.token_hex(8)}"
    partition = store.partition_of(group)
    answer = await store.call("question", partition, (group, item, nonce))
    asked = int(answer[1])
    inbox = keys.inbox(store.base(partition), nonce)
    said: dict[AgentId, Answer] = {}
    end_s = anyio.current_time() + wait_s
    while len(said) < asked and (left_s := end_s - anyio.current_time()) > 0:
        for entry in await store.run(views.pop_all, [inbox], left_s):
            try:
                one = parse_answer(entry, where=inbox)
            except Corrupt as error:  # a Worker of another version: the others are heard
                _log.warning("%s; it is passed over", error)
            else:
                said[one.agent] = one
    return Answers(asked, tuple(said[agent] for agent in sorted(said)))


async def answer(store: Store, session: Session, said: Sequence[tuple[int, Question, Sequence[Reason]]]) -> None:
    """Tells who asked; each answer with its partition. What cannot be told now is not told: nobody waits for long.

    Raises what ends the session: Stale, StoreChanged.
    """
    calls: list[FencedCall] = [
        ("answer", partition, (session.replid, session.agent, session.epoch, question.nonce, packed(reasons)))
        for partition, question, reasons in said
    ]
    for found in await store.call_each(calls):
        if isinstance(found, TreadleError) and not isinstance(found, Unavailable):
            raise found
