"""What went wrong in a run, as text: type name, bounded printable words, place. Never the exception itself (BR-57)."""

from __future__ import annotations

import asyncio
import signal
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from treadle.shared import codec
from treadle.shared.errors import TreadleError, is_group
from treadle.shared.redaction import known

from ..context import Blocked, Fail

TEXT_MAX = 2_000
NAME_MAX = 200
LINE_MAX = 400
TRACEBACK_MAX = 20_000
LEAVES_SHOWN_MAX = 5
LEAVES_MAX = 100
_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "out of memory, or killed by somebody",
    signal.SIGXCPU: "it used more processor time than its limit",
    signal.SIGSEGV: "a fault in native code",
    signal.SIGBUS: "a fault in native code",
    signal.SIGABRT: "native code gave up",
}
_HERE = Path(__file__).parent.parent  # unresolved, as frames have it
_OURS = tuple(f"{folder}/" for folder in (_HERE, _HERE.parent / "shared"))
_THEIRS = f"{_HERE / 'examples'}/"
_LIBRARIES = tuple(
    f"{path}/" for path in {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_LOOPS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (asyncio, anyio))
"""Where a handler waits, is cancelled or times out: the line that called them is the one that says something."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed run: what its Evidence and its line in the log say."""

    kind: str
    text: str
    place: str
    """file:line of what raised, '' where nobody knows."""
    code: str
    retryable: bool

    def evidence(self) -> bytes:
        """The Evidence as the store keeps it; at most codec.EVIDENCE_MAX bytes by the bounds of its parts."""
        fields = {
            "type": self.kind,
            "text": self.text,
            "code": self.code,
            "place": self.place,
            "retryable": self.retryable,
        }
        return codec.pack(fields, field="failure", limit=codec.EVIDENCE_MAX)

    def hidden(self) -> Failure:
        """Itself as it is said here: a process of its own may not know all that is to be hidden."""
        kind, place, code = (printable(part, NAME_MAX) for part in (self.kind, self.place, self.code))
        return replace(self, kind=kind, text=printable(self.text), place=place, code=code)

    def __str__(self) -> str:
        """One line: `thumbs.py:12: KeyError: 'k'`."""
        said = f"{self.place}: {self.kind}: {self.text}" if self.place else f"{self.kind}: {self.text}"
        return printable(said.replace("\n", " | ").replace("\t", " "), LINE_MAX)


def failure_of(error: BaseException, *, retryable: bool, place: str = "") -> Failure:
    """The failure that `error` is. A Fail says itself whether it is retryable, also where it is one of a group.

    `place` is where it is said to be where it was not raised in the handler's own code.
    """
    leaves = list(_leaves(error))
    said = [leaf for leaf in leaves if isinstance(leaf, Fail)]
    if said:
        retryable = all(_is_retryable(leaf) for leaf in said)
    first = leaves[0] if leaves else error
    text = _text(error)
    if is_group(error):
        shown = [f"{_kind(leaf)}: {printable(_text(leaf), LINE_MAX)}" for leaf in leaves[:LEAVES_SHOWN_MAX]]
        if len(leaves) > LEAVES_SHOWN_MAX:
            shown.append(f"and {len(leaves) - LEAVES_SHOWN_MAX} more")
        text = "\n".join([printable(text, LINE_MAX), *shown])
    return Failure(
        kind=_kind(error),
        text=printable(text),
        place=printable(_place(first) or _place(error) or place, NAME_MAX),
        code=printable(error.code, NAME_MAX) if isinstance(error, TreadleError) else "",
        retryable=retryable,
    )


def blocked_of(error: BaseException) -> Blocked | None:
    """The Blocked that a handler raised, also out of a task group in which nothing else went wrong; None for a failure."""
    leaves = list(_leaves(error))
    found = [leaf for leaf in leaves if isinstance(leaf, Blocked)]
    return found[0] if found and len(found) == len(leaves) else None


def exit_text(status: int | None) -> str:
    """How a process ended that had not said what came of its run."""
    if status is None:
        return "it has ended, and nobody knows how"
    if status >= 0:
        return f"exit status {status}"
    name = signal.Signals(-status).name if -status in signal.valid_signals() else "unknown"
    why = _SIGNALS.get(-status)
    return f"killed by signal {-status} ({name})" + (f": {why}" if why else "")


def traceback_of(error: BaseException) -> str:
    """The traceback as a debug log shows it, bounded."""
    try:
        lines = traceback.format_exception(error)
    except BaseException:  # it calls the exception's own methods
        lines = ["(its traceback cannot be shown)"]
    return printable("".join(lines), TRACEBACK_MAX)


def printable(text: str, most: int = TEXT_MAX) -> str:
    """`text` bounded and without known secrets, with what a terminal or a log must not get replaced."""
    shown = known.hide(text, most).encode("utf-8", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in shown)
    return shown[: most + most // 2] + (" ..." if len(text) > most else "")


def _kind(error: BaseException) -> str:
    return printable(type.__dict__["__name__"].__get__(type(error)), NAME_MAX)


def _text(error: BaseException) -> str:
    try:
        return str.__str__(str(error))
    except BaseException:  # an exception whose own text cannot be made is still this item's failure
        return "(its text cannot be shown)"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, of groups in it too; the exception itself where it is none."""
    waiting, seen = [error], 0
    while waiting and seen < LEAVES_MAX:
        seen += 1
        one = waiting.pop()
        if is_group(one):
            waiting += reversed(one.exceptions[:LEAVES_MAX])
        else:
            yield one


def _is_retryable(fail: Fail) -> bool:
    return bool(getattr(fail, "retryable", False))  # of a subclass that does not call ours


def _place(error: BaseException) -> str:
    """Where it was raised: the last line of its traceback in the handler's own code, else in a library's; never in ours."""
    tracebacks = [one.__traceback__ for one in (error, error.__cause__) if one is not None]
    for trace in tracebacks:  # what a StopIteration was turned into has no line of the handler, its cause has
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
        theirs = [(name, line) for name, line in frames if _is_theirs(name)]
        own = [(name, line) for name, line in theirs if not name.startswith(_LIBRARIES)]
        if theirs:
            name, line = (own or theirs)[-1]
            return f"{name}:{line}"
    return ""


def _is_theirs(file: str) -> bool:
    return file.startswith(_THEIRS) or not file.startswith((*_OURS, *_LOOPS))
