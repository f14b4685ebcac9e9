"""A handle on one Mission: look, follow, wait, let it grow, stop it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import anyio
from treadle.shared.answers import Added, Ended, ItemView, MissionView, Receipt
from treadle.shared.errors import Corrupt, Expired, Misuse, Refused
from treadle.shared.lifecycle import MISSION_MOVES, TERMINAL_MISSIONS
from treadle.shared.model import Event, GroupId, ItemId, ItemState, MissionState, Urgency
from treadle.shared.names import name_of, token, unknown_mission
from treadle.shared.progress import Said
from treadle.shared.store import pictures
from treadle.shared.store.underway import underway

from . import commanding
from .asking import Asking
from .commanding import Target
from .core.items import has_deadline, offer_of, plan_items, priority_of
from .core.missions import check_ends
from .core.wording import quoted
from .explaining import Why, why_of
from .failures import MissionFailed, evidence_of, failure_of, result_of
from .specs import OfferMode, OfferSpec, PrioritySpec, UrgencyName, WorkSpec
from .waiting import why_mission

_TERMINAL_KINDS = frozenset(kind for kind, (_, state) in MISSION_MOVES.items() if state in TERMINAL_MISSIONS)


class Mission:
    """A handle on one Mission; it holds nothing open."""

    def __init__(self, asking: Asking, mission_id: str, receipt: Receipt | None = None) -> None:
        self.id = mission_id
        self.group = GroupId(token(mission_id, field="mission"))
        self.receipt = receipt
        """What its submission was answered; None for a handle that did not submit."""
        self._asking = asking

    def __repr__(self) -> str:
        return f"Mission({self.id!r})"

    async def view(self) -> MissionView:
        """The Mission as the store has it now; Refused (GROUP_NOT_FOUND) where there is none of this id."""
        view = await self._asking.ask(lambda store: store.mission(self.group))
        if view is None:
            raise unknown_mission(self.group)
        return view

    async def items(self) -> dict[str, ItemView]:
        """Its items as the store has them now, by their ids, in the order they were given; results are not read."""
        await self.view()
        items = await self._asking.wait(lambda store, _: store.items(self.group))
        return {name_of(item.item): item for item in items}

    async def progress(self) -> dict[str, Said]:
        """How far those of its items say they are that run now and said something, by their ids (`context.progress`)."""
        await self.view()
        runs = await self._asking.wait(lambda store, _: underway(store, [self.group]))
        return {run.item: run.progress for run in runs if run.progress is not None}

    async def why(self, item: str) -> Why:
        """Why an item waits, and what would change it, within half a second: the Workers that could run it are asked too.

        Refused (INVALID_COMMAND) where the Mission has no item of that id.
        """
        target = self._target(item)
        await self.view()
        facts = await self._asking.ask(lambda store: pictures.why(store, target.group, ItemId(target.item or "")))
        if facts is None:
            raise Refused(
                f"mission {quoted(self.id)} has no item {quoted(item)}; its `items()` tell their ids",
                code="INVALID_COMMAND",
            )
        return await self._asking.wait(lambda store, _: why_of(store, facts))

    async def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Its Events with a sequence above `after`, in order, each once, as they come; ends behind the terminal one.

        Corrupt where Events that the store counts are not in the log; Expired where they were kept and are gone.
        """
        view = await self.view()
        if view.is_expired:
            raise Expired(
                f"mission {quoted(self.id)} is {view.state}, and its Events were kept for their time and are gone; "
                "an archive may hold them"
            )
        if not 0 <= after <= view.last_seq:
            raise Misuse(f"after: {after}, must be 0 to {view.last_seq}, where the log of {quoted(self.id)} ends now")
        while view.state not in TERMINAL_MISSIONS or after < view.last_seq:
            events = await self._events_after(after)
            for event in events:
                after = event.seq
                yield event
                if event.kind in _TERMINAL_KINDS:
                    return
            if not events:
                known, view = view.last_seq, await self.view()
                if after < min(known, view.last_seq):
                    raise Corrupt(
                        f"mission {quoted(self.id)}: its log has no Event after {after}, but the store counts "
                        f"{view.last_seq}: the log was deleted or cut"
                    )

    async def _events_after(self, after: int) -> list[Event]:
        return await self._asking.wait(lambda store, wait_s: store.wait_log(self.group, after=after, timeout_s=wait_s))

    async def results(self, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109 - the public face
        """The result of each item by its id, once the Mission is approved.

        MissionFailed where it ended otherwise; Expired where its results were kept and are gone; TimeoutError where it
        has not ended within `timeout` seconds (None: waits for ever), with how far it has come and what it waits for; it
        goes on all the same.
        """
        view = await self.view()
        with anyio.move_on_after(timeout):
            while view.state not in TERMINAL_MISSIONS:
                await self._asking.wait_end(self.group, None)
                view = await self.view()
        if view.state not in TERMINAL_MISSIONS:
            view = await self.view()
        if view.state not in TERMINAL_MISSIONS:
            why = await self._asking.ask(lambda store: why_mission(store, view))
            raise TimeoutError(
                f"mission {quoted(self.id)} has not ended within {timeout} s: {why}; it goes on, ask again"
            )
        if view.is_expired:
            raise Expired(
                f"mission {quoted(self.id)} is {view.state}, and its results were kept for their time and are gone; "
                "ask earlier, or submit it with a longer keep_results_s"
            )
        items = await self._asking.wait(lambda store, _: store.items(self.group, bodies=True))
        if view.state is not MissionState.APPROVED:
            failed = tuple(failure_of(item) for item in items if item.state is ItemState.FAILED)
            cancelled = tuple(name_of(item.item) for item in items if item.state is ItemState.CANCELLED)
            raise MissionFailed(self.id, view.state, failed, cancelled)
        return {name_of(item.item): result_of(item) for item in items}

    # --- growing, of a Mission submitted with open=True ---

    async def add(self, work: Iterable[WorkSpec]) -> Added:
        """Add items; on return they are durable. An item added again with the same content is there once.

        Misuse names what is wrong, and nothing was written. Refused where an id is there with other content
        (ACTION_ID_COLLISION), where the Mission does not grow (any more), or where it or its account may not have so many
        items (QUOTA_EXCEEDED). Many items go in several calls: what was
        added before a later one is refused stays, and adding all of them again is right.
        """
        specs = list(work)
        for index, spec in enumerate(specs):
            if not isinstance(spec, WorkSpec):
                raise Misuse(f"add: work[{index}]: takes WorkSpecs, not a value of type {type(spec).__name__}")
        now_ms = await self._asking.ask(lambda store: store.now_ms()) if has_deadline(specs) else None
        return await commanding.add(self._asking, self._target(), plan_items(specs, now_ms=now_ms))

    async def seal(self) -> None:
        """End its growth: it ends when all its items have. Repeated, it changes nothing."""
        check_ends(self.id)
        await commanding.seal(self._asking, self._target())

    # --- stopping and going on ---

    async def cancel(self, reason: str = commanding.REASON) -> MissionState:
        """Cancel it: nothing of it starts or is accepted any more, and who runs an item of it is told.

        Gives its state, `cancelled`, however often it is repeated; Refused (INVALID_STATE_TRANSITION) where it has ended
        otherwise.
        """
        check_ends(self.id)
        return MissionState(await commanding.cancel(self._asking, self._target(), reason))

    async def cancel_item(self, item: str, reason: str = commanding.REASON) -> ItemState:
        """Cancel one item; a Mission that needs it can then not be approved.

        Gives its state, the same at each repetition: `cancelled`, or `failed` where it had failed and waited for another
        attempt. Refused (INVALID_STATE_TRANSITION) where it has ended otherwise.
        """
        return ItemState(await commanding.cancel(self._asking, self._target(item), reason))

    async def fail(self, item: str, evidence: str | Mapping[str, Any]) -> None:
        """Fail one item for good, with Evidence: a text, or a dict with `type` and `text`. It is not tried again."""
        await commanding.fail(self._asking, self._target(item), evidence_of(evidence, self._asking.actor))

    async def retry(self, item: str) -> None:
        """Have a failed or parked item done again, now, all its attempts before it.

        One that is parked as CHECKPOINT, since none of its Checkpoints can be trusted, is done from its beginning.
        Refused (INVALID_STATE_TRANSITION) where it is neither, or where the Mission has ended: that is final.
        """
        await commanding.retry(self._asking, self._target(item))

    async def unblock(self, item: str, resolution: Any = None) -> ItemState:
        """Let a blocked item go on; its handler is called anew and finds `resolution` (1 MiB at most) in its context.

        Gives its state: `queued` for the Worker it still belongs to, else `offered` to all. `items()` says of each blocked
        one why, since when, and what it needs. Refused (INVALID_STATE_TRANSITION) where it is not blocked.
        """
        return ItemState(await commanding.unblock(self._asking, self._target(item), resolution))

    async def approve(self, item: str, reason: str = commanding.REASON) -> bool:
        """Let an item be started that waits for Approval; False where it was approved before.

        It starts at once, or once nothing else holds it. To deny it, cancel the item. Refused (INVALID_STATE_TRANSITION)
        where it needs no Approval or has ended.
        """
        return await commanding.approve(self._asking, self._target(item), reason)

    async def offer(
        self, item: str, to: Sequence[str] | None = None, *, mode: OfferMode = "preferred", seconds: float | None = None
    ) -> None:
        """Offer one item again, now: to everybody, or to some Workers as `WorkSpec` says; all its attempts are before it.

        It counts for every later offer of the item. For what is open, offered, failed or parked, or was accepted by a Worker
        that let its lease or its start-by time pass. Refused: WORK_ALREADY_OWNED where a Worker has it,
        INVALID_STATE_TRANSITION where it waits for others, is verified or cancelled, or where the Mission has ended.
        """
        offer = offer_of(OfferSpec(offer_to=to, offer=mode, offer_s=seconds))
        await commanding.offer(self._asking, self._target(item), offer)

    async def prioritise(
        self,
        item: str,
        *,
        urgency: Urgency | UrgencyName | None = None,
        deadline: datetime | Literal["none"] | None = None,
        business_impact: int | None = None,
    ) -> ItemState:
        """Change the place of one item in this Mission, at once where it waits (C8); gives the state it is in now.

        What is None stays; `deadline="none"` takes its deadline away. An item that a Worker owns goes on undisturbed, and its
        new place counts from its next offer on. Refused: INVALID_STATE_TRANSITION where it, or the Mission, has ended.
        """
        spec = PrioritySpec(urgency=urgency, deadline=deadline, business_impact=business_impact)
        now_ms = await self._asking.ask(lambda store: store.now_ms()) if spec.deadline else None
        return ItemState(await commanding.prioritise(self._asking, self._target(item), priority_of(spec, now_ms)))

    # --- who works in it ---

    async def revoke(self, agent: str, reason: str = commanding.REASON) -> Ended:
        """End an Agent's Membership, at once, and keep it out: its handlers here are stopped, its items go to others.

        Whatever it still asks here is refused (MEMBERSHIP_STALE), and it reads no Event of this Mission. It need not be a
        member yet. Repeated, it changes nothing. Refused (INVALID_STATE_TRANSITION) where the Mission has ended.
        """
        return await commanding.revoke(self._asking, self._target(), agent, reason)

    async def admit(self, agent: str) -> bool:
        """Let an Agent in again, which sees the log from there on; False where it was not kept out.

        Refused (INVALID_STATE_TRANSITION) for a moment after its Membership ended, where it held more than 64 items.
        """
        return await commanding.admit(self._asking, self._target(), agent)

    def _target(self, item: str | None = None) -> Target:
        return Target(self.group, None if item is None else ItemId(token(item, field="item")))
