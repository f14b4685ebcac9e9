"""From WorkSpecs to what the store takes (`NewItem`): checked, packed, in topological order, each with its digest.

Pure: the same specs and `now_ms` give the same items in every process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import ItemId, NewItem, Priority, Risk, Urgency
from treadle.shared.names import check_capability, token
from treadle.shared.resources import packed
from treadle.shared.versions import shelf, versioned

from ..specs import PREFERRED_S, RETRIES, OfferSpec, PrioritySpec, Retry, WorkSpec
from .graph import topological
from .wording import place

BATCH_DEPENDENCIES_MAX = 1_024
BATCH_MAX, BATCH_BYTES_MAX = 256, 1 << 20
"""Of one call that adds items (design.md 3.4)."""
TIME_MS_MAX = 10**14
"""From here on (the year 5138) a number is no longer exact in the store's scripts (design.md 3.10)."""
DIGEST_FORM = "treadle.item.1"
_CONTENT_BYTES_MAX = 4 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_RETRY = Retry()
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})


def plan_items(
    work: Sequence[WorkSpec], *, now_ms: int | None, alone: bool = False, called: Callable[[int, str], str] = place
) -> tuple[NewItem, ...]:
    """Plan items, each behind those of them that it waits for; Misuse for what could not be stored.

    `now_ms` is the store's time, by which a deadline is past; None leaves that open. Where the work does not stand
    `alone`, it may wait for items that are in its Mission already. `called` says which item a message is about.
    """
    return tuple([_plan(work[index], index, now_ms, called) for index in topological(work, alone=alone)])


def listed(item: NewItem) -> tuple[str, ...]:
    """What its Mission lists of an item: its capability, and whom it asks by name."""
    asked = item.offer.partition(" ")[0].partition(":")[2]
    return (shelf(item.capability), *(f">{agent}" for agent in asked.split(",") if agent))


def has_deadline(work: Sequence[WorkSpec]) -> bool:
    """Whether the store's time is needed to plan it."""
    return any(item.deadline is not None for item in work)


def _plan(spec: WorkSpec, index: int, now_ms: int | None, called: Callable[[int, str], str]) -> NewItem:
    try:
        return _planned(spec, "", now_ms)
    except Misuse:
        # To say where it is takes longer than to plan it: only what is wrong is planned with its name.
        return _planned(spec, f"{called(index, spec.id)}: ", now_ms)


def _planned(spec: WorkSpec, where: str, now_ms: int | None) -> NewItem:
    item = ItemId(token(spec.id, field=where + "id"))
    capability = versioned(check_capability(spec.capability, field=where + "capability"), spec.version or "")
    inputs = codec.pack(spec.inputs, field=where + "inputs", limit=codec.INPUTS_MAX)
    after = tuple([ItemId(token(name, field=where + "after")) for name in spec.after])
    urgency = Urgency(spec.urgency)
    ends_ms = deadline_ms(spec.deadline, where + "deadline", now_ms)
    not_before = _not_before(spec.not_before, where + "not_before")
    retry = _retry(spec.retry)
    contract = _contract(spec, where)
    offer = offer_of(spec, where)
    content: list[object] = [DIGEST_FORM, item, capability, _canonical(spec.inputs, inputs), sorted(after), spec.slots]
    content += [urgency.value, spec.business_impact, ends_ms, spec.start_by_s, not_before, retry, contract]
    gates = "approval" if spec.approval else ""
    risk = "" if spec.risk == Risk.NONE else f"risk:{spec.risk}"
    needs = tuple(sorted(spec.resources.items()))
    content += [part for part in (offer, gates, risk, f"resources:{packed(needs)}" if needs else "") if part]
    return NewItem(
        item=item,
        capability=capability,
        inputs=inputs,
        contract=contract,
        after=after,
        width=spec.slots,
        urgency=urgency,
        business_impact=spec.business_impact,
        deadline_ms=ends_ms,
        start_by_s=spec.start_by_s,
        not_before=not_before,
        retry=retry,
        offer=offer,
        gates=gates,
        risk=Risk(spec.risk),
        resources=needs,
        timeout_ms=math.ceil(1000 * (spec.timeout_s or 0)),
        # Everything that was asked for, nothing of when or by whom: what tells two contents under one id apart.
        digest=codec.digest(codec.pack(content, field="item", limit=_CONTENT_BYTES_MAX)),
    )


