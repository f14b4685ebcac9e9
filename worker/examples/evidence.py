"""What a Worker itself says it did: one JSON line per processed file, in one file per process.

The line is written in one append, so a kill -9 loses nothing before it and tears at most the last. Nothing is written
unless `TREADLE_DEMO_EVIDENCE` names a folder.
"""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path
from urllib.parse import quote

from ..handlers import Context

FOLDER = "TREADLE_DEMO_EVIDENCE"
_order = count(1)


def note(context: Context, path: str) -> None:
    """Append that this run has processed `path`; before its progress is saved, so a redone file is seen twice."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    line = {
        "mission": context.mission,
        "item": context.item,
        "file": path,
        "attempt": context.attempt,
        "worker": context.worker,
        "pid": os.getpid(),
        "order": next(_order),
        "at_ms": time.time_ns() // 1_000_000,
    }
    file = Path(folder) / f"{quote(context.worker, safe='')[:100]}-{os.getpid()}.jsonl"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
