"""Typed inputs and results: values of pydantic models and dataclasses, to and from the plain data the store keeps.

Form(Thumbs).read({"files": ["a"]})  -> Thumbs      Misfit, naming field, value and what was expected, where it does not fit
plain(Made(count=1))                 -> {"count": 1}
thumbnails.spec(files=["a"])         -> Call        what the SDK takes for one piece of work
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from pydantic import AnyUrl, BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from .codec import DEPTH_MAX, pack, shown
from .errors import Misuse
from .model import Capability
from .redaction import SECRET_NAME

T = TypeVar("T")
R = TypeVar("R")

ERRORS_SHOWN_MAX = 5
TEXT_CHARS_MAX = 200
_AS_TEXT = (UUID, Decimal, PurePath, IPv4Address, IPv6Address, AnyUrl)
_BY_HAND = "use a pydantic model or a dataclass"


class Misfit(Misuse):
    """What was given does not fit the type that is declared for it: the same value never will."""


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One piece of work as a handler's `spec` gives it: which capability, its inputs, and what its result is read as."""

    capability: Capability
    version: str
    """Of the handler this was made with; a Worker of another version may do it all the same."""
    inputs: dict[str, Any] = field(repr=False)
    """Plain data, as the store keeps it."""
    result_of: Callable[[object], R] = field(repr=False, compare=False)
    """The handler's result, from the plain data that the store kept of it; Misfit where that is something else."""


class Form(Generic[T]):
    """A type that people declare, and how plain data becomes a value of it; built when it is first used."""

    def __init__(self, kind: Callable[..., T] | Any, *, what: str) -> None:
        """`what` begins each message: `inputs of thumbnails`."""
        self.kind = kind
        self.what = what

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        try:
            return TypeAdapter(cast("type[T]", self.kind))
        except Exception as error:  # whatever pydantic, or a hook of the type itself, has against it
            said = str(error).splitlines()[:1]
            raise Misuse(
                f"{self.what}: pydantic cannot read {shown(self.kind)}: {shown(''.join(said), TEXT_CHARS_MAX)}"
            ) from None

    def check(self) -> None:
        """Misuse where no value can be read as this type at all."""
        _ = self._adapter

    @cached_property
    def is_readable(self) -> bool:
        """Whether pydantic can read values as this type."""
        try:
            self.check()
        except Misuse:
            return False
        return True

    def read(self, raw: object) -> T:
        """The value that plain data stands for."""
        if dataclasses.is_dataclass(self.kind) and isinstance(raw, Mapping):
            known = [each.name for each in dataclasses.fields(self.kind) if each.init]
            if unknown := sorted(cast("Mapping[str, object]", raw).keys() - known):
                raise Misfit(f"{self.what}: {shown(unknown[0])} is not a field; known: {', '.join(known)}")
        try:
            return self._adapter.validate_python(raw)
        except ValidationError as problem:
            raise Misfit(self._say(problem)) from None  # pydantic's own text shows whole values
        except Misuse:
            raise
        except Exception as problem:  # of a validator that people wrote
            raise Misfit(f"{self.what}: {type(problem).__name__}: {shown(_text(problem), TEXT_CHARS_MAX)}") from None

    def write(self, *args: Any, **fields: Any) -> dict[str, Any]:
        """The plain data of a value made by the type's own constructor, as `read` takes it."""
        try:
            value = self.kind(*args, **fields)
        except ValidationError as problem:
            raise Misfit(self._say(problem)) from None
        except TypeError as problem:
            raise Misfit(f"{self.what}: {shown(_text(problem), TEXT_CHARS_MAX)[1:-1]}") from None
        data = plain(value)
        if not isinstance(data, dict):
            raise Misuse(f"{self.what}: {shown(self.kind)} is not kept as a dict; {_BY_HAND}")
        kept = cast("dict[str, Any]", data)
        self.read(kept)  # a dataclass checks nothing by itself
        return kept

    def _say(self, problem: ValidationError) -> str:
        errors = problem.errors(include_url=False)
        said = [self._say_one(error) for error in errors[:ERRORS_SHOWN_MAX]]
        if len(errors) > ERRORS_SHOWN_MAX:
            said.append(f"and {len(errors) - ERRORS_SHOWN_MAX} more")
        return f"{self.what}: {'; '.join(said)}"

    def _say_one(self, error: ErrorDetails) -> str:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"]).lstrip(".")
        path = path if path.isprintable() and len(path) <= TEXT_CHARS_MAX else shown(path, TEXT_CHARS_MAX)
        label = f"{path}: " if path else ""
        if error["type"] == "missing":
            return f"{label}is required"
        if error["type"] == "extra_forbidden":
            return f"{label}is not a field"
        saying = shown(error["msg"].replace("Input should be", "must be"), TEXT_CHARS_MAX)[1:-1]
        return f"{label}{self._value(error)}: {saying}"

    def _value(self, error: ErrorDetails) -> str:
        """The value that does not fit: bounded, never a whole container, never what is meant to stay unseen."""
        value, steps = error["input"], [str(step) for step in error["loc"]]
        if any(SECRET_NAME.search(step) for step in steps) or (steps and steps[0] in self._secrets):
            return f"a {type(value).__name__[:80]} (not shown)"
        if isinstance(value, str | int | float | bool | None):
            return shown(value)
        return f"a {type(value).__name__[:80]}"

    @cached_property
    def _secrets(self) -> frozenset[str]:
        """Fields of types such as SecretStr."""
        found: Mapping[str, Any] = getattr(self.kind, "model_fields", None) or getattr(
            self.kind, "__dataclass_fields__", {}
        )
        return frozenset(
            name for name, each in found.items() if "Secret" in f"{getattr(each, 'annotation', '')}{each!r}"
        )


