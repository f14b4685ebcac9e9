"""Which history a store has: incarnations, quarantine, and the doubt of a Worker that finds it gone back (design.md 3.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..facts import IncarnationFacts
from ..model import AgentId
from ..names import name_of, token
from . import keys
from .store import Store


@dataclass(frozen=True, slots=True)
class History:
    """What the partitions' records say, all taken together."""

    quarantine_ms: int = 0
    """When the last quarantine ends, or ended; `facts.NEVER_MS`: when a person says so."""
    doubt: str = ""
    """The Agent that found the store gone back."""
    begun: tuple[IncarnationFacts, ...] = ()
    """The incarnations that people began, newest first; where it was begun in some partitions only, too."""


async def new_incarnation(store: Store, *, actor: str, action: str, reason: str) -> int:
    """Begins another incarnation in every partition, in quarantine; gives the highest. Repeated with its action it goes on.

    Tokens and Session Epochs of before are lower than all that come after it. A doubt is over.
    """
    arguments = (
        store.replid,
        token(actor, field="actor"),
        token(action, field="action"),
        token(reason, field="reason"),
    )
    answers = await store.call_all([("reincarnate", p, arguments) for p in range(store.partitions)])
    return max(int(answer[1]) for answer in answers)


async def newest_minted(store: Store, agent: AgentId) -> int:
    """The newest Session Epoch that an Agent's home partition knows of: at least the one it gave to the Agent last."""

    async def read(client: Any, base: str) -> list[bytes | None]:
        async with client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.meta(base), "mint")
            pipe.hget(keys.epochs(base), agent)
            found: list[bytes | None] = await pipe.execute()
        return found

    mint, epochs = await store.run(read, store.base(store.partition_of(agent)))
    return max(int(mint or b"0"), int((epochs or b"0").split()[0]))


async def distrust(store: Store, agent: AgentId, *, session: int, minted: int) -> None:
    """Stops all accepting and starting until a person begins another incarnation; the first doubt stands.

    Refused (REVISION_CONFLICT) where one was begun meanwhile: look again.
    """
    found = [raw[0] or b"0" for raw in await store.run(_metas, _names(store), ("incarnation",))]
    calls = [("distrust", p, (store.replid, agent, session, minted, seen)) for p, seen in enumerate(found)]
    await store.call_all(calls)


async def read(store: Store) -> History:
    """What is so now, by plain reading."""
    found = await store.run(_metas, _names(store), ("quarantine", "doubt", "history"))
    begun = dict(_parse(line) for _, _, lines in found for line in (lines or b"").decode().splitlines())
    return History(
        quarantine_ms=max((int(ends or b"0") for ends, _, _ in found), default=0),
        doubt=next((name_of(doubt.decode().split()[0]) for _, doubt, _ in found if doubt), ""),
        begun=tuple(sorted(begun.values(), key=lambda one: -one.at_ms)),
    )


def _parse(line: str) -> tuple[str, IncarnationFacts]:
    """The action that began it, one and the same in all partitions, and what it began."""
    number, at_ms, actor, action, reason = line.split(" ")
    return action, IncarnationFacts(int(number), int(at_ms), name_of(actor), name_of(reason))


def _names(store: Store) -> list[str]:
    return [keys.meta(store.base(partition)) for partition in range(store.partitions)]


async def _metas(client: Any, names: Sequence[str], fields: Sequence[str]) -> list[list[bytes | None]]:
    async with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hmget(name, fields)
        found: list[list[bytes | None]] = await pipe.execute()
    return found
