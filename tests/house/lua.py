"""Reads the function library's Lua files: the contract on top of each, and what the code itself may not do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treadle.shared.model import EventKind

LINES_MAX = 100
FIELDS = ("keys", "args", "bound", "flags", "refusals", "events")
FLAGS = frozenset({"no-writes", "allow-oom"})
_CODES = """
    UNSUPPORTED_VERSION AUTH_REQUIRED AUTH_INVALID_SIGNATURE AUTH_STALE_SESSION AUTH_STALE_COORDINATOR AUTH_FORBIDDEN
    GROUP_NOT_FOUND MEMBERSHIP_REQUIRED MEMBERSHIP_STALE SCHEMA_VALIDATION_FAILED INVALID_COMMAND
    INVALID_STATE_TRANSITION REVISION_CONFLICT ACTION_ID_COLLISION UNKNOWN_CRITICAL_EXTENSION WORK_CONTRACT_INCOMPLETE
    WORK_OFFER_EXPIRED WORK_ALREADY_OWNED WORK_LEASE_EXPIRED WORK_STALE_OWNERSHIP APPROVAL_REQUIRED BUDGET_EXCEEDED
    RATE_LIMITED BACKPRESSURE CURSOR_TOO_OLD PROTOCOL_VIOLATION INTERNAL_ERROR
    STORE_CHANGED LOG_FOREIGN LOG_REBORN ACTION_SUPERSEDED LANE_REGRESSED EMPTY PAUSED QUARANTINE RESERVED PASSED SHARE QUOTA
    QUOTA_EXCEEDED
"""
CODES = frozenset(_CODES.split())
"""The protocol's 27 codes (protocol.md, section 3), then the store's own."""

FORBIDDEN: Mapping[str, str] = {
    r"(?<![.:\w])os\s*\.": "os is not there on a server",
    r"(?<![.:\w])io\s*\.": "io is not there on a server",
    r"(?<![.:\w])(?:load|loadstring|loadfile|dofile)\b": "text never becomes code",
    r"\bcjson\b": "payloads stay bytes",
    r"\bcmsgpack\b": "payloads stay bytes",
    r"\bmath\s*\.\s*random": "no chance inside the store: nonces come from the client",
    r"//": "Lua 5.1 has no integer division",
}
_AT_LOAD = re.compile(r"\bredis\s*\.\s*p?call\b|\b(?:math|string|table|unpack)\b")
_STRING_OR_COMMENT = re.compile(
    r"--\[(=*)\[.*?\]\1\]|--[^\n]*|\[(=*)\[.*?\]\2\]|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_WORD = re.compile(r"\b(?:function|do|if|repeat|end|until)\b")


@dataclass(frozen=True)
class Contract:
    """The first lines of a public Lua file."""

    name: str
    sentence: str
    fields: Mapping[str, str]

    def words(self, field: str) -> tuple[str, ...]:
        return words(self.fields.get(field, ""))


def words(text: str) -> tuple[str, ...]:
    """Its words; a `...` only says that the ones before it repeat, and `none` that there are none."""
    found = tuple(word for part in re.split(r"[\s,|]+", text) if (word := part.removesuffix("...")))
    return () if found == ("none",) else found


def code_of(text: str) -> str:
    """`text` with its comments and the insides of its strings blanked, line by line the same."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        newlines = "\n" * found.count("\n")
        return newlines if found.startswith("--") else f'"{newlines}"'

    return _STRING_OR_COMMENT.sub(blank, text)


def contract_of(path: Path) -> Contract:
    """The contract in the leading comment; ValueError saying what is wrong with its form."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" "))
    if not lines:
        raise ValueError("does not begin with its contract")
    name, colon, sentence = lines[0].partition(":")
    if not colon or not sentence.strip():
        raise ValueError("its first line is not `-- name: one sentence`")
    fields: dict[str, str] = {}
    current = ""
    for line in lines[1:]:
        field, colon, rest = line.partition(":")
        if colon and field in FIELDS:
            if field in fields:
                raise ValueError(f"says {field} twice")
            current = field
            fields[current] = rest.strip()
        elif current and line.startswith(" "):
            fields[current] = f"{fields[current]} {line.strip()}".strip()
        elif current:
            break
        else:
            sentence = f"{sentence} {line.strip()}"
    return Contract(name.strip(), sentence.strip(), fields)


def contract_faults(path: Path) -> Iterator[str]:
    """What is wrong with the contract of a public file, and with its length."""
    try:
        contract = contract_of(path)
    except ValueError as error:
        yield f"{path.name}: {error}"
        return
    if contract.name != path.stem:
        yield f"{path.name}: its contract is called {contract.name!r}"
    for field in FIELDS:
        if not contract.fields.get(field):
            yield f"{path.name}: its contract says no {field}"
    if tuple(contract.fields) != tuple(field for field in FIELDS if field in contract.fields):
        yield f"{path.name}: its contract is not in the order {', '.join(FIELDS)}"
    yield from (f"{path.name}: flag {flag!r}" for flag in contract.words("flags") if flag not in FLAGS)
    for field, known in (("refusals", CODES), ("events", frozenset(EventKind))):
        yield from (
            f"{path.name}: {field} has {word!r}, unknown" for word in contract.words(field) if word not in known
        )


def code_faults(path: Path) -> Iterator[str]:
    """What the code of any Lua file may not do, shared pieces included."""
    text = path.read_text(encoding="utf-8")
    length = text.count("\n")
    if length > LINES_MAX:
        yield f"{path.name}: {length} lines, at most {LINES_MAX}"
    depth = 0
    for number, line in enumerate(code_of(text).splitlines(), start=1):
        for pattern, why in FORBIDDEN.items():
            if found := re.search(pattern, line):
                yield f"{path.name}:{number}: {found.group()!r}, {why}"
        lowest = depth
        for word in _WORD.findall(line):
            depth += -1 if word in {"end", "until"} else 1
            lowest = min(lowest, depth)
        if lowest == 0 and depth == 0 and "function" not in line and (found := _AT_LOAD.search(line)):
            yield f"{path.name}:{number}: {found.group()!r} is used at load, which Redis 7.0 refuses"


def pcalls(paths: tuple[Path, ...]) -> list[str]:
    """Each `pcall` (and `redis.pcall`) of the library, by place."""
    return [
        f"{path.name}:{number}"
        for path in paths
        for number, line in enumerate(code_of(path.read_text(encoding="utf-8")).splitlines(), start=1)
        for _ in re.findall(r"\bx?pcall\b", line)
    ]
