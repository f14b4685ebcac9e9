"""Which Missions and capabilities are granted which secrets, and where each is to be found: the credentials file. Pure.

[[grant]]
missions = "acme/*"
capabilities = ["send-invoice"]
secrets = { smtp = "env:SMTP_PASSWORD", api = "file:/run/secrets/api", vault = "command:vault kv get -field=key billing" }
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Literal, cast

from treadle.shared.codec import shown
from treadle.shared.errors import Misuse
from treadle.shared.locating import Path, line_in_toml

FILE_BYTES_MAX = 256 * 1024
GRANTS_MAX, PATTERNS_MAX, SECRETS_MAX = 256, 64, 64
PATTERN_CHARS_MAX, SOURCE_CHARS_MAX = 512, 4_096
FAULTS_SHOWN_MAX = 20
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
NAME_FORM = "1 to 64 of A-Z, a-z, 0-9, '_', '.', '-', beginning with a letter"
SOURCE_FORM = '"env:NAME", "file:PATH" or "command:PROGRAM ARGUMENTS"'
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FIELDS = ("missions", "capabilities", "secrets")


@dataclass(frozen=True, slots=True)
class Source:
    """Where one secret is to be found."""

    kind: Literal["env", "file", "command"]
    words: tuple[str, ...]
    """The variable, the path, or the program with its arguments."""
    place: str
    """Where the file names it: `grant[0].secrets.smtp`."""


@dataclass(frozen=True, slots=True)
class CredentialGrant:
    """Which secrets go to the work of which Missions and capabilities: any of the patterns of each."""

    missions: tuple[str, ...]
    capabilities: tuple[str, ...]
    secrets: Mapping[str, Source]

    def covers(self, mission: str, capability: str) -> bool:
        """Whether such work is granted it."""
        return any(fnmatchcase(mission, one) for one in self.missions) and any(
            fnmatchcase(capability, one) for one in self.capabilities
        )


def granted(grants: Sequence[CredentialGrant], mission: str, capability: str) -> dict[str, Source]:
    """The secrets of such work by name; of two grants that cover it and name the same secret, the later one decides."""
    found: dict[str, Source] = {}
    for grant in grants:
        if grant.covers(mission, capability):
            found |= grant.secrets
    return found


def parse(text: str, *, name: str) -> tuple[CredentialGrant, ...]:
    """The grants of a file called `name`; Misuse, a line of text for each fault with the file's line of it."""
    if (size := len(text.encode(errors="surrogatepass"))) > FILE_BYTES_MAX:
        raise Misuse(f"{name}: {size:,} bytes, at most {FILE_BYTES_MAX:,}")
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        at = f":{place[1]}" if place else ""
        # Not what it says: it may quote a secret that was written where its source belongs.
        raise Misuse(f"{name}{at}: is no TOML; write [[grant]] with missions, capabilities and secrets") from None
    return _Reading(text, name).grants(found)


class _WrongError(Exception):
    """What a value must be."""


