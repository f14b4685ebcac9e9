"""What the end of a program means: its exit status, its output, its last words. Pure.

| exit status | the item |
| --- | --- |
| 0 | is done; standard output is its result: JSON, else text |
| 64, 65 | has failed for good: wrong usage, wrong data (sysexits.h) |
| 75 | has failed and is tried again, as its contract says |
| any other, or a signal | has failed and is tried again, as its contract says |
"""

from __future__ import annotations

import json
import signal

from treadle.shared import codec

from ..context import Fail

FINAL = frozenset({64, 65})
OUTPUT_MAX = codec.RESULT_MAX
LAST_WORDS_MAX = 1_000
"""Bytes of standard error that a failure says."""


def failure(status: int, last_words: bytes) -> Fail | None:
    """The failure that an exit status (below 0: a signal) means; None for success."""
    if status == 0:
        return None
    said = _last_lines(last_words)
    return Fail(how(status) + (f": {said}" if said else ""), retryable=status not in FINAL)


def how(status: int) -> str:
    """`exit status 3`; `killed by signal 9 (SIGKILL)`."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"killed by signal {-status}{name}"


def result_of(output: bytes) -> object:
    """What standard output says: JSON, else text without its last line feed; None where there is nothing."""
    if not output.strip():
        return None
    try:
        text = output.decode()
    except UnicodeDecodeError as error:
        raise Fail(f"its output is neither JSON nor text in UTF-8 (byte {error.start})") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.removesuffix("\n")


def too_much() -> Fail:
    """The failure of a program that writes more than a result may be."""
    return Fail(f"its output is more than {OUTPUT_MAX:,} bytes; write large results elsewhere and print their address")


def _last_lines(words: bytes) -> str:
    text = words[-LAST_WORDS_MAX:].decode("utf-8", "replace").strip()
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())
