"""On which line of a TOML or JSON text something stands that its parser read and somebody refuses. Pure.

The parsers of the standard library tell no lines. The text was read by one of them, so it is well-formed: this looks for
keys and for what separates them, and judges nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

Path = Sequence[str | int]

_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_GAP = re.compile(r"(?:\s+|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[A-Za-z0-9_-]+')
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}\n#]+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LETTERS = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


class _Search:
    """What is looked for, and the best place seen so far: that of the path itself, else of what it is in."""

    def __init__(self, wanted: Path) -> None:
        self._wanted = tuple(wanted)
        self._depth = -1
        self.at = 0

    def see(self, path: Sequence[str | int], at: int) -> None:
        # A TOML header may be the first to name the tables it is in, so what is deeper tells too.
        depth = min(len(path), len(self._wanted))
        if depth <= self._depth:
            return
        # The last step first: it tells most apart, and there may be a million.
        if (depth == 0 or path[depth - 1] == self._wanted[depth - 1]) and tuple(path[:depth]) == self._wanted[:depth]:
            self._depth, self.at = depth, at


def line_in_json(text: str, path: Path) -> int:
    """The line, from 1, of the key or element at `path`; where it is missing, of what it would be in."""
    search = _Search(path)
    here: list[str | int] = []
    awaits_key: list[bool] = []
    last = ""
    for found in _JSON.finditer(text):
        word = found[0]
        if word in "]}":
            here.pop()
            awaits_key.pop()
        elif word == ",":
            if isinstance(here[-1], int):
                here[-1] += 1
            else:
                awaits_key[-1] = True
        elif word == ":":
            awaits_key[-1] = False
        else:
            if awaits_key and awaits_key[-1]:
                here[-1] = json.loads(word, strict=False)
                search.see(here, found.start())
            elif last != ":":
                search.see(here, found.start())
            if word in "[{":
                here.append("" if word == "{" else 0)
                awaits_key.append(word == "{")
        last = word
    return text.count("\n", 0, search.at) + 1


def line_in_toml(text: str, path: Path) -> int:
    """As `line_in_json`."""
    search = _Search(path)
    _Toml(text, search.see).read()
    return text.count("\n", 0, search.at) + 1


class _Toml:
    def __init__(self, text: str, see: Callable[[Sequence[str | int], int], None]) -> None:
        self._text, self._see = text, see
        self._at = 0
        self._counts: dict[tuple[str | int, ...], int] = {}
        """How many tables each array of tables has so far."""

    def read(self) -> None:
        table: tuple[str | int, ...] = ()
        while self._skip(_GAP) < len(self._text):
            began = self._at
            if self._text[self._at] == "[":
                table = self._header()
                self._see(table, began)
            else:
                self._pair(table)

    def _skip(self, what: re.Pattern[str]) -> int:
        found = what.match(self._text, self._at)
        self._at = found.end() if found else self._at + 1  # never stands still, whatever it is given
        return self._at

    def _header(self) -> tuple[str | int, ...]:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        *outer, last = self._keys()
        self._at += 2 if is_array else 1
        table: tuple[str | int, ...] = ()
        for key in outer:
            table = self._latest((*table, key))
        table = (*table, last)
        if not is_array:
            return self._latest(table)
        self._counts[table] = number = self._counts.get(table, 0) + 1
        return (*table, number - 1)

    def _latest(self, table: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """A table is named by its key alone also where it is the last one of an array."""
        number = self._counts.get(table, 0)
        return (*table, number - 1) if number else table

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            began = self._at
            word = self._text[began : self._skip(_KEY)]
            keys.append(_unescaped(word[1:-1]) if word[:1] == '"' else word.strip("'"))
            self._skip(_BLANK)
            if self._text[self._at : self._at + 1] != ".":
                return keys
            self._at += 1

    def _pair(self, table: tuple[str | int, ...]) -> None:
        began = self._at
        keys = self._keys()
        for count in range(1, len(keys) + 1):
            self._see((*table, *keys[:count]), began)
        self._at += 1  # the sign
        self._value((*table, *keys))

    def _value(self, path: tuple[str | int, ...]) -> None:
        self._skip(_BLANK)
        mark = self._text[self._at : self._at + 1]
        if mark == "[":
            self._members(path, "]")
        elif mark == "{":
            self._members(path, "}")
        else:
            self._skip(_STRING if mark in ('"', "'") else _SCALAR)

    def _members(self, path: tuple[str | int, ...], end: str) -> None:
        self._at += 1
        number = 0
        while self._skip(_GAP) < len(self._text) and self._text[self._at] != end:
            if self._text[self._at] == ",":
                self._at += 1
            elif end == "}":
                self._pair(path)
            else:
                self._see((*path, number), self._at)
                self._value((*path, number))
                number += 1
        self._at += 1


def _unescaped(body: str) -> str:
    """The key as the parser had it."""

    def one(found: re.Match[str]) -> str:
        sign = found[1]
        return chr(int(sign[1:], 16)) if len(sign) > 1 else _LETTERS.get(sign, sign)

    return _ESCAPE.sub(one, body) if "\\" in body else body