def is_form(kind: object) -> bool:
    """Whether a handler's inputs may be declared as `kind`: a pydantic model or a dataclass."""
    if not isinstance(kind, type):
        return False
    declared = cast("type[object]", kind)
    return issubclass(declared, BaseModel) or dataclasses.is_dataclass(declared)


def plain(value: object) -> object:
    """`value` with models and dataclasses, wherever they stand in it, as the plain data that `Form.read` reads back.

    What stands outside of them is left as it is: the codec says what it does not take, and what to write instead.
    """
    return _plain(value, DEPTH_MAX + 1, inside=False)


def packed(value: object, *, field: str, limit: int) -> bytes:
    """`plain(value)` as the bytes that are stored. Misuse names `field` and the path inside it that cannot be, or the bound."""
    try:
        return pack(value, field=field, limit=limit)
    except Misuse:
        # Only now: most values are plain, and looking through them costs more than packing.
        return pack(plain(value), field=field, limit=limit)


def _plain(value: object, levels: int, *, inside: bool) -> object:
    if levels == 0:
        return value  # too deep for the codec, or a circle: it refuses it and says so
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(by_alias=True, round_trip=True), levels, inside=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return _plain(given, levels, inside=True)
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return {_key(key) if inside else key: _plain(child, levels - 1, inside=inside) for key, child in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(child, levels - 1, inside=inside) for child in cast("Sequence[object]", value)]
    return _simple(value, levels) if inside else value


def _key(key: object) -> object:
    if isinstance(key, int) and not isinstance(key, bool | Enum):
        return str(int(key))
    return _simple(key, 1)


def _simple(value: object, levels: int) -> object:
    """What a typed field may hold beyond the codec's own types, as pydantic reads it back."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, datetime):
        return value if value.utcoffset() is not None else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, set | frozenset):  # in one order, or the same result would have another digest
        return sorted((_plain(child, levels - 1, inside=True) for child in cast("Set[object]", value)), key=repr)
    return value


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # someone's own __str__
        return ""


def as_it_is(value: Any) -> Any:
    """How a result is read whose type nobody said: it stays plain data."""
    return value
