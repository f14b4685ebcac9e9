"""Those of one client who wait for an end: the store rings one inbox for all of them, and one of them listens for all.

A ring says what has ended. It can be lost, with the connection that listens, so everybody looks again now and then.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import anyio
from treadle.shared.errors import Backpressure
from treadle.shared.model import GroupId, ItemId

from .asking import Asking

LOOK_AGAIN_S, LOOK_AGAIN_S_MAX = 5.0, 40.0
"""How long a waiter trusts the bell, with few and with many beside him; less than the store remembers whom to ring."""
LOOKS_EACH_S = 200
"""Of all waiters together, once there are that many."""
CROWDED_S = 1.0
"""The same for what the store rings no more inboxes for: too many clients wait for it."""

What = tuple[GroupId, ItemId | None]
"""An item, or with None a Mission."""


@dataclass(slots=True, eq=False)
class _Waiter:
    bell: anyio.Event = field(default_factory=anyio.Event)
    has_ended: bool = False
    """Whether what he waits for has rung; where the bell is set without, it is his turn to listen."""

    def ring(self, *, ended: bool) -> None:
        self.has_ended = self.has_ended or ended
        self.bell.set()


class Doorbells:
    """Waits for ends, however many do at a time."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._inbox = f"client.{secrets.token_hex(8)}"
        self._waiting: dict[What, list[_Waiter]] = {}
        self._count = 0
        self._is_listened = False

    async def wait(self, group: GroupId, item: ItemId | None) -> None:
        """Return once it has ended or is not there, or after some seconds, for another look."""
        mine = _Waiter()
        self._waiting.setdefault((group, item), []).append(mine)
        self._count += 1
        try:
            # Watched after it is waited for: whoever listens now hears of it.
            if await self._asking.ask(lambda store: store.watch(group, item, self._inbox)):
                await self._until_rung(mine)
        except Backpressure:
            await anyio.sleep(CROWDED_S)
        finally:
            self._leave((group, item), mine)

    async def _until_rung(self, mine: _Waiter) -> None:
        with anyio.move_on_after(min(LOOK_AGAIN_S_MAX, max(LOOK_AGAIN_S, self._count / LOOKS_EACH_S))):
            while not mine.has_ended:
                if self._is_listened:
                    await mine.bell.wait()
                    mine.bell = anyio.Event()
                else:
                    await self._listen(mine)

    async def _listen(self, mine: _Waiter) -> None:
        """Listen for all, until one's own has rung; then another one does."""
        self._is_listened = True
        try:
            while not mine.has_ended:
                rung = await self._asking.wait(lambda store, wait_s: store.listen(self._inbox, timeout_s=wait_s))
                for what in rung:
                    for one in self._waiting.get(what, ()):
                        one.ring(ended=True)
        finally:
            self._is_listened = False

    def _leave(self, what: What, mine: _Waiter) -> None:
        self._count -= 1
        self._waiting[what].remove(mine)
        if not self._waiting[what]:
            del self._waiting[what]
        if not self._is_listened:  # it may have been my turn
            for waiting in self._waiting.values():
                for one in waiting:
                    if not one.bell.is_set():
                        one.ring(ended=False)
                        return
