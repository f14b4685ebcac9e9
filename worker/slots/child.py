"""The process of a slot: it imports the handlers, and runs one after another as its Worker says. It never sees the store.

Started as `python -P -c ... FD`, with a line to its Worker at FD. Before each run it is as it was after the imports; what
a run leaves behind is said, and the Worker then ends this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
from treadle.shared import codec
from treadle.shared.containment import become_subreaper
from treadle.shared.inputs import plain
from treadle.shared.processes import follow_owner
from treadle.shared.redaction import hiding

from ..context import Blocked
from ..handlers import Handler
from ..loading import imported
from ..programs import program_of
from .allowance import Allowance
from .blocking import terms_of
from .budget import Budget, budget_of
from .contexts import called
from .errand import Errand
from .failures import blocked_of, failure_of, traceback_of
from .frames import FRAME_MAX, Kind
from .given import Given, given_of
from .home import Home
from .occupancy import Occupancy
from .piped import Line, LineLog, PipedService
from .results import pack_result
from .tasks import TaskErrand
from .threads import ThreadErrand
from .tools import Tool, collect_tools

REASON_CHARS_MAX = 1_000
"""So many of a reason travel; fewer are kept."""
_log = logging.getLogger("treadle.worker")


def main() -> None:
    """Runs until the Worker hangs up."""
    follow_owner()
    become_subreaper()
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    line = Line(link)
    log = LineLog(line)
    logging.basicConfig(level=logging.DEBUG, handlers=[log], format="%(message)s")
    _, (path, modules) = line.hear()
    handlers: dict[str, Handler] = {}
    tools: dict[str, Tool] = {}
    try:
        sys.path[:] = path
        for module in modules:
            handlers.update({str(name): one for name, one in imported(module).items()})
            tools |= collect_tools(sys.modules[module])
    except Exception as error:
        line.say(Kind.READY, str(error))
    else:
        line.say(Kind.READY, "")
    home = Home()
    while True:
        parts: dict[str, bytes] = {}
        while (frame := line.hear()).kind is not Kind.BEGIN:
            if frame.kind is Kind.BODY:
                parts[frame.fields[0]] = frame.fields[1]
        (terms,) = frame.fields
        log.allowance = Allowance()
        logging.root.setLevel(terms["level"])
        home.leave(terms)
        with asyncio.Runner() as runner:
            ended = runner.run(_run(line, _handler(terms, handlers), given_of(parts), tools))
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            line.say(Kind.END, *ended)  # not behind what the handler left running, which may never end
        line.say(Kind.CLEAN, home.come_back())


def _handler(terms: Mapping[str, Any], handlers: Mapping[str, Handler]) -> Handler:
    """The handler of a run: a program that it says, or what was imported."""
    name = terms["capability"]
    return program_of(name, terms["program"]) if terms["program"] else handlers[name]


async def _run(line: Line, handler: Handler, given: Given, tools: Mapping[str, Tool]) -> tuple[str, bytes]:
    """What came of the handler: `result`, `blocked`, `failure` or `stopped`, and its bytes."""
    scope = anyio.CancelScope()
    budget = Budget(budget_of(given.contract, given.name).limits, given.spent)
    service = PipedService(line, budget, scope.cancel)
    loop = asyncio.get_running_loop()
    loop.add_reader(line.fileno(), service.hear)
    loop.call_soon(service.hear)  # what came with the beginning has been read already
    try:
        call = called(handler, given, service, tools)
    except Exception as error:
        with hiding(given.inputs):
            return _failure(error, handler, retryable=False)
    occupancy = Occupancy(1)
    errand: Errand
    if handler.is_sync:
        errand = ThreadErrand(occupancy, given.name, call, await occupancy.admit(given.name))
    else:
        errand = TaskErrand(occupancy, given.name, call)
    ended: tuple[str, bytes] = ("stopped", b"")
    try:
        with scope:
            ended = _result(await errand.run(), handler)
    except BaseException as error:
        with hiding(given.inputs):  # before it is cut: half a secret is not found by its Worker
            ended = _raised(error, handler)
    service.tell()
    service.has_returned = True
    await errand.unwound()
    if occupancy.given_up:  # nothing more can come of this process
        os._exit(1)
    return ended


def _result(value: Any, handler: Handler) -> tuple[str, bytes]:
    try:
        return "result", pack_result(value)
    except Exception as error:  # the same code gives it again
        return _failure(error, handler, retryable=False)


def _raised(error: BaseException, handler: Handler) -> tuple[str, bytes]:
    blocked = blocked_of(error)
    if blocked is None:
        return _failure(error, handler, retryable=True)
    try:
        terms_of(blocked)
        return "blocked", _said_of(blocked)
    except Exception as wrong:
        return _failure(wrong, handler, retryable=False)


def _said_of(blocked: Blocked) -> bytes:
    said = {"reason": blocked.reason[:REASON_CHARS_MAX], "needs": plain(blocked.needs), "lease_s": blocked.lease_s}
    return codec.pack(said, field="Blocked", limit=FRAME_MAX)


def _failure(error: BaseException, handler: Handler, *, retryable: bool) -> tuple[str, bytes]:
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s", traceback_of(error))
    failure = failure_of(error, retryable=retryable, place=handler.line)
    if failure.kind == "MemoryError" and not failure.text and handler.limits and handler.limits.memory_mb:
        text = (
            f"more than limits: memory_mb: {handler.limits.memory_mb:,}; give the handler more, or less to do at once"
        )
        failure = replace(failure, text=text)
    return "failure", failure.evidence()


if __name__ == "__main__":
    main()
