"""One-off jobs: what was asked for becomes items of the account's standing Mission, in one call where that is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from treadle.shared.answers import Added
from treadle.shared.errors import Misuse, Refused
from treadle.shared.inputs import Call, as_it_is
from treadle.shared.model import NewItem
from treadle.shared.names import name_of, token

from . import commanding
from .asking import Asking, new_id
from .commanding import Target
from .core.items import BATCH_MAX, has_deadline, plan_items
from .core.missions import plan_standing
from .core.wording import quoted
from .failures import ADDRESS_SHOWN_MAX
from .job import Job, JobReceipt
from .specs import WorkOptions, WorkSpec

R = TypeVar("R")


class Marked(Protocol[R]):
    """A handler as `@handler` gives it back, as far as it must be known here."""

    def spec(self, *args: Any, **fields: Any) -> Call[R]:
        """One piece of work for it."""
        ...


Work = str | WorkSpec | Call[Any] | Marked[Any]
"""What may be enqueued: a capability's name, a WorkSpec, a typed call of a handler, or the handler itself."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One job as it was asked for: what the store is to have, and how its result is read."""

    spec: WorkSpec
    decode: Callable[[Any], Any]


def asked(work: Work, inputs: Mapping[str, Any] | None, key: str | None, options: WorkOptions) -> Asked:
    """One job; Misuse names what is wrong."""
    if isinstance(work, WorkSpec):
        if inputs is not None or key is not None or options:
            raise Misuse("enqueue: a WorkSpec has its own inputs, id (the key) and options; give nothing beside it")
        return Asked(work, as_it_is)
    decode: Callable[[Any], Any] = as_it_is
    if isinstance(work, str):
        capability = work
    else:
        call = _call(work, inputs)
        capability, inputs, decode = call.capability, call.inputs, call.result_of
    if key is not None:
        token(key, field="key")
    spec = WorkSpec(
        id=new_id("j") if key is None else key,
        capability=capability,
        inputs={} if inputs is None else inputs,
        **options,
    )
    return Asked(spec, decode)


def _call(work: Call[Any] | Marked[Any], inputs: Mapping[str, Any] | None) -> Call[Any]:
    if isinstance(work, Call):
        if inputs is not None:
            raise Misuse("enqueue: handler.spec(...) has its inputs already; give none beside it")
        return work
    if not callable(getattr(work, "spec", None)):
        raise Misuse(
            "enqueue: takes a capability's name, handler.spec(...), a handler or a WorkSpec, not a value of type "
            f"{type(work).__name__}"
        )
    if inputs is not None and not (isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)):
        raise Misuse("enqueue: inputs: must be a dict whose keys are str")
    call = work.spec(**(inputs or {}))
    if not isinstance(call, Call):
        raise Misuse(
            f"enqueue: {type(work).__name__}.spec(...) gives a value of type {type(call).__name__}, not a Call"
        )
    return call


async def enqueue_one(asking: Asking, account: str, one: Asked) -> Job[Any]:
    """Put one job into the standing Mission."""
    return (await _enqueue(asking, account, [one]))[0]


async def enqueue_all(
    asking: Asking, account: str, work: Iterable[WorkSpec | Call[Any]]
) -> AsyncIterator[list[Job[Any]]]:
    """Put jobs into the standing Mission, piece by piece; no more than a piece of `work` is held."""
    left = iter(work)
    while piece := [asked(one, None, None, {}) for one in islice(left, BATCH_MAX)]:
        yield await _enqueue(asking, account, piece)


async def _enqueue(asking: Asking, account: str, jobs: list[Asked]) -> list[Job[Any]]:
    made = [Job(asking, account=account, key=one.spec.id, decode=one.decode) for one in jobs]
    specs = [one.spec for one in jobs]
    now_ms = await asking.ask(lambda store: store.now_ms()) if has_deadline(specs) else None
    added = await _put(asking, account, plan_items(specs, now_ms=now_ms, called=called))
    receipt = JobReceipt(_repeated(added), added.no_worker, added.unschedulable, added.lacking)
    for job in made:
        job.receipt = receipt
    return made


async def _put(asking: Asking, account: str, items: tuple[NewItem, ...]) -> Added:
    """Into the standing Mission, which is made where it is the account's first job."""
    standing = plan_standing(account, actor=asking.actor)
    target = Target(standing.group)
    try:
        return await commanding.add(asking, target, items, account=standing.account)
    except Refused as refused:
        if refused.code != "GROUP_NOT_FOUND":
            raise _said(refused, standing.mission) from None
    await asking.ask(lambda store: store.create(standing))
    try:
        return await commanding.add(asking, target, items, account=standing.account)
    except Refused as refused:
        raise _said(refused, standing.mission) from None


def _said(refused: Refused, mission: str) -> Refused:
    """The refusal of an addition, in the words of who enqueues."""
    if refused.code == "ACTION_ID_COLLISION":
        key = name_of(refused.details.get("item", ""))
        address = quoted(f"{mission}/{key}", ADDRESS_SHOWN_MAX)
        text = (
            f"key: job {address} is in the store with other content; enqueue it unchanged to get the same job again, or "
            "under another key"
        )
    elif refused.code == "INVALID_STATE_TRANSITION":
        text = f"account: its jobs' Mission takes no more ({refused}); enqueue for another account, or submit a MissionSpec"
    else:
        return refused
    return Refused(text, code=refused.code, details=refused.details)


def called(_: int, key: str) -> str:
    """What messages call a job that is not in the store yet."""
    return f"job (key {quoted(key)})"


def _repeated(added: Added) -> bool | None:
    if added.created and added.repeated:
        return None
    return added.repeated > 0
