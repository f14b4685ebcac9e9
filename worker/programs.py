"""Programs as handlers: `command` in a handlers module, and `treadle-worker run --command`.

A program gets its inputs as JSON on standard input and prints its result; docs/handlers.md says the rest.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from treadle.shared.errors import Misuse
from treadle.shared.model import Capability
from treadle.shared.names import check_capability

from .handlers import Handler, check_process, check_version, marked
from .slots.arguments import check
from .slots.limits import Limits
from .slots.program import Program

_HERE = ("./", "../")


def command(
    capability: str,
    argv: Sequence[str],
    *,
    version: str = "1.0.0",
    limits: Limits | None = None,
    environment: Sequence[str] = (),
    saves_on_sigterm: bool = False,
) -> Program:
    """Register a program as what does the work of `capability`; it stands in a handlers module as a function does.

    `{field}` in an argument is that field of the inputs: a text, a number or a truth value. No shell reads them, and none may:
    Misuse where an input would stand in a shell's code. What begins with `./` is a path from where the Worker was started; the
    program itself runs in its slot's folder. With `saves_on_sigterm` it gets SIGTERM as soon as its slot is asked for, saves
    and ends; else only when its run is over.
    """
    made = _made(capability, argv, saves_on_sigterm=saves_on_sigterm)
    check_version(made.capability, version)
    check_process(made.capability, "process", limits, environment)
    whole = replace(made, version=version, limits=limits, environment=tuple(environment))
    return cast("Program", marked(made.function, whole))


def _made(capability: str, argv: Sequence[str], *, saves_on_sigterm: bool = False) -> Handler:
    name = Capability(check_capability(capability, field="command: capability"))
    words = [_from_here(word) for word in check(argv, field=f"command {name}")]
    return Handler(name, "1.0.0", Program(words, saves_on_sigterm=saves_on_sigterm), runtime="process")


def from_options(texts: Iterable[str]) -> dict[Capability, Handler]:
    """The handlers of `--command NAME=ARGV` options; quotes are read as a shell reads them, and nothing else is."""
    found: dict[Capability, Handler] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals:
            raise Misuse(f"--command: {text[:80]!r} is not of the form 'NAME=PROGRAM ARGUMENT ...'")
        try:
            argv = shlex.split(rest)
        except ValueError as error:
            raise Misuse(f"--command {name[:80]}: {str(error).lower()}") from None
        one = _made(name, argv)
        if one.capability in found:
            raise Misuse(f"--command: {one.capability!r} is there twice; keep one")
        found[one.capability] = one
    return found


def check_programs(handlers: Iterable[Handler]) -> None:
    """Misuse where a program is not there: known when a Worker starts, not when the first item fails."""
    for one in handlers:
        if isinstance(one.function, Program):
            program = one.function.argv[0]
            if shutil.which(program) is None:
                raise Misuse(f"command {one.capability}: {_why(program)}")


def _why(program: str) -> str:
    if os.sep not in program:
        return f"{program[:200]!r} is in no folder of PATH"
    if not Path(program).is_file():
        return f"{program[:200]!r} is not there"
    return f"{program[:200]!r} may not be run; `chmod +x` it"


def _from_here(word: str) -> str:
    return str(Path.cwd() / word) if word.startswith(_HERE) else word


def program_of(capability: str, said: Mapping[str, Any]) -> Handler:
    """The handler that `as_plain` has taken apart."""
    made = Program(said["argv"], saves_on_sigterm=said["saves_on_sigterm"])
    return Handler(Capability(capability), "1.0.0", made, runtime="process")


def as_plain(function: Any) -> dict[str, Any] | None:
    """A program as plain data, for the process that runs it; None of any other function."""
    if not isinstance(function, Program):
        return None
    return {"argv": list(function.argv), "saves_on_sigterm": function.saves_on_sigterm}
