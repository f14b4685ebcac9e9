"""From a policy file (TOML) to a `Policy`: each thing wrong in it is said with its line. Pure.

[classes.urgent]
weight = 8

[[accounts]]
match = "acme*"
weight = 2
slots = 16
rate = "100/min"
classes = ["standard", "urgent"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from operator import itemgetter
from typing import Any, TypeVar, cast

from .codec import shown
from .errors import Misuse
from .locating import Path, line_in_toml
from .model import Risk
from .names import CAPABILITY
from .policy import (
    STANDARD_CLASS,
    WEIGHT_MAX,
    WEIGHT_MIN,
    AccountRule,
    Approval,
    Disclosure,
    MissionRule,
    Policy,
    Preemption,
    Rate,
    Rule,
    covers,
    split,
)

FILE_BYTES_MAX = 256 * 1024
RULES_MAX = 1_000
"""Of all tables together."""
MATCH_CHARS_MAX = 512
QUOTA_MAX = 1_000_000_000
WORKER_SLOTS_MAX = 1_024
SPAN_S_MIN, SPAN_S_MAX = 0.1, 86_400.0
FAULTS_SHOWN_MAX = 20

_RATE = re.compile(r"([0-9]{1,9})/(s|min|h)")
_WINDOWS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}

Check = Callable[[object], object]
G = TypeVar("G")


class _WrongError(Exception):
    """What a value must be; the path to the part that is not, where that is not all of it."""

    def __init__(self, said: str, *inner: int) -> None:
        super().__init__(said)
        self.inner = inner


def _weight(value: object) -> float:
    said = f"{WEIGHT_MIN:g} to {WEIGHT_MAX:,g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongError(f"must be a number, {said}")
    if not WEIGHT_MIN <= value <= WEIGHT_MAX:
        raise _WrongError(f"must be {said}")
    return float(value)


def _whole(most: int) -> Check:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise _WrongError(f"must be a whole number, 0 to {most:,}")
        return value

    return check


def _span_s(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not SPAN_S_MIN <= value <= SPAN_S_MAX:
        raise _WrongError(f"must be {SPAN_S_MIN:g} to {SPAN_S_MAX:,g} seconds")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongError("must be true or false")
    return value


def _risk(value: object) -> Risk:
    if value not in (Risk.LOW, Risk.HIGH):
        raise _WrongError('must be "low" or "high": the least risk that a person has to approve')
    return Risk(str(value))


def _rate(value: object) -> Rate:
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _WrongError('must be a number of starts a second, minute or hour, as "10/s", "100/min" or "5000/h"')
    return Rate(int(found[1]), _WINDOWS_S[found[2]])


def _match(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MATCH_CHARS_MAX or not value.isprintable():
        raise _WrongError(
            f"must be a name, in which * stands for any characters; 1 to {MATCH_CHARS_MAX} printable ones"
        )
    return value


def _mission_match(value: object) -> str:
    match = _match(value)
    if not all(split(match)):
        raise _WrongError("must be ACCOUNT/MISSION, in which * stands for any characters, as */nightly-*")
    return match


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _WrongError('must be a list of classes, as ["standard"]')
    for index, one in enumerate(cast("list[object]", value)):
        if not isinstance(one, str):
            raise _WrongError("must be the name of a class", index)
    return tuple(cast("list[str]", value))


_CLASS: Mapping[str, Check] = {"weight": _weight}
_ACCOUNT: Mapping[str, Check] = {
    **{"match": _match, "weight": _weight, "slots": _whole(QUOTA_MAX), "queued": _whole(QUOTA_MAX)},
    **{"rate": _rate, "classes": _names},
}
_MISSION: Mapping[str, Check] = {
    **{"match": _mission_match, "weight": _weight, "weight_max": _weight, "slots": _whole(QUOTA_MAX)},
    **{"queued": _whole(QUOTA_MAX), "rate": _rate},
}
_WORKER: Mapping[str, Check] = {"match": _match, "slots": _whole(WORKER_SLOTS_MAX)}
_PREEMPTION: Mapping[str, Check] = {"enabled": _flag, "minimum_run_s": _span_s, "overdue_s": _span_s}
_DISCLOSURE: Mapping[str, Check] = {"interval_s": _span_s}
_APPROVAL: Mapping[str, Check] = {"risk": _risk}
_TABLES = ("classes", "accounts", "missions", "workers", "preemption", "disclosure", "approval")


def parse(text: str, *, name: str) -> Policy:
    """The policy of a file called `name`, as version 0; Misuse, a line of text for each fault with the file's line of it."""
    if (size := len(text.encode(errors="surrogatepass"))) > FILE_BYTES_MAX:
        raise Misuse(f"{name}: {size:,} bytes, at most {FILE_BYTES_MAX:,}")
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        said = str(error)[: place.start()] if place else str(error).removesuffix(" (at end of document)")
        raise Misuse(f"{name}:{line}: is no TOML: {shown(said, 200)[1:-1]}") from None
    except RecursionError:
        raise Misuse(f"{name}: is nested too deeply to be a policy") from None
    return _Reading(text, name).policy(found)


