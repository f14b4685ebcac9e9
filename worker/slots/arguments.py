"""The argument list of a program, and what of an item's inputs is filled into it. No shell reads it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, cast

from treadle.shared.errors import Misuse

from ..context import Fail

ARGUMENTS_MAX = 256
ARGUMENT_BYTES_MAX = 100_000
"""Below what Linux takes (128 KiB); what is longer comes in by standard input."""
_FIELD = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}", re.ASCII)
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|fi)?sh|python[\d.]*|perl[\d.]*|ruby[\d.]*|node|awk|gawk|mawk")
_TAKES_CODE = re.compile(r"-[a-zA-Z]*[ceE]|--eval|--print|-p")


def check(argv: object, *, field: str) -> tuple[str, ...]:
    """The argument list of a program; Misuse where it is none, or where an input would be read as code."""
    given = [] if isinstance(argv, str) or not isinstance(argv, Sequence) else list(cast("Sequence[object]", argv))
    if not given:
        raise Misuse(f"{field}: must be a list of arguments, the program first, such as ['./thumb', '{{size}}']")
    words = [word for word in given if isinstance(word, str)]
    if len(words) != len(given):
        raise Misuse(f"{field}: holds a value that is no text; write every argument as a string")
    if len(words) > ARGUMENTS_MAX:
        raise Misuse(f"{field}: {len(words)} arguments, at most {ARGUMENTS_MAX}")
    if not words[0] or _FIELD.search(words[0]):
        raise Misuse(f"{field}: {words[0][:80]!r} is to be run; inputs never choose the program")
    for number, word in enumerate(words):
        if "\0" in word or len(word.encode("utf-8", "surrogateescape")) > ARGUMENT_BYTES_MAX:
            raise Misuse(f"{field}: argument {number} holds a NUL, or more than {ARGUMENT_BYTES_MAX:,} bytes")
    _check_code(words, field)
    return tuple(words)


def _check_code(words: Sequence[str], field: str) -> None:
    """What an interpreter is told to run holds no input: whoever gives the input would write the program."""
    if _INTERPRETERS.fullmatch(PurePath(words[0]).name) is None:
        return
    is_awk = words[0].endswith("awk")
    for before, word in pairwise(words):
        is_code = _TAKES_CODE.fullmatch(before) is not None or (is_awk and before == words[0])
        if is_code and (found := next((match[2] for match in _FIELD.finditer(word) if match[2]), None)):
            raise Misuse(
                f"{field}: {{{found}}} stands in the code that {words[0][:40]!r} runs, so the input would be code; give it "
                f"as an argument of its own: [{words[0][:40]!r}, {before[:20]!r}, '... \"$1\"', 'name', '{{{found}}}']"
            )


def filled(argv: Sequence[str], inputs: Mapping[str, Any]) -> list[str]:
    """The arguments of one run. Fail, for good, where a field is not there, or is not of a kind that an argument can be."""
    found: list[str] = []
    for number, word in enumerate(argv):
        is_after_dashes = "--" in argv[1:number]

        def value(match: re.Match[str], *, dashes_done: bool = is_after_dashes) -> str:
            if match[1]:
                return f"{{{match[1]}}}"
            text = _text(match[2], inputs)
            if match.start() == 0 and text.startswith("-") and isinstance(inputs[match[2]], str) and not dashes_done:
                raise Fail(
                    f"inputs: {match[2]}={text[:40]!r} begins with '-' and would be taken for an option; put '--' before "
                    f"{{{match[2]}}} in the command, or write --option={{{match[2]}}}"
                )
            return text

        argument = _FIELD.sub(value, word)
        if len(argument.encode()) > ARGUMENT_BYTES_MAX:
            raise Fail(
                f"argument {number} of the command is {len(argument.encode()):,} bytes, at most {ARGUMENT_BYTES_MAX:,}; "
                "read it from standard input"
            )
        found.append(argument)
    return found


def _text(name: str, inputs: Mapping[str, Any]) -> str:
    if name not in inputs:
        known = ", ".join(sorted(map(str, inputs))[:8]) or "none"
        raise Fail(f"inputs: {{{name}}} is asked for by the command and is not there; fields: {known[:200]}")
    value = inputs[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        raise Fail(
            f"inputs: {name} is of type {type(value).__name__}; an argument is text, a number or a truth value, the rest is "
            "read from standard input"
        )
    if "\0" in value:
        raise Fail(f"inputs: {name} holds a NUL, which no argument can")
    return value
