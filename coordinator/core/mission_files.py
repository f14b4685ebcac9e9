"""From a Mission file, TOML or JSON, to a `MissionSpec`: what is wrong is said with its line. Pure.

The file has the fields of MissionSpec, and in `work` those of WorkSpec:

    objective = "thumbnails of today"
    [[work]]
    id = "a"
    capability = "thumbnails"
    inputs = { files = ["1.jpg"] }
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from pydantic import ValidationError
from treadle.shared.errors import Misuse
from treadle.shared.locating import Path, line_in_json, line_in_toml

from ..specs import MissionSpec
from .moments import moment
from .readable import cut

KINDS = ("toml", "json")
LINES_SHOWN_MAX = 3
_TEMPLATE_PLACE = re.compile(r"^work\[(\d+)\](?: \(id .*?\))?: (\w+)|^(\w+): ")


def kind_of(name: str, text: str) -> str:
    """`toml` or `json`, by the file's name, else by its first sign."""
    ending = name.lower().rpartition(".")[2]
    return ending if ending in KINDS else "json" if text.lstrip("\ufeff \t\r\n").startswith("{") else "toml"


def decode(raw: bytes, *, name: str) -> str:
    """The text of a file; Misuse, with the line, where it is no UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Misuse(f"{name}: line {line}: is no UTF-8; save it as UTF-8") from None


def parse(text: str, *, name: str, kind: str) -> dict[str, Any]:
    """The fields of a file; Misuse, with the line, for what is no TOML or JSON, or names a key twice."""
    try:
        found: object = tomllib.loads(text) if kind == "toml" else json.loads(text, object_pairs_hook=_unique)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        saying = re.sub(r" \(at .*\)$", "", str(error))
        raise Misuse(
            f"{name}: line {place[1] if place else _last_line(text)}: is no TOML: {cut(saying, 200)}"
        ) from None
    except json.JSONDecodeError as error:
        raise Misuse(f"{name}: line {error.lineno}: is no JSON: {error.msg} (column {error.colno})") from None
    except _TwiceError as twice:
        raise Misuse(f"{name}: line {_second_line(text, twice.key)}: {cut(twice.key, 40)!r} is there twice") from None
    except RecursionError:
        raise Misuse(f"{name}: is nested too deeply; inputs may be 16 levels deep") from None
    if not isinstance(found, dict):
        raise Misuse(f"{name}: holds a {type(found).__name__}, must be an object with objective and work")
    return cast("dict[str, Any]", found)


class _TwiceError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values under one key: the parser would take the last one and say nothing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(key)
            seen.add(key)
    return found


def _second_line(text: str, key: str) -> int:
    """About where: the innermost object is not known here, so it is the second time that this key is written."""
    places = [found.start() for found in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)]
    return text.count("\n", 0, places[1] if len(places) > 1 else 0) + 1


def _last_line(text: str) -> int:
    return text.count("\n") + 1


def mission_spec(text: str, *, name: str, kind: str, given: Mapping[str, Any] | None = None) -> MissionSpec:
    """The Mission of a file, `given` fields in place of its own; Misuse says the line and the field of what is wrong."""
    fields = parse(text, name=name, kind=kind) | dict(given or {})
    _read_spans(fields, text, name, kind)
    try:
        return MissionSpec(**fields)
    except Misuse as misuse:
        _refuse(misuse, text, name, kind, _paths(fields))
    except TypeError:  # a key that is not even a parameter's name; the fields are judged without it
        raise Misuse(f"{name}: its keys must be names of fields") from None


def _read_spans(fields: Mapping[str, Any], text: str, name: str, kind: str) -> None:
    """`not_before = "+90s"`: neither TOML nor JSON can write a span of time."""
    work = fields.get("work")
    items = cast("list[object]", work) if isinstance(work, list) else []
    for index, one in enumerate(items):
        item = cast("dict[str, object]", one) if isinstance(one, dict) else {}
        span = item.get("not_before")
        if isinstance(span, str) and span.lstrip().startswith("+"):
            try:
                item["not_before"] = moment(span, field=f"work[{index}]: not_before")
            except Misuse as misuse:
                line = _line(text, kind, ("work", index, "not_before"))
                raise Misuse(f"{name}: line {line}: {misuse}") from None


def placed(misuse: Misuse, text: str, *, name: str, kind: str) -> Misuse:
    """What is said of a whole Mission (cycles, sizes, deadlines), with the file and the line it is about."""
    found = _TEMPLATE_PLACE.match(str(misuse))
    if found is None:
        return Misuse(f"{name}: {misuse}", code=misuse.code)
    path: Path = (found[3],) if found[3] else ("work", int(found[1]), found[2])
    return Misuse(f"{name}: line {_line(text, kind, path)}: {misuse}", code=misuse.code)


def _refuse(misuse: Misuse, text: str, name: str, kind: str, paths: list[Path]) -> NoReturn:
    lines = list(dict.fromkeys(_line(text, kind, path) for path in paths[:LINES_SHOWN_MAX]))
    said = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines))}"
    raise Misuse(f"{name}: {said}: {misuse}" if lines else f"{name}: {misuse}", code=misuse.code) from None


def _paths(fields: Mapping[str, Any]) -> list[Path]:
    """Where the fields are wrong, in the order in which it is said."""
    try:
        MissionSpec.model_validate(fields)
    except ValidationError as problem:
        return [error["loc"] for error in problem.errors(include_url=False, include_input=False, include_context=False)]
    except Misuse:
        return []
    return []


def _line(text: str, kind: str, path: Path) -> int:
    return (line_in_toml if kind == "toml" else line_in_json)(text, path)
