"""Handlers that look, each from its own slot, for the marks of the others while all are at work, and note what they find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
from taint import everything, strangers, texts
from treadle.worker import Context, SyncContext, handler

MEET_S = 30.0
PAUSE_S = 0.02


def _here(context: Any) -> bool:
    """Says that this one is at work, once; whether all are."""
    folder = Path(context.inputs["folder"])
    (folder / f"{context.mission}.{context.item}.here").touch()
    return len(list(folder.glob("*.here"))) >= int(context.inputs["slots"])


def look(context: Any) -> None:
    """What this slot can see of the others; the Worker's process has them all, so there only the context is walked."""
    name, is_alone = f"{context.mission}/{context.item}", context.inputs["is_alone"]
    own = texts(context)
    assert context.credentials["key"] in own, "it finds its own"
    child = subprocess.run([sys.executable, "-c", "import os; print(os.environ)"], capture_output=True, check=True)
    places = {Path.cwd(), Path(os.environ["TMPDIR"])} if is_alone else set[Path]()
    proc = Path("/proc/self")
    seen = {
        "context": own,
        "memory": everything() if is_alone else (),
        "environment": [repr(dict(os.environ)), child.stdout.decode()],
        "process": [(proc / file).read_bytes().decode("latin-1") for file in ("environ", "cmdline")],
        "files": [file.read_text() for place in places for file in place.rglob("*") if file.is_file()],
    }
    found = {where: strangers(name, said) for where, said in seen.items()}
    for where in ("environment", "process"):  # not even its own
        found[where] += ["its own secret"] * any(context.credentials["key"] in text for text in seen[where])
    print(f"printed by {name}: {context.credentials['key'] if is_alone else ''}")
    context.logger.warning("logged by %s: %s", name, context.credentials["key"])
    report = Path(context.inputs["folder"]) / f"{context.mission}.{context.item}.{context.attempt}.json"
    report.write_text(json.dumps({"found": found, "pid": os.getpid()}))


@handler("taint.loop")
async def on_the_loop(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    await context.checkpoint({"mark": inputs["checkpoint"]})
    with anyio.fail_after(MEET_S):
        while not _here(context):  # noqa: ASYNC110 - the others may be in other processes
            await anyio.sleep(PAUSE_S)
    async with context.effect(inputs["effect"]) as effect:
        if effect.is_new:
            effect.result = {"mark": inputs["effect"]}
    context.spend(inputs["budget"], 1)
    look(context)
    if context.attempt == 1:
        raise ValueError(f"cannot use {context.credentials['key']}")
    return {"mark": inputs["result"]}


@handler("taint.thread")
def in_a_thread(context: SyncContext, inputs: dict[str, Any]) -> dict[str, Any]:
    context.checkpoint({"mark": inputs["checkpoint"]})
    ends_s = time.monotonic() + MEET_S
    while not _here(context):
        assert time.monotonic() < ends_s, "the others do not come"
        time.sleep(PAUSE_S)
    with context.effect(inputs["effect"]) as effect:
        if effect.is_new:
            effect.result = {"mark": inputs["effect"]}
    context.spend(inputs["budget"], 1)
    look(context)
    if context.attempt == 1:
        raise ValueError(f"cannot use {context.credentials['key']}")
    return {"mark": inputs["result"]}
