"""What people write to submit work. A wrong field is refused as Misuse: field, value, bound, and what to do.

    MissionSpec(objective="...", work=[WorkSpec(id="a", capability="thumbnails", inputs={...})])

Only one field at a time is looked at here; what needs the whole Mission (dependencies, cycles, sizes) or the store's
time (deadlines) is looked at by `core.missions` and `core.items`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, Self, TypedDict, Unpack, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from treadle.shared import resources as of_resources
from treadle.shared.codec import shown
from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call
from treadle.shared.model import Risk, Urgency
from treadle.shared.names import CAPABILITY
from treadle.shared.policy import STANDARD_CLASS, WEIGHT_MAX, WEIGHT_MIN
from treadle.shared.versions import VERSION

from .core.wording import AWARE, misuse
from .core.wording import quoted as quoted

WORK_MAX = 1_000_000
AFTER_MAX = 1_000
OBJECTIVE_CHARS_MAX = 4_000
BUSINESS_IMPACT_MAX = 99_999
SLOTS_MAX = 1_024
START_BY_S_MAX = 86_400
RETRIES, RETRIES_MAX = 3, 100
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.001, 2_592_000.0
TIMEOUT_S_MIN, TIMEOUT_S_MAX = 0.001, 31_536_000.0
NOT_BEFORE_DAYS_MAX = 3_650
CANDIDATES_MAX = 16
TOOLS_MAX, BUDGETS_MAX, AMOUNT_MAX = 64, 16, 10**12
NAME_FORM = "must be 1 to 64 of a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit"
OFFER_S_MIN, OFFER_S_MAX = 0.1, 2_592_000.0
PREFERRED_S = 10.0
"""How long an item waits for those it prefers where nobody says."""
BUDGET_SLOT_S_MIN, BUDGET_SLOT_S_MAX = 0.001, 1e9
KEEP_RESULTS_S, KEEP_RESULTS_S_MIN, KEEP_RESULTS_S_MAX = 604_800, 60, 31_536_000
PRIORITY_CLASS = STANDARD_CLASS

OfferMode = Literal["named", "preferred"]
UrgencyName = Literal["critical", "high", "normal", "routine"]
RiskName = Literal["none", "low", "high"]


def _wrong(kind: LiteralString, said: str) -> PydanticCustomError:
    """What pydantic is to say of a field, in words that are made here: its own templates are literal text."""
    return PydanticCustomError(kind, "{said}", {"said": said})


def _mapping(value: object) -> dict[Any, Any]:
    """A copy of any mapping; its keys and values are judged by the codec, which names the path inside."""
    if not isinstance(value, Mapping):
        raise _wrong("mapping", "must be a dict")
    return dict(cast("Mapping[object, object]", value))


def _instant(value: object) -> object:
    """Only a datetime or ISO text: of a number nobody knows whether it counts from now or from 1970."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise _wrong("instant", "is not a date and time in ISO 8601") from None
    if not isinstance(value, datetime):
        raise _wrong("instant", f"is not a datetime; {AWARE}")
    return value


def _not_before(value: object) -> object:
    if isinstance(value, timedelta):
        if not timedelta(0) <= value <= timedelta(days=NOT_BEFORE_DAYS_MAX):
            raise _wrong("span", f"must be 0 to {NOT_BEFORE_DAYS_MAX:,} days from now")
        return value
    if not isinstance(value, datetime | str):
        raise _wrong("instant", f"is no time; {AWARE}, or a timedelta from the store's now")
    instant = _instant(value)
    if isinstance(instant, datetime) and instant.utcoffset() is None:
        raise _wrong("timezone_aware", "has no time zone")
    return instant


def _urgency(value: object) -> Urgency:
    if not isinstance(value, str) or value not in tuple(Urgency):
        raise _wrong("urgency", f"must be one of {', '.join(Urgency)}")
    return Urgency(value)


def _resources(value: object) -> dict[str, int]:
    try:
        return dict(of_resources.resources(value))
    except Misuse as wrong:
        raise _wrong("counted", str(wrong)) from None


