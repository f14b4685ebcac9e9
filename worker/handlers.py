"""The user's face: `@handler` marks what a Worker can do, `Context` is what it is given, `Fail` is how it gives up.

A handler never sees the store. What it returns is its result; what it saves with `context.checkpoint` is where it goes
on after a crash, elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from treadle.shared.errors import Misuse
from treadle.shared.model import Capability
from treadle.shared.names import check_capability

VERSION = re.compile(r"(?:0|[1-9]\d{0,8})(?:\.(?:0|[1-9]\d{0,8})){2}(?:-[0-9A-Za-z.-]{1,32})?")
FRAMES_SHOWN_MAX = 6
ERROR_CHARS_MAX = 2_000
_MARK = "__treadle_handlers__"


class Fail(Exception):
    """Raised by a handler: the work cannot be done. `retryable` says whether the same inputs may succeed later."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class Context(Protocol):
    """What one run of one WorkItem is given; it is of no use after that run.

    Nothing of another slot can be reached from here, two slots of one Mission included.
    """

    @property
    def mission(self) -> str:
        """The Mission's id as its submitter wrote it."""

    @property
    def item(self) -> str:
        """The WorkItem's id as its submitter wrote it."""

    @property
    def worker(self) -> str:
        """The name of the Agent this run belongs to."""

    @property
    def attempt(self) -> int:
        """Which lease of this WorkItem this run holds: 1 at the first, one more after each crash, yield or return."""

    @property
    def inputs(self) -> dict[str, Any]:
        """What the submitter gave; the same value the handler gets as its second argument."""

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of the items named in `after`, by their ids."""

    @property
    def checkpoint_state(self) -> dict[str, Any]:
        """What the last saved `checkpoint` of this WorkItem held, by whichever Worker; {} at the first run."""

    @property
    def cancelled(self) -> bool:
        """Whether this run's lease is lost: nothing it does from here on will be accepted."""

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """A logger that names the Mission, the WorkItem and the attempt."""

    async def checkpoint(self, state: dict[str, Any]) -> None:
        """Make `state` durable (at most 1 MiB); the safe point, where the slot may be taken back.

        Idempotent: repeating it with the same state changes nothing. It does not return where the run ends here.
        """

    def progress(self, done: float, total: float = 1.0, *, note: str = "") -> None:
        """Say how far this run is; never waits. Logged at debug level; not stored, nothing else shows it yet."""


HandlerFunction = Callable[[Context, dict[str, Any]], Coroutine[Any, Any, Any]]
F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that does the work of one capability."""

    capability: Capability
    version: str
    function: HandlerFunction

    @property
    def place(self) -> str:
        """Where the function stands, for messages: file:line and name."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)


def handler(capability: str, *, version: str = "1.0.0") -> Callable[[F], F]:
    """Register an `async def function(context, inputs)` as what does the work of `capability`.

    The function itself is returned unchanged, so a test may call it. Misuse for a malformed capability or version, and
    for a function that is not `async def` or does not take (context, inputs).
    """
    if not isinstance(capability, str):
        raise Misuse('handler: needs the capability\'s name: write @handler("thumbnails"), not @handler')
    name = Capability(check_capability(capability, field="handler: capability"))
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise Misuse(f"handler {name}: version {str(version)[:80]!r} is not of the form '1.0.0'")

    def register(function: F) -> F:
        made = Handler(name, version, function)
        if not inspect.iscoroutinefunction(function):
            raise Misuse(
                f"handler {name}: {made.place} is not an `async def` function; write `async def` and "
                "`await context.checkpoint(...)` between the pieces of the work"
            )
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise Misuse(f"handler {name}: {made.place} must take (context, inputs): {error}") from None
        setattr(function, _MARK, (*getattr(function, _MARK, ()), made))
        return function

    return register


def collect(module: ModuleType) -> dict[Capability, Handler]:
    """The handlers that stand in `module`, defined or imported there, by capability; Misuse where two share one."""
    found: dict[Capability, Handler] = {}
    for value in list(vars(module).values()):
        for one in _handlers_of(value):
            if one.function is not value:  # functools.wraps copies the mark: the wrapper would be passed over
                raise Misuse(
                    f"handlers module {module.__name__}: {one.place} is wrapped after @handler({one.capability!r}); "
                    "put @handler above the other decorators"
                )
            other = found.setdefault(one.capability, one)
            if other is not one:
                raise Misuse(
                    f"handlers module {module.__name__}: two handlers for capability {one.capability!r}: "
                    f"{other.place} and {one.place}; keep one"
                )
    return dict(sorted(found.items()))


def _handlers_of(value: object) -> tuple[Handler, ...]:
    try:
        marks = vars(value).get(_MARK, ())
    except TypeError:  # has no __dict__: nothing can be registered on it
        return ()
    return marks if isinstance(marks, tuple) else ()


def load(module_name: str, app_dir: Path | None = None) -> dict[Capability, Handler]:
    """Import the handlers module, from the current folder first, then `app_dir`, and give its handlers.

    Misuse for a name that is no module's, for a module that does not import (with the module's own traceback, short),
    and for one without handlers. The two folders stay on the import path, for what a handler imports later.
    """
    if not all(part.isidentifier() for part in module_name.split(".")):
        hint = _for_a_file_name(module_name)
        raise Misuse(
            f"--handlers: {module_name[:200]!r} is not a module name such as 'handlers' or 'app.handlers'{hint}"
        )
    folders = [Path.cwd()]
    if app_dir is not None:
        if not app_dir.is_dir():
            raise Misuse(f"--app-dir: {str(app_dir)!r} is not a folder")
        folders.append(app_dir.resolve())
    first = [str(folder) for folder in dict.fromkeys(folders)]
    sys.path[:] = first + [entry for entry in sys.path if entry not in first]
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise Misuse(_does_not_import(module_name, error, searched=first)) from None
    found = collect(module)
    if not found:
        raise Misuse(
            f"--handlers: module {module_name!r} ({getattr(module, '__file__', None) or 'a namespace'}) "
            "holds no handler; "
            'mark an `async def` with @handler("capability")'
        )
    return found


def _does_not_import(module_name: str, error: BaseException, *, searched: list[str]) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and frame.filename not in (__file__, importlib.__file__)
    ]
    if isinstance(error, ModuleNotFoundError) and not frames and error.name is not None:
        return (
            f"--handlers: no module {error.name!r} in {', '.join(searched)} or on Python's path; "
            f"go to its folder or name it with --app-dir{_for_a_file_name(module_name)}"
        )
    lines = traceback.format_list(frames[-FRAMES_SHOWN_MAX:])
    said = "".join(traceback.format_exception_only(error)).strip()
    if len(said) > ERROR_CHARS_MAX:
        said = said[:ERROR_CHARS_MAX] + " ..."
    return f"--handlers: module {module_name!r} does not import:\n{''.join(lines)}{said}"


def _for_a_file_name(module_name: str) -> str:
    return f"; write {Path(module_name).stem!r}, not a file's name" if module_name.endswith(".py") else ""
