"""The demo's handlers: an index and an audit of Python source files, in shards, each with its merge.

inputs of a shard: {"root": FOLDER, "files": [PATH, ...]}, the paths relative to the folder. A shard works file by file,
saves its progress after every few, and goes on from there after a crash, on whichever Worker. A merge has no inputs: it
reads the results of the shards it comes after.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import io
import time
import tokenize
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..handlers import Context, Fail, handler
from .evidence import note

SAVE_EACH_FILES = 3
SAVE_EACH_S = 0.1
LONGEST_KEPT = 50
BEGINNING_CHARS = 60

Shard = dict[str, Any]
"""What a shard knows so far: its Checkpoint, and at the end its result."""

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError)
"""What reading a file as Python may raise: bad syntax, null bytes, a wrong encoding, too deep nesting."""


@handler("demo.index")
async def index(context: Context, inputs: dict[str, Any]) -> Shard:
    """Per file: SHA-256, lines, words, functions and classes."""
    return await _file_by_file(context, inputs, {"files": {}}, _index_file)


@handler("demo.audit")
async def audit(context: Context, inputs: dict[str, Any]) -> Shard:
    """Over all files: the longest lines, the files with tabs, tokens and comments."""
    return await _file_by_file(context, inputs, dict(EMPTY_AUDIT), _audit_file)


@handler("demo.index.merge")
async def merge_index(context: Context, inputs: dict[str, Any]) -> Shard:  # noqa: ARG001 - a merge has no inputs
    """One row per file, and the totals."""
    files: dict[str, Any] = {}
    for shard in context.results.values():
        files.update(shard["files"])
    parsed = [row for row in files.values() if row is not None and row["functions"] is not None]
    read = [row for row in files.values() if row is not None]
    totals = {
        "files": len(files),
        "unreadable": len(files) - len(read),
        "unparsable": len(read) - len(parsed),
        "lines": sum(row["lines"] for row in read),
        "words": sum(row["words"] for row in read),
        "functions": sum(row["functions"] for row in parsed),
        "classes": sum(row["classes"] for row in parsed),
    }
    return {"files": files, "totals": totals}


@handler("demo.audit.merge")
async def merge_audit(context: Context, inputs: dict[str, Any]) -> Shard:  # noqa: ARG001 - a merge has no inputs
    """The longest lines of all shards, all files with tabs, and the sums."""
    shards = list(context.results.values())
    merged: Shard = {name: sum(shard[name] for shard in shards) for name, empty in EMPTY_AUDIT.items() if empty == 0}
    longest = [line for shard in shards for line in shard["longest_lines"]]
    merged["longest_lines"] = sorted(longest, key=_line_order)[:LONGEST_KEPT]
    for name in ("files_with_tabs", "files_with_tabs_in_text_only"):
        merged[name] = sorted(path for shard in shards for path in shard[name])
    return merged


async def _file_by_file(
    context: Context, inputs: dict[str, Any], empty: Shard, measure: Callable[[Shard, str, bytes | None], None]
) -> Shard:
    root, files = Path(inputs["root"]), inputs["files"]
    if not root.is_dir():  # noqa: ASYNC240 - one look, no slower than the reads below
        raise Fail(f"{root} is no folder on this host: the demo's Workers read the files themselves", retryable=False)
    saved = context.checkpoint_state
    done: int = saved.get("next", 0)
    state: Shard = saved.get("state", empty)
    unsaved, saved_at = 0, time.monotonic()
    for position in range(done, len(files)):
        path = files[position]
        measure(state, path, _read(root / path))
        note(context, path)
        unsaved += 1
        is_due = unsaved >= SAVE_EACH_FILES or time.monotonic() - saved_at >= SAVE_EACH_S
        if is_due and position + 1 < len(files):
            context.progress(position + 1, len(files), note=path)
            await context.checkpoint({"next": position + 1, "state": state})
            unsaved, saved_at = 0, time.monotonic()
        else:
            await asyncio.sleep(0)  # the other slots of this process get their turn between two files
    return state


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _index_file(state: Shard, path: str, raw: bytes | None) -> None:
    if raw is None:
        state["files"][path] = None
        return
    functions: int | None = 0
    classes: int | None = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user's file with an invalid escape is not our warning
            tree = ast.parse(raw)
        nodes = [type(node) for node in ast.walk(tree)]
        functions = nodes.count(ast.FunctionDef) + nodes.count(ast.AsyncFunctionDef)
        classes = nodes.count(ast.ClassDef)
    except UNPARSABLE:
        functions = classes = None
    state["files"][path] = {
        "sha256": hashlib.sha256(raw).hexdigest(),
        "lines": len(raw.splitlines()),
        "words": len(raw.split()),
        "functions": functions,
        "classes": classes,
    }


EMPTY_AUDIT: dict[str, Any] = {
    "files": 0,
    "unreadable": 0,
    "unparsable": 0,
    "tokens": 0,
    "comments": 0,
    "longest_lines": [],
    "files_with_tabs": [],
    "files_with_tabs_in_text_only": [],
}


def _audit_file(state: Shard, path: str, raw: bytes | None) -> None:
    state["files"] += 1
    if raw is None:
        state["unreadable"] += 1
        return
    lines = [line.decode("utf-8", "replace") for line in raw.splitlines()]
    candidates = [[path, number, len(line), line[:BEGINNING_CHARS]] for number, line in enumerate(lines, start=1)]
    state["longest_lines"] = sorted([*state["longest_lines"], *candidates], key=_line_order)[:LONGEST_KEPT]
    tabs = raw.count(b"\t")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokens = list(tokenize.tokenize(io.BytesIO(raw).readline))
    except UNPARSABLE:
        state["unparsable"] += 1
        in_text = 0
    else:
        state["tokens"] += len(tokens)
        state["comments"] += sum(token.type == tokenize.COMMENT for token in tokens)
        in_text = sum(token.string.count("\t") for token in tokens if token.type in TEXT_TOKENS)
    if tabs:
        where = "files_with_tabs_in_text_only" if in_text == tabs else "files_with_tabs"
        state[where] = [*state[where], path]


TEXT_TOKENS = frozenset(
    number
    for number, name in tokenize.tok_name.items()
    if name in ("STRING", "COMMENT") or name.endswith("STRING_MIDDLE")
)
"""The tokens in which a tab is text, not layout; f-strings (3.12) and t-strings (3.14) have their own."""


def _line_order(line: list[Any]) -> tuple[int, str, int]:
    return (-line[2], line[0], line[1])