class _Reading:
    """One reading of one file, and what it has found wrong so far. It never shows a source: a secret may stand there."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._faults: list[tuple[int, str]] = []
        self._unsaid = 0

    def grants(self, found: Mapping[str, object]) -> tuple[CredentialGrant, ...]:
        for key in found:
            if key != "grant":
                self._fault((key,), f"{shown(key, 60)} is no table of it; write [[grant]]")
        tables = found.get("grant", [])
        if not isinstance(tables, list):
            self._fault(("grant",), "grant: must be a list of tables; write [[grant]]")
            tables = []
        if len(cast("list[object]", tables)) > GRANTS_MAX:
            raise Misuse(f"{self._name}: {len(cast('list[object]', tables)):,} grants, at most {GRANTS_MAX:,}")
        grants = [self._grant(index, table) for index, table in enumerate(cast("list[object]", tables))]
        self._check_twice(grants)
        if self._faults:
            more = [f"and {self._unsaid:,} more"] if self._unsaid else []
            raise Misuse("\n".join([*(said for _, said in sorted(self._faults, key=itemgetter(0))), *more]))
        return tuple(grants)

    def _grant(self, index: int, table: object) -> CredentialGrant:
        path: Path = ("grant", index)
        given = cast("dict[str, object]", table) if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            self._fault(path, f"grant[{index}]: must be a table")
        for key in given:
            if key not in _FIELDS:
                likely = get_close_matches(key, _FIELDS, 1)
                meant = f"did you mean {likely[0]}?" if likely else f"known: {', '.join(_FIELDS)}"
                self._fault((*path, key), f"grant[{index}]: {shown(key, 60)} is no field of it; {meant}")
        for key in _FIELDS:
            if key not in given and isinstance(table, dict):
                self._fault(path, f"grant[{index}]: {key} is required")
        missions, capabilities = (
            self._patterns((*path, field), given[field]) if field in given else () for field in _FIELDS[:2]
        )
        secrets = self._secrets((*path, "secrets"), given["secrets"]) if "secrets" in given else {}
        return CredentialGrant(missions, capabilities, secrets)

    def _patterns(self, path: Path, given: object) -> tuple[str, ...]:
        listed = cast("list[object]", given) if isinstance(given, list) else [given]
        if not 1 <= len(listed) <= PATTERNS_MAX:
            self._fault(path, f"{_field(path)}: {len(listed)} patterns, must be 1 to {PATTERNS_MAX}")
        for index, one in enumerate(listed[:PATTERNS_MAX]):
            where = (*path, index) if isinstance(given, list) else path
            if not isinstance(one, str) or not 1 <= len(one) <= PATTERN_CHARS_MAX or not one.isprintable():
                must = f'must be a pattern as of a shell, 1 to {PATTERN_CHARS_MAX} printable characters; "*" is all'
                self._fault(where, f"{_field(where)}: {shown(one, 60)} is not allowed; {must}")
        return tuple(one for one in listed[:PATTERNS_MAX] if isinstance(one, str))

    def _secrets(self, path: Path, given: object) -> dict[str, Source]:
        if not isinstance(given, dict):
            self._fault(path, f"{_field(path)}: must be a table, as {{ smtp = {SOURCE_FORM.split(',')[0]} }}")
            return {}
        table = cast("dict[str, object]", given)
        if not 1 <= len(table) <= SECRETS_MAX:
            self._fault(path, f"{_field(path)}: {len(table)} secrets, must be 1 to {SECRETS_MAX}")
        found: dict[str, Source] = {}
        for name, source in list(table.items())[:SECRETS_MAX]:
            where = (*path, name)
            if not NAME.fullmatch(name):
                self._fault(where, f"{_field(path)}: {shown(name, 60)} is no name of a secret; must be {NAME_FORM}")
                continue
            try:
                found[name] = _source(source, _field(where))
            except _WrongError as wrong:
                self._fault(where, f"{_field(path)}.{name}: {wrong}")
        return found

    def _check_twice(self, grants: Sequence[CredentialGrant]) -> None:
        """Two grants for the very same work, with another source for one secret: which was meant is for a person to say."""
        seen = dict[tuple[frozenset[str], frozenset[str], str], Source]()
        for index, grant in enumerate(grants):
            for name, source in grant.secrets.items():
                key = (frozenset(grant.missions), frozenset(grant.capabilities), name)
                before = seen.setdefault(key, source)
                if before is not source:
                    same = "repeats" if (before.kind, before.words) == (source.kind, source.words) else "contradicts"
                    said = f"{same} {before.place}, for the same missions and capabilities; keep one of them"
                    self._fault(("grant", index, "secrets", name), f"{source.place}: {said}")

    def _fault(self, path: Path, said: str) -> None:
        if len(self._faults) >= FAULTS_SHOWN_MAX:
            self._unsaid += 1
        else:
            line = line_in_toml(self._text, path)
            self._faults.append((line, f"{self._name}:{line}: {said}"))


def _source(given: object, place: str) -> Source:
    """The source that a text names."""
    if not isinstance(given, str) or len(given) > SOURCE_CHARS_MAX:
        raise _WrongError(f"must be {SOURCE_FORM}, at most {SOURCE_CHARS_MAX:,} characters")
    kind, _, rest = given.partition(":")
    if kind == "env":
        if not _ENV.fullmatch(rest):
            raise _WrongError("env: must name a variable, as env:SMTP_PASSWORD")
        return Source("env", (rest,), place)
    if kind == "file":
        if not rest.strip() or "\0" in rest:
            raise _WrongError("file: must name a file, as file:/run/secrets/smtp")
        return Source("file", (rest,), place)
    if kind == "command":
        try:
            words = tuple(shlex.split(rest))
        except ValueError as error:
            raise _WrongError(f"command: cannot be read as words ({error}); quote it as for a shell") from None
        if not words or "\0" in rest:
            raise _WrongError("command: must name a program, as command:vault kv get -field=key billing")
        return Source("command", words, place)
    raise _WrongError(f"must be {SOURCE_FORM}; the secret itself does not belong here")


def _field(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