def _risk(value: object) -> Risk:
    if not isinstance(value, str) or value not in tuple(Risk):
        raise _wrong("risk", f"must be one of {', '.join(Risk)}")
    return Risk(value)


def _new_deadline(value: object) -> object:
    if value is None or value == "none":
        return value
    instant = _instant(value)
    if isinstance(instant, datetime) and instant.utcoffset() is None:
        raise _wrong("timezone_aware", "has no time zone")
    return instant


def _retry(value: object) -> int | Retry:
    """A number says how often, with the usual backoff."""
    if isinstance(value, Retry):
        return value
    if isinstance(value, bool) or not isinstance(value, int | Mapping):
        raise _wrong("retry", f"must be a number of retries, 0 to {RETRIES_MAX}, or a Retry")
    if isinstance(value, int):
        if not 0 <= value <= RETRIES_MAX:
            raise _wrong("retry", f"must be 0 to {RETRIES_MAX} retries")
        return value
    try:
        return Retry(**cast("Mapping[str, Any]", value))
    except Misuse as problem:
        raise _wrong("nested", str(problem)) from None


def _objective(value: str) -> str:
    if not value.strip():
        raise _wrong("objective", "is empty; say in a sentence what the Mission is to achieve")
    return value


def _priority_class(value: str) -> str:
    if not CAPABILITY.fullmatch(value):
        raise _wrong("priority_class", "must be a class of the policy (`treadle policy show`)")
    return value


