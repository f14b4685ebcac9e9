"""How messages name things: an item and its place, a field, its value, its bound, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from treadle.shared.codec import shown
from treadle.shared.errors import Misuse
from treadle.shared.resources import packed
from treadle.shared.versions import spoken

NAME_SHOWN_MAX = 40
ERRORS_SHOWN_MAX = 3
LIKELY_AMONG_MAX = 5_000
"""A guess among more names than this would take longer than its reader has."""

NOT_YET = frozenset({"effects"} | {"budget", "owner", "definition_of_done", "final_approval"})
"""Fields that this version does not have yet."""
_NEVER_SHOWN = frozenset({"inputs", "work"})
"""Their content may be large, or a secret."""
AWARE = "use an aware datetime, as datetime.now(UTC) + timedelta(hours=1)"

_SAYINGS = {
    "missing": "is required",
    "timezone_aware": f"has no time zone; {AWARE}",
    "is_instance_of": "must be a list",
    "sequence_str": "must be a list, not one str",
    "string_type": "must be a str",
    "string_unicode": "holds a lone surrogate; use valid Unicode",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be True or False",
    "finite_number": "must be finite",
    "model_type": "must be a WorkSpec, or a dict of its fields",
}
_WRITE = {
    "id": 'give it a name of its own, as id="a"',
    "capability": 'give the name of its handler, as capability="thumbnails"',
}
"""Of an item: what to write where a field is left out."""
_JOB = 'or, for a job, enqueue("thumbnails", inputs), which makes one'
_SAYS_ALL = frozenset({"missing", "counted"})
"""Kinds of errors whose message needs no value before it."""


def quoted(text: str, most: int = NAME_SHOWN_MAX) -> str:
    """A name in a message: in double quotes, cut, and without characters that could forge a line of a log."""
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:most])
    return f'"{safe}{"..." if len(text) > most else ""}"'


def place(index: int, item: str) -> str:
    """Where in a Mission an item stands, as messages say it."""
    return f"work[{index}] (id {quoted(item)})" if item else f"work[{index}]"


def likely(name: str, known: Mapping[str, Any] | list[str]) -> str | None:
    """The one of the known names that was probably meant."""
    found = get_close_matches(name, known, 1) if len(known) <= LIKELY_AMONG_MAX else []
    return found[0] if found else None


def misuse(
    spec: type[BaseModel], fields: Mapping[str, Any], problem: ValidationError, *, of_work: type[BaseModel] | None
) -> Misuse:
    """What pydantic found wrong in `fields` of `spec`, as one Misuse; `of_work` is the spec of the items in `work`.

    A spec that is itself such an item says its id first.
    """
    errors = problem.errors(include_url=False)
    said = [_say(spec, fields, error, of_work) for error in errors[:ERRORS_SHOWN_MAX]]
    if len(errors) > ERRORS_SHOWN_MAX:
        said.append(f"and {len(errors) - ERRORS_SHOWN_MAX} more")
    return Misuse("; ".join(said))


def _say(spec: type[BaseModel], fields: Mapping[str, Any], error: ErrorDetails, of_work: type[BaseModel] | None) -> str:
    path = list(error["loc"])
    where = ""
    if spec is of_work:
        named = str(fields.get("id", ""))
        where = f"{spec.__name__} (id {quoted(named)}): " if named else f"{spec.__name__}: "
    elif of_work is not None and len(path) > 1 and path[0] == "work" and isinstance(path[1], int):
        where = place(path[1], str(_id_of(fields["work"][path[1]]))) + ": "
        spec, path = of_work, path[2:]
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    label = f"{where}{name}: " if name else where
    if error["type"] == "extra_forbidden":
        return label + _say_unknown(name, spec)
    if error["type"] == "nested":  # a spec inside this one has named its own field already
        return f"{where}{name}.{error['msg']}"
    saying = _SAYINGS.get(error["type"]) or error["msg"].replace("Input should be", "must be")
    if error["type"] == "missing" and spec is of_work and name in _WRITE:
        is_alone = len(error["loc"]) == 1
        return f"{label}{saying}; {_WRITE[name]}" + (f", {_JOB}" if is_alone and name == "id" else "")
    if error["type"] in _SAYS_ALL:
        return label + saying
    if error["type"] == "string_too_long" and "ctx" in error:
        return f"{label}{len(error['input']):,} characters, at most {error['ctx']['max_length']:,}"
    if not path or path[0] in _NEVER_SHOWN:
        return f"{label}a value of type {type(error['input']).__name__[:NAME_SHOWN_MAX]} {saying}"
    return f"{label}{shown(error['input'])} {saying}"


def _id_of(item: object) -> object:
    return cast("Mapping[str, object]", item).get("id", "") if isinstance(item, Mapping) else getattr(item, "id", "")


def _say_unknown(name: str, spec: type[BaseModel]) -> str:
    if name in NOT_YET:
        return "is not available in this version; leave it out"
    meant = likely(name, list(spec.model_fields))
    return "is not a field; " + (f"did you mean {meant}?" if meant else f"known: {', '.join(spec.model_fields)}")


def lacked(capability: str, most: Mapping[str, int]) -> str:
    """What a receipt says where no live Worker has all that an item needs besides slots."""
    has = packed(tuple(most.items()))
    return f"no live Worker that offers {spoken(capability)} has all the resources that an item needs (at most {has})"
