"""What people write to submit a Mission. A wrong field is refused as Misuse: field, value, bound, and what to do.

    MissionSpec(objective="...", work=[WorkSpec(id="a", capability="thumbnails", inputs={...})])

Only one field at a time is looked at here; what needs the whole Mission (dependencies, cycles, sizes) or the store's
time (deadlines) is looked at by `core.missions.plan_mission`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from treadle.shared.codec import shown
from treadle.shared.errors import Misuse
from treadle.shared.model import Urgency

WORK_MAX = 256
OBJECTIVE_CHARS_MAX = 4_000
WEIGHT_MIN, WEIGHT_MAX = 0.001, 10.0
"""Service divided by a smaller weight would not stay exact in the store; more is not granted by the default policy."""
BUSINESS_IMPACT_MAX = 99_999
SLOTS_MAX = 1_024
START_BY_S_MAX = 86_400
PRIORITY_CLASS = "standard"
NAME_SHOWN_MAX = 40
ERRORS_SHOWN_MAX = 3

NOT_YET = frozenset(
    {"version", "not_before", "retry", "timeout_s", "resources", "risk", "approval", "effects"}
    | {"budget", "owner", "definition_of_done", "final_approval"}
)
"""Fields that this version does not have yet."""
_NEVER_SHOWN = frozenset({"inputs", "work"})
"""Their content may be large, or a secret."""
_AWARE = "use an aware datetime, as datetime.now(UTC) + timedelta(hours=1)"


def _mapping(value: object) -> dict[Any, Any]:
    """A copy of any mapping; its keys and values are judged by the codec, which names the path inside."""
    if not isinstance(value, Mapping):
        raise PydanticCustomError("mapping", "must be a dict")
    return dict(value)


def _instant(value: object) -> object:
    """Only a datetime or ISO text: of a number nobody knows whether it counts from now or from 1970."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise PydanticCustomError("instant", "is not a date and time in ISO 8601") from None
    if not isinstance(value, datetime):
        raise PydanticCustomError("instant", f"is not a datetime; {_AWARE}")
    return value


def _urgency(value: object) -> Urgency:
    if not isinstance(value, str) or value not in tuple(Urgency):
        raise PydanticCustomError("urgency", f"must be one of {', '.join(Urgency)}")
    return Urgency(value)


def _objective(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("objective", "is empty; say in a sentence what the Mission is to achieve")
    return value


def _priority_class(value: str) -> str:
    if value != PRIORITY_CLASS:
        raise PydanticCustomError("priority_class", f'must be "{PRIORITY_CLASS}", the only class of the policy')
    return value


def _counted(value: object) -> object:
    if isinstance(value, list | tuple) and not 1 <= len(value) <= WORK_MAX:
        todo = "split it into several Missions" if value else "add a WorkSpec"
        raise PydanticCustomError(
            "counted", f"{len(value)} items, must be 1 to {WORK_MAX} in one call until chunked load exists; {todo}"
        )
    return value


class _Spec(BaseModel, extra="forbid", frozen=True, strict=True):
    """Frozen, strict, no unknown fields; a wrong one is refused as Misuse."""

    if not TYPE_CHECKING:  # checkers keep the signature they derive from the fields

        def __init__(self, /, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as problem:
                raise _misuse(type(self), fields, problem) from None

        # Says to pydantic that a spec inside a spec is validated as usual, so that the outer one names the whole path.
        __init__.__pydantic_base_init__ = True


class WorkSpec(_Spec, frozen=True):
    """One WorkItem: what is to be done (`capability`, `inputs`), after which others, how urgently, how wide."""

    id: Annotated[str, Field(min_length=1)]
    """Unique in its Mission, any script, at most 256 bytes."""
    capability: str
    inputs: Annotated[Mapping[str, Any], PlainValidator(_mapping)] = Field(default_factory=dict, repr=False)
    """Packed at most 1 MiB and 16 levels deep."""
    after: Annotated[Sequence[str], AfterValidator(tuple)] = ()
    """Ids of the items that must be verified first; their results are in `context.results`."""
    deadline: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = None
    urgency: Annotated[Urgency | Literal["critical", "high", "normal", "routine"], BeforeValidator(_urgency)] = (
        Urgency.NORMAL
    )
    """Orders items inside their own Mission only."""
    business_impact: Annotated[int, Field(ge=0, le=BUSINESS_IMPACT_MAX)] = 0
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX)] = 1
    """How many Capacity Slots it takes at once."""
    start_by_s: Annotated[int, Field(ge=1, le=START_BY_S_MAX)] = 60
    """How long a Worker that accepted it may let it wait before it is offered to others again."""


