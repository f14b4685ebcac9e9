"""Reads what deploys the house: the Dockerfile, and the compose file in the part of YAML it is written in."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile: `word` in capitals, `rest` on one line."""

    word: str
    rest: str

    @property
    def argv(self) -> tuple[str, ...] | None:
        """Its words, where it is in exec form; None in shell form."""
        try:
            words = json.loads(self.rest)
        except ValueError:
            return None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return None
        return tuple(words)


def instructions(text: str) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile, comments and continued lines resolved."""
    found, line = [], ""
    for raw in text.splitlines():
        if raw.lstrip().startswith("#") or not raw.strip():
            continue
        line += raw
        if line.endswith("\\"):
            line = line[:-1]
            continue
        word, _, rest = line.strip().partition(" ")
        found.append(Instruction(word.upper(), rest.strip()))
        line = ""
    if line:
        raise ValueError("the last line is continued")
    return tuple(found)


def last_stage(text: str) -> tuple[Instruction, ...]:
    """The instructions that make the image itself, behind the last FROM."""
    every = instructions(text)
    start = max(at for at, one in enumerate(every) if one.word == "FROM")
    return every[start:]


def argv_of(text: str) -> tuple[str, ...]:
    """What a container of the image runs as its process 1; ValueError where a shell would be that."""
    whole: list[str] = []
    for word in ("ENTRYPOINT", "CMD"):
        last = [one for one in last_stage(text) if one.word == word][-1:]
        for one in last:
            if one.argv is None:
                raise ValueError(f"{word} is in shell form: {one.rest}")
            whole += one.argv
    if not whole:
        raise ValueError("neither ENTRYPOINT nor CMD")
    return tuple(whole)


def conf_of(text: str) -> Mapping[str, str]:
    """The directives of a redis.conf, the last one of each name."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {name.lower(): " ".join(shlex.split(rest)) for name, _, rest in pairs}


def seconds_of(text: str) -> float:
    """A duration as compose files write it: '1m30s', '45s', '500ms'."""
    units = {"h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    if not re.fullmatch(r"(?:\d+(?:ms|h|m|s))+", text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", text))


def default_of(text: str) -> str:
    """What `${NAME:-default}` stands for where NAME is not set; any other text as it is."""
    found = re.fullmatch(r"\$\{[A-Z0-9_]+:-([^}]*)\}", text)
    return found[1] if found else text


_KEY = re.compile(r"([\w.<-]+):(?: +&(\w+))?(?: +(\S.*))?")


def compose_of(text: str) -> dict[str, Any]:
    """The compose file as values; scalars stay text. ValueError for what this reader does not know, so nothing is guessed.

    It knows block mappings and lists, quoted scalars, flow lists of strings, `{}`, and `&name` with `<<: *name`.
    """
    lines = []
    for number, raw in enumerate(text.splitlines(), start=1):
        content = re.sub(r"(?:^|\s)#.*$", "", raw).rstrip()
        if content:
            lines.append((number, len(content) - len(content.lstrip()), content.strip()))
    anchors: dict[str, dict[str, Any]] = {}
    value, rest = _block(lines, 0, anchors)
    if rest or not isinstance(value, dict):
        raise ValueError(f"line {rest[0][0] if rest else 1}: not part of a mapping")
    return value


_Lines = list[tuple[int, int, str]]


def _block(lines: _Lines, depth: int, anchors: dict[str, dict[str, Any]]) -> tuple[Any, _Lines]:
    """The value that stands at exactly this depth, and the lines behind it."""
    if lines[0][2].startswith("- "):
        items = []
        while lines and lines[0][1] == depth and lines[0][2].startswith("- "):
            items.append(_scalar(lines[0], lines[0][2][2:].strip()))
            lines = lines[1:]
        return items, lines
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    while lines and lines[0][1] == depth:
        line, lines = lines[0], lines[1:]
        found = _KEY.fullmatch(line[2])
        if not found:
            raise ValueError(f"line {line[0]}: {line[2]!r} is not `key: value`")
        key, anchor, rest = found[1], found[2], found[3]
        if key in own:
            raise ValueError(f"line {line[0]}: {key} stands there twice")
        if key == "<<":
            merged |= anchors[(rest or "").removeprefix("*")]
        elif rest is not None:
            own[key] = _scalar(line, rest)
        elif lines and lines[0][1] > depth:
            own[key], lines = _block(lines, lines[0][1], anchors)
        else:
            own[key] = None
        if anchor:
            anchors[anchor] = own[key]
    if lines and lines[0][1] > depth:
        raise ValueError(f"line {lines[0][0]}: indented too far")
    return merged | own, lines


def _scalar(line: tuple[int, int, str], text: str) -> Any:
    if text.startswith(("[", '"')):
        return json.loads(text)
    if text == "{}":
        return {}
    if re.match(r"[&*!|>'%@`{]|- ", text) or re.search(r": |:$", text):
        raise ValueError(f"line {line[0]}: {text!r} is beyond this reader")
    return text


def services(compose: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from compose["services"].items()
