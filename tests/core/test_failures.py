"""BR-57: exceptions of any kind become a type name and bounded, printable text; never the exception itself."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from treadle.shared import codec
from treadle.shared.codec import EVIDENCE_MAX
from treadle.shared.errors import Misuse
from treadle.worker import Fail
from treadle.worker.slots.failures import Failure, failure_of, printable, traceback_of

E = TypeVar("E", bound=BaseException)


class NeedsArguments(Exception):
    def __init__(self, first: str, *, second: int) -> None:
        super().__init__()
        self.first, self.second = first, second


class HoldsALock(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ExitsForText(BaseException):
    def __str__(self) -> str:
        raise SystemExit(3)


class OddText(str):
    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("not a slice of it")


class SaysOddText(Exception):
    def __str__(self) -> str:
        return OddText("odd")


def raised(error: E) -> E:
    """The exception, raised here once."""
    with suppress(BaseException):
        raise error
    return error


def evidence_of(failure: Failure) -> dict[str, Any]:
    raw = failure.evidence()
    assert len(raw) <= EVIDENCE_MAX
    found = codec.unpack(raw, what="Evidence")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (NeedsArguments("a", second=2), "NeedsArguments", ""),
        (HoldsALock(), "HoldsALock", "holds a lock"),
        (ValueError("x" * 10_000_000), "ValueError", "x" * 2_000 + " ..."),
        (ValueError("a\udc80b"), "ValueError", "a\\udc80b"),
        (ValueError("\x1b[31mred\x00\u202eleft"), "ValueError", "\\x1b[31mred\\x00\\x202eleft"),
        (ValueError("é 日本 🎉\nnext"), "ValueError", "é 日本 🎉\nnext"),
        (NoText(), "NoText", "(its text cannot be shown)"),
        (ExitsForText(), "ExitsForText", "(its text cannot be shown)"),
        (SaysOddText(), "SaysOddText", "odd"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyError("k"), "KeyError", "'k'"),
    ],
)
def test_whatever_is_raised_is_recorded_as_type_and_bounded_printable_text(
    error: BaseException, kind: str, text: str
) -> None:
    failure = failure_of(raised(error), retryable=True)
    assert (failure.kind, failure.text, failure.retryable) == (kind, text, True)
    assert evidence_of(failure)["text"] == text
    assert failure.place.startswith(__file__)
    assert str(failure).isprintable()
    assert len(str(failure)) < 1_000
    assert len(traceback_of(error)) < 40_000


def test_the_evidence_is_small_enough_whatever_each_of_its_parts_holds() -> None:
    for char in ("🎉", "\U0010ffff", "\x00", "\udc80", "é"):
        kind = type("N" + "🎉" * 5_000, (Exception,), {})
        failure = failure_of(raised(kind(char * 100_000)), retryable=True, place=char * 10_000)
        assert len(evidence_of(failure)["type"]) < 400
        mixed = failure_of(ValueError(("🎉" * 7 + char) * 10_000), retryable=False)
        assert evidence_of(mixed)["retryable"] is False


def test_a_group_says_what_stands_in_it() -> None:
    inner = ExceptionGroup("inner", [KeyError("k"), ValueError("v")])
    group = ExceptionGroup("outer", [raised(OSError("disk")), inner])
    failure = failure_of(raised(group), retryable=True)
    assert failure.kind == "ExceptionGroup"
    assert failure.text == "outer (2 sub-exceptions)\nOSError: disk\nKeyError: 'k'\nValueError: v"
    many = failure_of(ExceptionGroup("many", [ValueError(str(n)) for n in range(50)]), retryable=True)
    assert many.text.endswith("ValueError: 4\nand 45 more")
    deep: Exception = ValueError("deep")
    for _ in range(500):
        deep = ExceptionGroup("g", [deep])
    assert failure_of(deep, retryable=True).kind == "ExceptionGroup"


def test_a_fail_says_itself_whether_it_is_retryable_also_in_a_group() -> None:
    assert not failure_of(Fail("no"), retryable=True).retryable
    assert failure_of(Fail("busy", retryable=True), retryable=False).retryable
    assert not failure_of(ExceptionGroup("g", [ValueError("x"), Fail("no")]), retryable=True).retryable
    assert failure_of(ExceptionGroup("g", [Fail("busy", retryable=True)]), retryable=False).retryable


def test_the_place_is_where_the_handlers_own_code_was_and_not_ours() -> None:
    try:
        codec.pack(object(), field="checkpoint", limit=10)
    except Misuse as error:
        failure = failure_of(error, retryable=False, place="thumbs.py:3")
    assert failure.place.startswith(__file__)
    assert failure.code == Misuse.code
    assert failure_of(ValueError("never raised"), retryable=True, place="thumbs.py:3").place == "thumbs.py:3"


async def test_the_place_of_what_the_event_loop_raises_is_the_line_that_waited() -> None:
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
    except TimeoutError as error:
        failure = failure_of(error, retryable=True, place="thumbs.py:3")
    assert failure.place.startswith(f"{__file__}:")
    with suppress(RuntimeError):
        try:
            raise StopIteration
        except StopIteration as error:
            turned = RuntimeError("the handler raised StopIteration")
            turned.__cause__ = error
    assert failure_of(turned, retryable=True, place="thumbs.py:3").place.startswith(f"{__file__}:")


def test_a_failures_line_is_one_line() -> None:
    line = str(Failure("ValueError", "first\nsecond\tthird", "a.py:1", "", True))
    assert line == "a.py:1: ValueError: first | second third"


def test_printable_leaves_nothing_a_terminal_would_obey() -> None:
    assert printable("a\x1b]0;title\x07\r\x9bb") == "a\\x1b]0;title\\x07\\x0d\\x9bb"