def _counted(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    work = cast("Sequence[object]", value)
    if len(work) > WORK_MAX:
        raise _wrong("counted", f"{len(work):,} items, at most {WORK_MAX:,} in one Mission; split it into several")
    return work


def _version(value: str) -> str:
    if not VERSION.fullmatch(value):
        raise _wrong("version", 'is no version; write it as "1.2.0"')
    return value


def _candidates(value: Sequence[str]) -> tuple[str, ...]:
    if not 1 <= len(value) <= CANDIDATES_MAX:
        raise _wrong("counted", f"{len(value)} Workers, must be 1 to {CANDIDATES_MAX}; leave it out to offer it to all")
    if len(set(value)) < len(value):
        raise _wrong("twice", "names a Worker twice")
    return tuple(value)


def _tools(value: Sequence[str]) -> tuple[str, ...]:
    if len(value) > TOOLS_MAX:
        raise _wrong("counted", f"{len(value)} tools, at most {TOOLS_MAX}")
    if wrong := next((name for name in value if not CAPABILITY.fullmatch(name)), None):
        raise _wrong("counted", f"{shown(wrong)} is no name of a tool; {NAME_FORM}")
    return tuple(sorted(set(value)))


def _budgets(value: object) -> dict[str, int]:
    given = _mapping(value)
    if len(given) > BUDGETS_MAX:
        raise _wrong("counted", f"{len(given)} dimensions, at most {BUDGETS_MAX}")
    for name, amount in given.items():
        if not isinstance(name, str) or not CAPABILITY.fullmatch(name):
            raise _wrong("counted", f"{shown(name)} is no name of what is spent; {NAME_FORM}")
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= AMOUNT_MAX:
            raise _wrong("counted", f"{name}: {shown(amount)}, must be a whole number, 0 to {AMOUNT_MAX:,}")
    return dict(sorted(given.items()))


def _few(value: Sequence[str]) -> tuple[str, ...]:
    if len(value) > AFTER_MAX:
        raise _wrong("counted", f"{len(value):,} ids, at most {AFTER_MAX:,}; put an item in between")
    return tuple(value)


def _within(least: float, most: float) -> AfterValidator:
    """Refuses a number outside both bounds, not-a-number included, and says both."""

    def check(value: float) -> float:
        if not least <= value <= most:
            raise _wrong("range", f"must be {_number(least)} to {_number(most)}")
        return value

    return AfterValidator(check)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


class _Spec(BaseModel, extra="forbid", frozen=True, strict=True):
    """Frozen, strict, no unknown fields; a wrong one is refused as Misuse."""

    if not TYPE_CHECKING:  # checkers keep the signature they derive from the fields

        def __init__(self, /, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as problem:
                of_work = WorkSpec if isinstance(self, WorkSpec | MissionSpec) else None
                raise misuse(type(self), fields, problem, of_work=of_work) from None

        # Says to pydantic that a spec inside a spec is validated as usual, so that the outer one names the whole path.
        __init__.__pydantic_base_init__ = True


class Retry(_Spec, frozen=True):
    """How often failed work is tried again, and how long it waits before: doubling from `first_s` up to `most_s`."""

    retries: Annotated[int, _within(0, RETRIES_MAX)] = RETRIES
    first_s: Annotated[float, _within(BACKOFF_S_MIN, BACKOFF_S_MAX)] = 1.0
    most_s: Annotated[float, _within(BACKOFF_S_MIN, BACKOFF_S_MAX)] = 300.0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most_s < self.first_s:
            raise _wrong("counted", f"most_s: {self.most_s:g} is less than first_s, {self.first_s:g}")
        return self


class OfferSpec(_Spec, frozen=True):
    """Whom an item is offered to, and for how long."""

    offer_to: Annotated[Sequence[str], AfterValidator(_candidates)] | None = None
    """The names of 1 to 16 Workers it is offered to; None: to every Worker that does such work."""
    offer: OfferMode = "preferred"
    """`preferred`: everybody's once they have let it pass; `named`: theirs only, a person offers it anew (`treadle offer`)."""
    offer_s: Annotated[float, _within(OFFER_S_MIN, OFFER_S_MAX)] | None = None
    """How long its offer may be accepted; None: 10 s where it prefers some, else until it is accepted."""

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if self.offer == "named" and self.offer_to is None:
            raise _wrong("counted", 'offer: "named" without offer_to; say in offer_to which Workers are asked')
        return self


class PrioritySpec(_Spec, frozen=True):
    """What is to change of an item's place in its own Mission; None leaves a value as it is."""

    urgency: Annotated[Urgency | UrgencyName, BeforeValidator(_urgency)] | None = None
    deadline: Annotated[datetime | Literal["none"] | None, PlainValidator(_new_deadline)] = None
    """`"none"`: it has none from now on."""
    business_impact: Annotated[int, _within(0, BUSINESS_IMPACT_MAX)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.urgency is None and self.deadline is None and self.business_impact is None:
            raise _wrong("counted", "give urgency, deadline or business_impact: what is to change")
        return self


class WorkOptions(TypedDict, total=False):
    """What may be said of any piece of work besides what it is; `WorkSpec` has the meanings and the bounds."""

    deadline: datetime | None
    not_before: datetime | timedelta | None
    urgency: Urgency | UrgencyName
    business_impact: int
    slots: int
    resources: Mapping[str, int]
    start_by_s: int
    version: str | None
    retry: int | Retry
    timeout_s: float | None
    approval: bool
    risk: Risk | RiskName
    tools: Sequence[str]
    budgets: Mapping[str, int]
    offer_to: Sequence[str] | None
    offer: OfferMode
    offer_s: float | None


class WorkSpec(OfferSpec, frozen=True):
    """One WorkItem: what is to be done (`capability`, `inputs`), after which others, how urgently, how wide."""

    id: Annotated[str, Field(min_length=1)]
    """Unique in its Mission, any script, at most 256 bytes."""
    capability: str
    version: Annotated[str, AfterValidator(_version)] | None = None
    """The least version of the handler, such as "1.2.0": it or a later 1.x does it. None: any."""
    inputs: Annotated[Mapping[str, Any], PlainValidator(_mapping)] = Field(default_factory=dict, repr=False)
    """Packed at most 1 MiB and 16 levels deep."""
    after: Annotated[Sequence[str], AfterValidator(_few)] = ()
    """Ids of the items that must be verified first, at most 1,000; their results are in `context.results`."""
    deadline: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = None
    not_before: Annotated[datetime | timedelta, PlainValidator(_not_before)] | None = None
    """Nobody starts it earlier: an aware datetime, or a timedelta that counts from its arrival in the store."""
    urgency: Annotated[Urgency | UrgencyName, BeforeValidator(_urgency)] = Urgency.NORMAL
    """Orders items inside their own Mission only."""
    business_impact: Annotated[int, _within(0, BUSINESS_IMPACT_MAX)] = 0
    slots: Annotated[int, _within(1, SLOTS_MAX)] = 1
    """How many Capacity Slots it takes at once."""
    resources: Annotated[Mapping[str, int], PlainValidator(_resources)] = Field(default_factory=dict)
    """What it needs besides slots while it runs, as {"gpu": 1}: a Worker that has so much free starts it (`--resources`)."""
    start_by_s: Annotated[int, _within(1, START_BY_S_MAX)] = 60
    """How long a Worker that accepted it may let it wait before it is offered to others again."""
    retry: Annotated[int | Retry, PlainValidator(_retry)] = RETRIES
    """How often it is tried again after a failure that may pass; 0: never. A crash of its Worker is no failure."""
    timeout_s: Annotated[float, _within(TIMEOUT_S_MIN, TIMEOUT_S_MAX)] | None = None
    """How long one attempt may run before it counts as failed (TimeoutError); None: as long as it takes."""
    tools: Annotated[Sequence[str], AfterValidator(_tools)] = ()
    """Which tools its handler may use (`context.tool`), at most 64; no other, so none where it names none."""
    budgets: Annotated[Mapping[str, int], PlainValidator(_budgets)] = Field(default_factory=dict)
    """What its handler may spend in all attempts, as {"tokens": 10_000, "tool_calls": 50}; no bound on what is not named."""
    approval: bool = False
    """Nobody starts it before a person has approved it (`mission.approve`, `treadle approve`)."""
    risk: Annotated[Risk | RiskName, BeforeValidator(_risk)] = Risk.NONE
    """What may go wrong that cannot be undone: "none", "low" or "high". The policy says which a person has to approve."""

    @classmethod
    def of(cls, call: Call[Any], *, id: str, after: Sequence[str] = (), **options: Unpack[WorkOptions]) -> WorkSpec:
        """A WorkSpec of a typed call, `thumbnails.spec(files=[...])`, whose inputs a type checker has seen."""
        if not isinstance(call, Call):
            raise Misuse(
                f"WorkSpec.of: takes what handler.spec(...) returns, not a value of type {type(call).__name__}"
            )
        return cls(id=id, capability=call.capability, inputs=call.inputs, after=after, **options)


class MissionSpec(_Spec, frozen=True):
    """One Mission: its objective and its WorkItems; `objective` and `work` are enough."""

    id: Annotated[str, Field(min_length=1)] | None = None
    """Give one to be able to submit again safely, from anywhere; None: each submit makes a new one."""
    objective: Annotated[str, Field(max_length=OBJECTIVE_CHARS_MAX), AfterValidator(_objective)]
    work: Annotated[Sequence[WorkSpec], BeforeValidator(_counted), AfterValidator(tuple)]
    """1 to 1,000,000 items; none at all is right for a Mission that is `open`."""
    account: Annotated[str, Field(min_length=1)] | None = None
    """The tenant whose share this uses; None: the actor that submits it."""
    weight: Annotated[float, _within(WEIGHT_MIN, WEIGHT_MAX)] = 1.0
    """Its share inside its account, against the account's other Missions; the policy grants 10 unless it says otherwise."""
    budget_slot_s: Annotated[float, _within(BUDGET_SLOT_S_MIN, BUDGET_SLOT_S_MAX)] | None = None
    """Once its runs have had so many seconds of slots, nothing more of it starts; what runs goes on. None: no bound."""
    priority_class: Annotated[str, AfterValidator(_priority_class)] = PRIORITY_CLASS
    """A class of the policy that is granted to the account."""
    deadline: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = None
    """None: 30 days after its creation."""
    open: bool = False
    """Grows by `mission.add` until `mission.seal`; it cannot end before."""
    keep_results_s: Annotated[int, _within(KEEP_RESULTS_S_MIN, KEEP_RESULTS_S_MAX)] = KEEP_RESULTS_S
    """How long it is kept after its end, with its results; who asks within 30 days from then is told that they expired."""

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if not self.work and not self.open:
            raise _wrong(
                "counted", f"work: 0 items, must be 1 to {WORK_MAX:,}; add a WorkSpec, or open=True to add them later"
            )
        return self
