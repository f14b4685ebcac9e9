"""What a handler may say with Blocked, and what of it reaches the store."""

from __future__ import annotations

from typing import Any

import pytest
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.names import name_of
from treadle.worker import Blocked, Fail
from treadle.worker.context import BLOCKED_S, BLOCKED_S_MAX
from treadle.worker.slots.blocking import REASON_MAX, terms_of
from treadle.worker.slots.failures import blocked_of


def test_reason_needs_and_a_day_of_ownership_unless_said_otherwise() -> None:
    reason, needs, ttl_ms = terms_of(Blocked("which one?", needs={"of": [1, 2]}))
    assert name_of(reason) == "which one?"
    assert codec.unpack(needs, what="needs") == {"of": [1, 2]}
    assert ttl_ms == 1000 * BLOCKED_S == 86_400_000
    assert terms_of(Blocked("no needs", lease_s=1.5))[1:] == (b"", 1500)


def test_a_long_reason_is_cut_and_a_hostile_one_is_a_token() -> None:
    reason, _, _ = terms_of(Blocked("日本 {x}\n\x1b" + "r" * 1000))
    assert reason.isascii()
    assert reason.isprintable()
    assert " " not in reason
    assert len(name_of(reason)) <= REASON_MAX + 20
    assert name_of(reason).startswith("日本 {x}")
    assert len(terms_of(Blocked("日" * 200))[0]) <= 2400, "the store's bound"


@pytest.mark.parametrize(
    ("blocked", "field"),
    [
        (Blocked(""), "reason"),
        (Blocked(" \n"), "reason"),
        (Blocked(7), "reason"),  # type: ignore[arg-type]
        (Blocked("r", lease_s=0.5), "lease_s"),
        (Blocked("r", lease_s=BLOCKED_S_MAX + 1), "lease_s"),
        (Blocked("r", lease_s=float("nan")), "lease_s"),
        (Blocked("r", lease_s="1"), "lease_s"),  # type: ignore[arg-type]
        (Blocked("r", needs=object()), "needs"),
        (Blocked("r", needs="n" * 20_000), "needs"),
    ],
)
def test_what_cannot_be_stored_is_named(blocked: Blocked, field: str) -> None:
    with pytest.raises(Misuse, match=rf"^Blocked: {field}"):
        terms_of(blocked)


ONE = Blocked("r")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ONE, ONE),
        (BaseExceptionGroup("tasks", [ONE]), ONE),
        (BaseExceptionGroup("tasks", [ExceptionGroup("more", [ONE, Blocked("s")])]), ONE),
        (ExceptionGroup("tasks", [ONE, ValueError("x")]), None),
        (ExceptionGroup("tasks", [Fail("x")]), None),
        (ValueError("x"), None),
    ],
)
def test_it_counts_out_of_a_task_group_where_nothing_else_went_wrong(error: BaseException, found: Any) -> None:
    assert blocked_of(error) is found
