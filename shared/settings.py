"""The settings of every process, from the environment, and the only place that reads them.

An empty variable counts as not set, because compose files pass those on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from annotated_types import Ge, Le
from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import Misuse
from .redaction import safe_url
from .resources import COUNT_MAX, FORM, NAMES_MAX, parse

ENV_PREFIX = "TREADLE_"
SLOTS_MAX = 1024
SCHEMES = ("redis", "rediss", "unix")
SHOWN_CHARS_MAX = 80


def cpu_count() -> int:
    """The CPUs this process may run on, 1 to SLOTS_MAX; a container's CPU quota is not looked at."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, SLOTS_MAX)


class Settings(BaseSettings):
    """What a process goes by: given values first, else the environment, else the default.

    Misuse, naming the variable, the value and the bound, where one is not allowed; a URL's credentials are never shown,
    not by repr() either.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, allow_inf_nan=False)

    url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="The store. `unix:///path/to/socket?db=0` works too",
        json_schema_extra={"bound": "redis://, rediss:// or unix://"},
    )
    prefix: str = Field(
        default="treadle",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="First part of every key, so that several systems share one server",
        json_schema_extra={"bound": "1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `-`"},
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Fixed when the store is created; where set, a store with another number is refused",
        json_schema_extra={"default": "what the store has; 16 when it is created"},
    )
    lease_ttl_s: float = Field(
        default=10,
        ge=0.5,
        le=3600,
        description="How long an Execution Lease lives unrenewed: a dead Worker's work goes on elsewhere after it",
        json_schema_extra={"unit": "s"},
    )
    slots: int = Field(
        default_factory=cpu_count,
        ge=1,
        le=SLOTS_MAX,
        description="Capacity Slots of one Worker",
        json_schema_extra={"default": "number of CPUs"},
    )
    resources: str = Field(
        default="",
        description="What one Worker has besides slots; an item that needs some is started only while they are free",
        json_schema_extra={
            "bound": f"{FORM} with {NAMES_MAX} names at most, counts 1 to {COUNT_MAX:,}",
            "default": "none",
        },
    )
    grace_s: float = Field(
        default=20,
        ge=0,
        le=3600,
        description="How long handlers may take to reach a safe point after the first SIGTERM",
        json_schema_extra={"unit": "s"},
    )

    log_keep: int = Field(
        default=10_000,
        ge=0,
        le=10_000_000,
        description="How many Events below its newest Snapshot a Group's log keeps",
        json_schema_extra={"unit": "Events"},
    )
    policy: Path | None = Field(
        default=None,
        description="A policy file that each Worker applies, at its start and whenever the file changes (docs/policy.md)",
        json_schema_extra={"bound": "a file", "default": "none"},
    )
    slot_dir: Path | None = Field(
        default=None,
        description="Where a Worker makes the folder of its slots that are processes of their own",
        json_schema_extra={"bound": "a folder", "default": "the folder for temporary files"},
    )

    credentials: Path | None = Field(
        default=None,
        description="A credentials file: which Missions and capabilities are given which secrets (docs/isolation.md)",
        json_schema_extra={"bound": "a file", "default": "none"},
    )

    def __init__(self, **given: Any) -> None:
        """`given` overrides the environment; None is 'not given', as an unused flag of a command is."""
        given = {name: value for name, value in given.items() if value is not None}
        try:
            super().__init__(**given)
        except ValidationError as error:
            # `from None`: pydantic's own text shows the values, a URL's password too.
            raise _misuse(error, given) from None

    @field_validator("resources")
    @classmethod
    def _resources_are_counted(cls, text: str) -> str:
        try:
            parse(text)
        except Misuse as wrong:
            raise ValueError(str(wrong)) from None
        return text

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        """redis-py ignores a database that is no number and reads the wrong one: refuse it here."""
        parts = urlsplit(url)
        databases = parse_qs(parts.query).get("db", [])
        if parts.scheme == "unix":
            usable = bool(parts.path.strip("/"))
        else:
            usable = bool(parts.hostname) and parts.port != 0  # `port` raises ValueError where it is none
            databases += [parts.path.strip("/")] if parts.path.strip("/") else []
        if parts.scheme not in SCHEMES or not usable or not all(re.fullmatch("[0-9]{1,5}", one) for one in databases):
            raise ValueError("not a URL of a store")
        return url

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, safe_url(value) if name == "url" else value


def settings_table() -> str:
    """The settings as a Markdown table, for the README."""
    rows = [("Variable", "Unit", "Bounds", "Default", "Meaning"), ("---",) * 5]
    for name, field in Settings.model_fields.items():
        rows.append(
            (f"`{_variable(name)}`", _extra(field, "unit"), _bound(field), _default(field), f"{field.description}.")
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _misuse(error: ValidationError, given: dict[str, Any]) -> Misuse:
    """The error in the words of who set the value: every wrong setting, one a line."""
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        name = str(problem["loc"][0])
        if (field := Settings.model_fields.get(name)) is None:
            lines.append(f"{name}: there is no such setting; use one of {', '.join(Settings.model_fields)}")
            continue
        value = problem["input"]
        shown = repr(safe_url(value) if name == "url" and isinstance(value, str) else value)[:SHOWN_CHARS_MAX]
        said_by = f"{name} ({_variable(name)})" if name in given else _variable(name)
        must = f"must be {_bound(field)} {_extra(field, 'unit')}".strip()
        lines.append(f"{said_by}: {shown} is not allowed; {must} (default: {_default(field)})")
    return Misuse("\n".join(lines))


def _variable(name: str) -> str:
    return f"{ENV_PREFIX}{name.upper()}"


def _extra(field: FieldInfo, key: str) -> str:
    extra = field.json_schema_extra
    return str(cast("dict[str, object]", extra).get(key, "")) if isinstance(extra, dict) else ""


def _bound(field: FieldInfo) -> str:
    least = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), None)
    most = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    return _extra(field, "bound") or f"{least} to {most}"


def _default(field: FieldInfo) -> str:
    return _extra(field, "default") or f"`{field.default}`"
