"""The same two reports by a plain single process, as simple as it goes, and their comparison with the Missions'."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, cast

DIFFERENCE_LINES_MAX = 60
LINE_CHARS_MAX = 200
BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError)


def compute(root: Path, paths: Iterable[str]) -> dict[str, Any]:
    """Both reports over the files below `root`: {"index": ..., "audit": ...}."""
    rows: dict[str, Any] = {}
    unreadable = unparsable = untokenised = lines = words = functions = classes = tokens = comments = 0
    long_lines: list[tuple[int, str, int, str]] = []
    with_tabs: list[str] = []
    with_tabs_in_text_only: list[str] = []
    for path in sorted(paths):
        try:
            raw = (root / path).read_bytes()
        except OSError:
            rows[path] = None
            unreadable += 1
            continue
        row: dict[str, Any] = {"sha256": hashlib.sha256(raw).hexdigest()}
        row["lines"] = len(raw.splitlines())
        row["words"] = len(raw.split())
        defined = _definitions(raw)
        row["functions"], row["classes"] = defined or (None, None)
        rows[path] = row
        lines += row["lines"]
        words += row["words"]
        if defined is None:
            unparsable += 1
        else:
            functions += defined[0]
            classes += defined[1]

        for number, line in enumerate(raw.splitlines(), start=1):
            text = line.decode("utf-8", "replace")
            long_lines.append((-len(text), path, number, text[:60]))
        long_lines = sorted(long_lines)[:50]
        found = _tokens(raw)
        if found is None:
            untokenised += 1
        else:
            tokens += len(found)
            comments += len([token for token in found if token.type == tokenize.COMMENT])
        if b"\t" in raw:
            outside = raw.count(b"\t") - sum(token.string.count("\t") for token in found or () if _is_text(token))
            (with_tabs if outside else with_tabs_in_text_only).append(path)
    index: dict[str, Any] = {
        "files": rows,
        "totals": {
            "files": len(rows),
            "unreadable": unreadable,
            "unparsable": unparsable,
            "lines": lines,
            "words": words,
            "functions": functions,
            "classes": classes,
        },
    }
    audit = {
        "files": len(rows),
        "unreadable": unreadable,
        "unparsable": untokenised,
        "tokens": tokens,
        "comments": comments,
        "longest_lines": [[path, number, -length, text] for length, path, number, text in long_lines],
        "files_with_tabs": with_tabs,
        "files_with_tabs_in_text_only": with_tabs_in_text_only,
    }
    return {"index": index, "audit": audit}


def _definitions(raw: bytes) -> tuple[int, int] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw)
    except BROKEN:
        return None
    functions = classes = 0
    for node in ast.walk(tree):
        functions += isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        classes += isinstance(node, ast.ClassDef)
    return functions, classes


def _tokens(raw: bytes) -> list[tokenize.TokenInfo] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(tokenize.tokenize(BytesIO(raw).readline))
    except BROKEN:
        return None


def _is_text(token: tokenize.TokenInfo) -> bool:
    name = tokenize.tok_name[token.type]
    return name in ("STRING", "COMMENT") or name.endswith("STRING_MIDDLE")


def canonical(report: object) -> bytes:
    """The one form in which two reports are compared: JSON with sorted keys, no blanks, UTF-8."""
    return json.dumps(report, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def difference(expected: object, got: object) -> str:
    """'' where both are equal byte for byte in canonical form, else a bounded diff of their values, plain computation first."""
    if canonical(expected) == canonical(got):
        return ""
    before, after = (list(_leaves(report, "")) for report in (expected, got))
    lines = [
        line if len(line) <= LINE_CHARS_MAX else line[:LINE_CHARS_MAX] + " ..."
        for line in difflib.unified_diff(before, after, "plain computation", "Missions", lineterm="", n=0)
        if not line.startswith("@@")  # the numbers of flattened lines say nothing
    ]
    more = len(lines) - DIFFERENCE_LINES_MAX
    return "\n".join([*lines[:DIFFERENCE_LINES_MAX], *([f"... and {more} lines more"] if more > 0 else [])])


def _leaves(value: object, path: str) -> Iterator[str]:
    """One line for each value inside, with the way to it, so that a difference names its file."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        for key in sorted(fields):
            yield from _leaves(fields[key], f"{path} > {key}" if path else str(key))
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield f"{path}: {json.dumps(one, ensure_ascii=False)}"
    else:
        yield f"{path}: {json.dumps(value, ensure_ascii=False)}"