class MissionSpec(_Spec, frozen=True):
    """One Mission: its objective and its WorkItems; `objective` and `work` are enough."""

    id: Annotated[str, Field(min_length=1)] | None = None
    """Give one to be able to submit again safely, from anywhere; None: each submit makes a new one."""
    objective: Annotated[str, Field(max_length=OBJECTIVE_CHARS_MAX), AfterValidator(_objective)]
    work: Annotated[Sequence[WorkSpec], BeforeValidator(_counted), AfterValidator(tuple)]
    account: Annotated[str, Field(min_length=1)] | None = None
    """The tenant whose share this uses; None: the actor that submits it."""
    weight: Annotated[float, Field(ge=WEIGHT_MIN, le=WEIGHT_MAX, allow_inf_nan=False)] = 1.0
    """Its share inside its account, against the account's other Missions."""
    priority_class: Annotated[str, AfterValidator(_priority_class)] = PRIORITY_CLASS
    deadline: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = None
    """None: 30 days after its creation."""


def quoted(text: str) -> str:
    """A name in a message: in double quotes, cut, and without characters that could forge a line of a log."""
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:NAME_SHOWN_MAX])
    return f'"{safe}{"..." if len(text) > NAME_SHOWN_MAX else ""}"'


def place(index: int, item: str) -> str:
    """Where in a Mission an item stands, as messages say it."""
    return f"work[{index}] (id {quoted(item)})" if item else f"work[{index}]"


_SAYINGS = {
    "missing": "is required",
    "timezone_aware": f"has no time zone; {_AWARE}",
    "is_instance_of": "must be a list",
    "sequence_str": "must be a list, not one str",
    "string_type": "must be a str",
    "string_unicode": "holds a lone surrogate; use valid Unicode",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be finite",
    "model_type": "must be a WorkSpec, or a dict of its fields",
}


def _misuse(spec: type[BaseModel], fields: Mapping[str, Any], problem: ValidationError) -> Misuse:
    errors = problem.errors(include_url=False)
    said = [_say(spec, fields, error) for error in errors[:ERRORS_SHOWN_MAX]]
    if len(errors) > ERRORS_SHOWN_MAX:
        said.append(f"and {len(errors) - ERRORS_SHOWN_MAX} more")
    return Misuse("; ".join(said))


def _say(spec: type[BaseModel], fields: Mapping[str, Any], error: ErrorDetails) -> str:
    path = list(error["loc"])
    where = ""
    if spec is WorkSpec:
        named = str(fields.get("id", ""))
        where = f"WorkSpec (id {quoted(named)}): " if named else "WorkSpec: "
    elif len(path) > 1 and path[0] == "work" and isinstance(path[1], int):
        item = fields["work"][path[1]]
        named = item.get("id", "") if isinstance(item, Mapping) else getattr(item, "id", "")
        where = place(path[1], str(named)) + ": "
        spec, path = WorkSpec, path[2:]
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    label = f"{where}{name}: " if name else where
    if error["type"] == "extra_forbidden":
        return label + _say_unknown(name, spec)
    saying = _SAYINGS.get(error["type"]) or error["msg"].replace("Input should be", "must be")
    if error["type"] in ("missing", "counted"):
        return label + saying
    if error["type"] == "string_too_long":
        return f"{label}{len(error['input']):,} characters, at most {error['ctx']['max_length']:,}"
    if not path or path[0] in _NEVER_SHOWN:
        return f"{label}a value of type {type(error['input']).__name__[:NAME_SHOWN_MAX]} {saying}"
    return f"{label}{shown(error['input'])} {saying}"


def _say_unknown(name: str, spec: type[BaseModel]) -> str:
    if name in NOT_YET:
        return "is not available in this version; leave it out"
    likely = get_close_matches(name, spec.model_fields, 1)
    return "is not a field; " + (f"did you mean {likely[0]}?" if likely else f"known: {', '.join(spec.model_fields)}")
