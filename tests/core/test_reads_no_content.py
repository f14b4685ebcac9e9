"""The Scheduler and the disclosure never touch what a Mission's people and handlers wrote, at run time (R33, WRK-028).

That no room of theirs reads such a field is a sentence of the house; here whoever touches the values is caught.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from builders import AGENT, CAPABILITY, GROUP, ITEM, NOW_MS, SESSION, a_usage, an_entry, an_event
from treadle.shared.model import EventKind, Grant, Lease, LeaseId, Session
from treadle.shared.store import Disclose, Envelope, Outcome, Take, TurnReply
from treadle.worker.handlers import Handler
from treadle.worker.slots.run import Run
from treadle.worker.tenure import Tenure

TTL_MS = 10_000


class Touched(AssertionError):
    """Content was read."""


def _touched(*_: object, **__: object) -> Any:
    raise Touched


_WAYS = """
    __len__ __getitem__ __iter__ __contains__ __eq__ __ne__ __lt__ __hash__ __bool__ __repr__ __str__ __bytes__ __add__ __radd__
    __mod__ __format__ __getattribute__ __reduce__ __copy__ __deepcopy__
"""
Content = type("Content", (), dict.fromkeys(_WAYS.split(), _touched))


def content() -> bytes:
    """A value that cannot be looked at in any way."""
    return cast("bytes", Content())


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grants come in time."""
    monkeypatch.setattr("anyio.current_time", lambda: 0.0)


def test_content_that_is_touched_is_seen() -> None:
    for touch in (len, bytes, repr, bool, hash, list, str):
        with pytest.raises(Touched):
            touch(content())
    with pytest.raises(Touched):
        replace(a_grant(), contract=b"") == a_grant()  # noqa: B015


def a_grant() -> Grant:
    lease = Lease(LeaseId("l-1"), GROUP, ITEM, AGENT, SESSION, 1, 1, NOW_MS + TTL_MS, 1, "r")
    return Grant(0, GROUP, ITEM, CAPABILITY, 1, 1, NOW_MS + 60_000, 1, lease, 0, (), content(), content())


async def _work(context: Any, inputs: Any) -> None:
    del context, inputs


async def test_r33_an_item_is_decided_on_granted_disclosed_and_ended_without_a_look_at_its_content() -> None:
    """All that a session does with an item, but for the run of its handler: take, grant, Events, disclosure, end."""
    begun: list[Run] = []
    session = Session(AGENT, SESSION, TTL_MS, (CAPABILITY,), "r")
    handlers = {CAPABILITY: Handler(CAPABILITY, "1.0.0", _work)}
    desk: Any = None
    tenure = Tenure(session, handlers=handlers, slots=1, groups="*", partitions=1, desk=desk, begin=begun.append)
    tenure.renewals.now = lambda: 0.0
    tenure.admit([an_entry(usage=a_usage(typical_ms=5_000))], NOW_MS)
    (turn,) = tenure.turns(NOW_MS)
    assert isinstance(turn.operations[0], Take)
    envelope = Envelope(NOW_MS, None, 1, 1)
    tenure.answer(
        turn, TurnReply(envelope, (Outcome("OK", None, (a_grant(),)),), (), (an_entry(takeable=0),)), asked_s=0.0
    )
    tenure.hear(0, GROUP, 0, 1, 2, [an_event(EventKind.ACCEPTED, 1), an_event(EventKind.STARTED, 2)])
    (run,) = begun
    (turn,) = tenure.turns(NOW_MS + 1_000)
    (said,) = (operation for operation in turn.operations if isinstance(operation, Disclose))
    assert said.said.start_from_ms == NOW_MS
    tenure.answer(turn, TurnReply(envelope, (Outcome("OK", 3),), (), ()), asked_s=0.0)
    run.has_returned = run.has_result = True
    tenure.finished(run)
    assert tenure.free_slots == 1
