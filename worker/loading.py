"""The handlers of a module: the module imported, what is marked in it collected, each given the runtime it has."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from treadle.shared.errors import Misuse
from treadle.shared.model import Capability

from .handlers import Handler, Runtime, marks_of
from .slots.program import Program

FRAMES_SHOWN_MAX = 6
ERROR_CHARS_MAX = 2_000
_NOT_THEIRS = (Path(__file__).parent, Path(importlib.__file__).parent)
"""Folders whose lines say nothing to whoever wrote a handlers module."""


def collect(module: ModuleType) -> dict[Capability, Handler]:
    """The handlers that stand in `module`, defined or imported there, by capability; Misuse where two share one."""
    found: dict[Capability, Handler] = {}
    for value in list(vars(module).values()):
        for one in marks_of(value):
            if one.function is not value:  # functools.wraps copies the mark: the wrapper would be passed over
                raise Misuse(
                    f"handlers module {module.__name__}: {one.place} is wrapped after @handler({one.capability!r}); "
                    "put @handler above the other decorators"
                )
            if one.inputs is not None:
                one.inputs.check()
            other = found.setdefault(one.capability, one)
            if other is not one:
                raise Misuse(
                    f"handlers module {module.__name__}: two handlers for capability {one.capability!r}: "
                    f"{other.place} and {one.place}; keep one"
                )
    return dict(sorted(found.items()))


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
    return imported(module_name, searched=first)


def imported(module_name: str, *, searched: Sequence[str] = ()) -> dict[Capability, Handler]:
    """The handlers of a module that is on the path; Misuse as `load`."""
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise Misuse(_does_not_import(module_name, error, searched=searched)) from None
    found = {name: replace(one, home=module_name) for name, one in collect(module).items()}
    if not found:
        raise Misuse(
            f"--handlers: module {module_name!r} ({getattr(module, '__file__', None) or 'a namespace'}) "
            "holds no handler; "
            'mark a function with @handler("capability")'
        )
    return found


def settle(handlers: Mapping[Capability, Handler], runtime: Runtime) -> dict[Capability, Handler]:
    """The handlers, each with the runtime that it has; Misuse where a process of its own could not import one."""
    settled: dict[Capability, Handler] = {}
    for name, one in handlers.items():
        made = replace(one, runtime=one.runtime or runtime)
        if made.runtime == "process" and not isinstance(one.function, Program):  # a program is imported nowhere
            home = one.home or getattr(one.function, "__module__", "")
            module = sys.modules.get(home)
            if home == "__main__" or module is None or name not in collect(module):
                raise Misuse(
                    f"handler {name}: {one.place} is to run in a process of its own, which cannot import it from "
                    f"{home or 'nowhere'!r}; put it into a module, or use runtime='task'"
                )
            made = replace(made, home=home)
        settled[name] = made
    return settled


def _does_not_import(module_name: str, error: BaseException, *, searched: Sequence[str]) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib") and Path(frame.filename).parent not in _NOT_THEIRS
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
