"""Those of one client who wait for items: a few each at a doorbell of the store, a crowd together at their Group's log.

A doorbell says that something of its Group has ended, not what; so it serves one who waits on a connection of his own, and a
thousand of them would take turns. The log says what has ended: one of the crowd reads it and wakes the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from treadle.shared.errors import Backpressure, Corrupt
from treadle.shared.model import Event, EventKind, GroupId, ItemId, ItemView
from treadle.shared.store import Store

from .asking import Asking

AT_DOORBELLS_MAX = 16
"""Of one Group: who comes later joins the crowd."""
LOOK_AGAIN_S = 15.0
"""One of the crowd looks at his item himself this often, should its log be gone."""

WATCHED_LOOK_AGAIN_S = 1.0
"""Of an item that is watched by as many as the store allows."""

_ENDS = frozenset({EventKind.RESULT_ACCEPTED, EventKind.FAILED, EventKind.CANCELLED, EventKind.RETRIES_ENDED})


@dataclass(slots=True, eq=False)
class _Waiter:
    """One of the crowd."""

    bell: anyio.Event = field(default_factory=anyio.Event)
    has_ended: bool = False
    """Whether the log says so of what he waits for; where it rings without, it is his turn to read."""

    def ring(self, *, ended: bool) -> None:
        self.has_ended = self.has_ended or ended
        self.bell.set()


@dataclass(slots=True)
class _Followed:
    """A Group that somebody waits in."""

    at_doorbells: int = 0
    waiting: dict[ItemId, list[_Waiter]] = field(default_factory=dict)
    after: int | None = None
    """The sequence up to which its log was read."""
    is_read: bool = False
    """Whether one of the crowd reads it now."""
    is_damaged: bool = False

    def wake(self, events: list[Event]) -> None:
        """Wake those whose items have ended."""
        for event in events:
            self.after = event.seq
            if event.item is not None and event.kind in _ENDS:
                for one in self.waiting.get(event.item, ()):
                    one.ring(ended=True)

    def hand_on(self) -> None:
        """Have another one read on."""
        for waiting in self.waiting.values():
            for one in waiting:
                if not one.bell.is_set():
                    one.ring(ended=False)
                    return


class Crowd:
    """Waits for items of one client, however many do."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._followed: dict[GroupId, _Followed] = {}

    async def wait_item(self, group: GroupId, item: ItemId) -> ItemView | None:
        """As `Asking.wait_item`."""
        followed = self._followed.setdefault(group, _Followed())
        try:
            if followed.at_doorbells < AT_DOORBELLS_MAX or followed.is_damaged:
                return await self._at_doorbell(group, item, followed)
            return await self._join(group, item, followed)
        finally:
            if not followed.at_doorbells and not followed.waiting:
                self._followed.pop(group, None)

    async def _at_doorbell(self, group: GroupId, item: ItemId, followed: _Followed) -> ItemView | None:
        followed.at_doorbells += 1
        try:
            return await self._asking.wait(lambda store, wait_s: store.wait_item(group, item, timeout_s=wait_s))
        except Backpressure:  # too many clients watch it already: it is looked at now and then
            await anyio.sleep(WATCHED_LOOK_AGAIN_S)
            return await self._look(group, item)
        finally:
            followed.at_doorbells -= 1

    async def _join(self, group: GroupId, item: ItemId, followed: _Followed) -> ItemView | None:
        mine = _Waiter()
        followed.waiting.setdefault(item, []).append(mine)
        try:
            if followed.after is None:
                mission = await self._asking.ask(lambda store: store.mission(group))
                if followed.after is None:
                    followed.after = 0 if mission is None else mission.last_seq
            # Looked at after it is waited for: what ends from here on is in the log, where it was not read yet.
            view = await self._look(group, item)
            if view is None or view.has_ended:
                return view
            with anyio.move_on_after(LOOK_AGAIN_S):
                while not mine.has_ended:
                    if followed.is_read:
                        await mine.bell.wait()
                        mine.bell = anyio.Event()
                    else:
                        await self._read(group, followed, mine)
        finally:
            followed.waiting[item].remove(mine)
            if not followed.waiting[item]:
                del followed.waiting[item]
            if not followed.waiting:
                followed.after = None
            elif not followed.is_read:  # it may have been my turn
                followed.hand_on()
        return await self._look(group, item)

    async def _read(self, group: GroupId, followed: _Followed, mine: _Waiter) -> None:
        """Read the log for all of the crowd until one's own item has ended; then another one reads on."""
        followed.is_read = True

        async def read(store: Store, wait_s: float) -> list[Event]:
            return await store.wait_log(group, after=followed.after or 0, timeout_s=wait_s)

        try:
            while not mine.has_ended:
                followed.wake(await self._asking.wait(read))
        except Corrupt:
            followed.is_damaged = True  # from here on doorbells have to do
            for waiting in followed.waiting.values():
                for one in waiting:
                    one.ring(ended=True)
        finally:
            followed.is_read = False
            followed.hand_on()

    async def _look(self, group: GroupId, item: ItemId) -> ItemView | None:
        return await self._asking.ask(lambda store: store.item(group, item, bodies=True))