def deadline_ms(deadline: datetime | None, field: str, now_ms: int | None) -> int:
    """The deadline in the store's milliseconds, 0 where there is none; Misuse for one that is naive, past or too far."""
    if deadline is None:
        return 0
    if deadline.utcoffset() is None:
        raise Misuse(f"{field}: {deadline.isoformat()} has no time zone; use an aware datetime, as datetime.now(UTC)")
    at_ms = (deadline - _EPOCH) // _MILLISECOND
    if at_ms <= (now_ms or 0):
        now = (_EPOCH + (now_ms or 0) * _MILLISECOND).isoformat(timespec="milliseconds")
        raise Misuse(f"{field}: {deadline.isoformat()} is in the past, the store's time is {now}; give a later one")
    if at_ms >= TIME_MS_MAX:
        raise Misuse(f"{field}: {deadline.isoformat()} is too far away, must be before the year 5138; leave it out")
    return at_ms


def _not_before(moment: datetime | timedelta | None, field: str) -> str:
    """Absolute milliseconds, rounded up, or `+milliseconds` from the store's now; '' where it need not wait."""
    if moment is None:
        return ""
    if isinstance(moment, timedelta):
        span_ms = -(-moment // _MILLISECOND)
        return f"+{span_ms}" if span_ms > 0 else ""
    at_ms = -((_EPOCH - moment) // _MILLISECOND)
    if at_ms >= TIME_MS_MAX:
        raise Misuse(f"{field}: {moment.isoformat()} is too far away, must be before the year 5138; leave it out")
    return str(at_ms) if at_ms > 0 else ""


def _retry(retry: int | Retry) -> str:
    if not isinstance(retry, Retry):
        return "" if retry == RETRIES else f"{retry} {_ms(_RETRY.first_s)} {_ms(_RETRY.most_s)}"
    return "" if retry == _RETRY else f"{retry.retries} {_ms(retry.first_s)} {_ms(retry.most_s)}"


def offer_of(spec: OfferSpec, where: str = "") -> str:
    """Whom an item is offered to and for how long, as the store has it; '' for everybody, until it is accepted."""
    seconds = spec.offer_s
    if spec.offer_to is None:
        return "" if seconds is None else f"- {_ms(seconds)}"
    if seconds is None:
        seconds = PREFERRED_S if spec.offer == "preferred" else 0
    asked = ",".join([token(name, field=where + "offer_to") for name in spec.offer_to])
    return f"{spec.offer}:{asked} {_ms(seconds)}"


def priority_of(spec: PrioritySpec, now_ms: int | None) -> Priority:
    """What is to change, as the store has it; `now_ms` as of `plan_items`."""
    ends = spec.deadline
    return Priority(
        urgency=None if spec.urgency is None else Urgency(spec.urgency),
        deadline_ms=None if ends is None else deadline_ms(None if ends == "none" else ends, "deadline", now_ms),
        business_impact=spec.business_impact,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _contract(spec: WorkSpec, where: str) -> bytes:
    """What only the Worker has to know; empty where all of it is the default."""
    said = {"timeout_s": spec.timeout_s, "tools": list(spec.tools), "budgets": dict(spec.budgets)}
    given = {name: value for name, value in said.items() if value}
    return codec.pack(given, field=where + "contract", limit=codec.EVENT_MAX) if given else b""


def _canonical(inputs: object, raw: bytes) -> bytes:
    """`raw`, the packed inputs, as they are packed with the keys of every dict in one order."""
    if _in_order(inputs):
        return raw
    ordered = _ordered(codec.unpack(raw, what="inputs"))
    return codec.pack(ordered, field="inputs", limit=codec.INPUTS_MAX)


def _in_order(value: object) -> bool:
    """Whether the keys of every dict in it are in order already; False where it takes more than a look."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    children: Any = value
    if kind is dict:
        if len(children) > 1:
            try:
                if list(children) != sorted(children):
                    return False
            except TypeError:
                return False
        return all(map(_in_order, children.values()))
    if kind is list or kind is tuple:
        return all(map(_in_order, children))
    return False


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _ordered(fields[key]) for key in sorted(fields)}
    if isinstance(value, list):
        return [_ordered(child) for child in cast("list[object]", value)]
    return value


def batches(items: Sequence[NewItem]) -> Iterator[tuple[NewItem, ...]]:
    """The items in their order, in pieces that one call of the store takes: so many, with so many dependencies, and so many
    bytes or one item."""
    piece: list[NewItem] = []
    size = edges = 0
    for item in items:
        weight = len(item.inputs) + sum(map(len, item.after))
        full = len(piece) == BATCH_MAX or edges + len(item.after) > BATCH_DEPENDENCIES_MAX
        if piece and (full or size + weight > BATCH_BYTES_MAX):
            yield tuple(piece)
            piece, size, edges = [], 0, 0
        piece.append(item)
        size, edges = size + weight, edges + len(item.after)
    if piece:
        yield tuple(piece)
