"""A handle on one job: its result, or why there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
from treadle.shared.answers import ItemView
from treadle.shared.errors import Expired, Refused
from treadle.shared.model import Capability, GroupId, ItemId, ItemState
from treadle.shared.names import token

from . import commanding
from .asking import Asking
from .commanding import Target
from .core.missions import standing_id
from .core.wording import quoted
from .failures import ADDRESS_SHOWN_MAX, JobCancelled, JobFailed, failure_of, result_of
from .waiting import why_job

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobReceipt:
    """What the store said when it took the job."""

    repeated: bool | None
    """Whether it was there already, by an earlier call or one whose reply was lost; None: some of its batch were."""
    no_worker: tuple[Capability, ...] = ()
    """Capabilities that no live Worker offers now: their jobs wait with reason NO_WORKER."""
    unschedulable: Mapping[Capability, int] = field(default_factory=dict[Capability, int])
    """Capabilities of jobs that are wider than every live Worker that offers them, with the slots of the largest."""
    lacking: Mapping[Capability, Mapping[str, int]] = field(default_factory=dict[Capability, Mapping[str, int]])
    """Capabilities of jobs that need more resources than any live Worker that offers them has, with the most of each."""


class Job(Generic[R]):
    """A handle on one job: an item of its account's standing Mission; it holds nothing open."""

    def __init__(
        self,
        asking: Asking,
        *,
        account: str,
        key: str,
        receipt: JobReceipt | None = None,
        decode: Callable[[Any], R],
    ) -> None:
        self.id = key
        """Its key: unique in its account."""
        self.account = account
        self.mission = standing_id(account)
        """The id of the Mission it is an item of."""
        self.receipt = receipt
        """What its enqueueing was answered; None for a handle made from its key."""
        self._group = GroupId(token(self.mission, field="account"))
        self._item = ItemId(token(key, field="key"))
        self._target = Target(self._group, self._item, f"job {quoted(self.address, ADDRESS_SHOWN_MAX)}")
        self._asking = asking
        self._decode = decode

    def __repr__(self) -> str:
        return f"Job({self.address!r})"

    @property
    def address(self) -> str:
        """What commands name it by: `jobs:ACCOUNT/KEY`."""
        return f"{self.mission}/{self.id}"

    async def view(self) -> ItemView:
        """The job as the store has it now; Expired where it is not there (any more)."""
        return await self._look()

    async def state(self) -> ItemState:
        """Its state now; Expired where it is not there (any more)."""
        return (await self._look()).state

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the public face
        """What its handler returned, as soon as that is there.

        JobFailed with the Evidence where it failed and is not tried again; JobCancelled; Expired where its result was kept
        and is gone; TimeoutError where it has not ended within `timeout` seconds (None: waits for ever), with what it
        waits for; it goes on all the same.
        """
        view = await self._look()
        with anyio.move_on_after(timeout):
            while not view.has_ended:
                await self._asking.wait_end(self._group, self._item)
                view = await self._look()
        if not view.has_ended:
            view = await self._look()
        if not view.has_ended:
            why = await self._asking.ask(lambda store: why_job(store, view, self._group))
            raise TimeoutError(f"{self._target} has not ended within {timeout} s: {why}; it goes on, ask again")
        if view.state is ItemState.FAILED:
            raise JobFailed(self.address, failure_of(view), attempts=min(view.failures + 1, view.lease_number))
        if view.state is ItemState.CANCELLED:
            raise JobCancelled(self.address)
        return self._decode(result_of(view))

    async def cancel(self, reason: str = commanding.REASON) -> ItemState:
        """Cancel it, in whatever state before its end; who runs it is told, and its result is not accepted any more.

        Gives its state, the same at each repetition: `cancelled`, or `failed` where it had failed and waited for another
        attempt. Refused (INVALID_STATE_TRANSITION) where it has ended otherwise.
        """
        return ItemState(await self._commanded(commanding.cancel(self._asking, self._target, reason)))

    async def retry(self) -> None:
        """Have it done again, now, where it failed or was parked, all its attempts before it."""
        await self._commanded(commanding.retry(self._asking, self._target))

    async def unblock(self, resolution: Any = None) -> ItemState:
        """Let it go on where it is blocked, as `Mission.unblock`."""
        return ItemState(await self._commanded(commanding.unblock(self._asking, self._target, resolution)))

    async def _look(self) -> ItemView:
        return self._there(await self._asking.ask(lambda store: store.item(self._group, self._item, bodies=True)))

    async def _commanded(self, command: Awaitable[T]) -> T:
        try:
            return await command
        except Refused as refused:
            if refused.code not in ("INVALID_COMMAND", "GROUP_NOT_FOUND"):
                raise
            raise self._gone() from None

    def _there(self, view: ItemView | None) -> ItemView:
        if view is None:
            raise self._gone()
        return view

    def _gone(self) -> Expired:
        return Expired(
            f"{self._target} is not in this store: its result was kept for its time and is gone, or there never was a job "
            "of this key and account"
        )