class _Reading:
    """One reading of one file, and what it has found wrong so far."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._faults: list[tuple[int, str]] = []
        self._unsaid = 0

    def policy(self, found: Mapping[str, Any]) -> Policy:
        for key in found:
            if key not in _TABLES:
                self._fault((key,), f"{_quoted(key)} is no table of a policy; {_meant(key, _TABLES)}")
        count = sum(len(found[key]) for key in _TABLES[:4] if isinstance(found.get(key), list | dict))
        if count > RULES_MAX:
            raise Misuse(f"{self._name}: {count:,} rules and classes, at most {RULES_MAX:,}")
        classes = self._classes(found.get("classes", {}))
        accounts = self._rules(found, "accounts", _ACCOUNT, lambda given: AccountRule(**given), classes=classes)
        policy = Policy(
            classes=tuple(classes.items()),
            accounts=tuple(rule for _, rule in accounts),
            missions=tuple(
                rule for _, rule in self._rules(found, "missions", _MISSION, lambda given: MissionRule(**given))
            ),
            workers=tuple(
                rule for _, rule in self._rules(found, "workers", _WORKER, lambda given: int(given["slots"]), "slots")
            ),
            preemption=Preemption(**self._table(found.get("preemption", {}), ("preemption",), _PREEMPTION)),
            disclosure=Disclosure(**self._table(found.get("disclosure", {}), ("disclosure",), _DISCLOSURE)),
            approval=Approval(**self._table(found.get("approval", {}), ("approval",), _APPROVAL)),
        )
        if self._faults:
            more = [f"and {self._unsaid:,} more"] if self._unsaid else []
            raise Misuse("\n".join([*(said for _, said in sorted(self._faults, key=itemgetter(0))), *more]))
        return policy

    # --- tables ---

    def _table(self, found: object, path: Path, checks: Mapping[str, Check], *required: str) -> dict[str, Any]:
        """The fields of one table that are right; the others are faults."""
        if not isinstance(found, dict):
            self._fault(path, f"{_field(path)}: {shown(found)} is not allowed; must be a table")
            return {}
        given: dict[str, Any] = {}
        table = cast("dict[str, object]", found)
        for key, value in table.items():
            where = (*path, key)
            if key not in checks:
                self._fault(where, f"{_field(path)}: {_quoted(key)} is no field of it; {_meant(key, checks)}")
                continue
            try:
                given[key] = checks[key](value)
            except _WrongError as wrong:
                at = (*where, *wrong.inner)
                part = cast("list[object]", value)[wrong.inner[0]] if wrong.inner else value
                self._fault(at, f"{_field(at)}: {shown(part)} is not allowed; {wrong}")
        for key in required:
            if key not in table:
                self._fault(path, f"{_field(path)}: {key} is required")
        return given

    def _classes(self, found: object) -> dict[str, float]:
        classes = {STANDARD_CLASS: 1.0}
        if not isinstance(found, dict):
            self._fault(("classes",), f"classes: {shown(found)} is not allowed; write [classes.NAME]")
            return classes
        for name, table in cast("dict[str, object]", found).items():
            path = ("classes", name)
            if not CAPABILITY.fullmatch(name):
                must = "must be 1 to 64 of a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit"
                self._fault(path, f"classes: {_quoted(name)} is not allowed; {must}")
            classes[name] = self._table(table, path, _CLASS, "weight").get("weight", 1.0)
        return classes

    def _check_classes(self, index: int, named: Sequence[str], classes: Mapping[str, float]) -> None:
        for place, name in enumerate(named):
            if name not in classes:
                path = ("accounts", index, "classes", place)
                known = ", ".join(list(classes)[:8])
                self._fault(path, f"{_field(path)}: {_quoted(name)} is no class of this policy; known: {known}")

    def _rules(
        self,
        found: Mapping[str, object],
        kind: str,
        checks: Mapping[str, Check],
        granted: Callable[[dict[str, Any]], G],
        *required: str,
        classes: Mapping[str, float] | None = None,
    ) -> list[tuple[int, Rule[G]]]:
        """The rules of one kind that are whole, each with its place among them, and none that never decides."""
        tables = found.get(kind, [])
        if not isinstance(tables, list):
            self._fault((kind,), f"{kind}: {shown(tables)} is not allowed; write [[{kind}]]")
            return []
        rules: list[tuple[int, Rule[G]]] = []
        for index, table in enumerate(cast("list[object]", tables)):
            faults = len(self._faults) + self._unsaid
            given = self._table(table, (kind, index), checks, "match", *required)
            is_whole = len(self._faults) + self._unsaid == faults
            if classes is not None:
                self._check_classes(index, given.get("classes", ()), classes)
            if is_whole:
                match = str(given.pop("match"))
                rules.append((index, Rule(match, granted(given))))
        self._check_order(kind, rules)
        return rules

    def _check_order(self, kind: str, rules: list[tuple[int, Rule[G]]]) -> None:
        same: dict[str, tuple[int, Rule[G]]] = {}
        wide: list[tuple[int, Rule[G]]] = []
        for index, rule in rules:
            path = (kind, index, "match")
            label = f"{_field((kind, index))}: {_quoted(rule.match)}"
            if (before := same.get(rule.match)) is not None:
                line = self._line((kind, before[0], "match"))
                differs = "contradicts" if before[1].grant != rule.grant else "repeats"
                self._fault(
                    path, f"{label} {differs} the rule of line {line}, which has the same match; keep one of them"
                )
            elif hider := next((one for one in wide if _hides(kind, one[1].match, rule.match)), None):
                line = self._line((kind, hider[0], "match"))
                why = f"never decides: {_quoted(hider[1].match)} of line {line} matches all it matches"
                self._fault(path, f"{label} {why}; put it before that one")
            same.setdefault(rule.match, (index, rule))
            if "*" in rule.match:
                wide.append((index, rule))

    # --- faults ---

    def _line(self, path: Path) -> int:
        return line_in_toml(self._text, path)

    def _fault(self, path: Path, said: str) -> None:
        if len(self._faults) >= FAULTS_SHOWN_MAX:
            self._unsaid += 1
        else:
            line = self._line(path)
            self._faults.append((line, f"{self._name}:{line}: {said}"))


def _hides(kind: str, earlier: str, later: str) -> bool:
    if kind != "missions":
        return covers(earlier, later)
    return all(covers(wide, narrow) for wide, narrow in zip(split(earlier), split(later), strict=True))


def _field(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _quoted(text: str) -> str:
    return f'"{shown(text, 60)[1:-1]}"'


def _meant(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    likely = get_close_matches(name, list(known), 1)
    return f"did you mean {likely[0]}?" if likely else f"known: {', '.join(known)}"
