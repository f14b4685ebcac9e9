"""A session's reservation, step by step: told to the store, renewed in time, let go, given up to another Worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import AGENT, CAPABILITY, GROUP, NOW_MS, SESSION, a_usage
from core.test_tenure import ENVELOPE, NoDesk
from treadle.shared.model import DirectoryEntry, Grant, ItemId, Lease, LeaseId, Session
from treadle.shared.policy import DEFAULT_POLICY
from treadle.shared.store import Hold, Operation, Outcome, Take, Turn, TurnReply
from treadle.worker.handlers import Handler
from treadle.worker.slots.occupancy import Occupancy
from treadle.worker.slots.run import Run
from treadle.worker.slots.workshop import Workshop
from treadle.worker.taking import GIVE_WAY_MS
from treadle.worker.tenure import Tenure

LIFE_MS = 900
W = ItemId("w")


async def _work(context: Any, inputs: Any) -> None:
    del context, inputs


def an_entry(takeable: int = 1, *, head: str = "k:w*4", holder: str = "", code: str = "") -> DirectoryEntry:
    head += f"@{holder}" if holder else ""
    return DirectoryEntry(0, GROUP, CAPABILITY, takeable, head, "acme", 1.0, "standard", a_usage(entry=1), code)


def a_grant(item: str, width: int) -> Grant:
    lease = Lease(LeaseId(item), GROUP, ItemId(item), AGENT, SESSION, 1, 1, NOW_MS + 10_000, 1, "r")
    return Grant(0, GROUP, ItemId(item), CAPABILITY, width, 1, NOW_MS + 60_000, 1, lease, 0, (), b"\x80", b"")


class Desk(NoDesk):
    workshop = Workshop(Occupancy(4))


def asked(turns: list[Turn]) -> list[Operation]:
    return [operation for turn in turns for operation in turn.operations]


def answered(tenure: Tenure, turn: Turn, *outcomes: Outcome, entry: DirectoryEntry | None = None) -> None:
    tenure.answer(turn, TurnReply(ENVELOPE, outcomes, (), (entry or an_entry(),)), asked_s=0.0)


@pytest.fixture
async def keeping(monkeypatch: pytest.MonkeyPatch) -> tuple[Tenure, Run]:
    """A session of four slots, one of them in use, that keeps the other three for an item of four."""
    monkeypatch.setattr("anyio.current_time", lambda: 0.0)
    begun: list[Run] = []
    session = Session(AGENT, SESSION, LIFE_MS, (CAPABILITY,), "r")
    handlers = {CAPABILITY: Handler(CAPABILITY, "1.0.0", _work)}
    tenure = Tenure(session, handlers=handlers, slots=4, groups="*", partitions=1, desk=Desk(), begin=begun.append)
    tenure.renewals.now = lambda: 0.0
    tenure.admit([an_entry(2, head="k:a")], NOW_MS)
    (turn,) = tenure.turns(NOW_MS)
    answered(tenure, turn, Outcome("OK", None, (a_grant("a", 1),)))
    assert asked(tenure.turns(NOW_MS)) == [Hold(GROUP, W)]
    return tenure, begun[0]


async def test_while_slots_are_kept_nothing_is_taken_and_no_token_is_listened_for(keeping: tuple[Tenure, Run]) -> None:
    tenure, _ = keeping
    (turn,) = tenure.turns(NOW_MS)
    assert turn.slots == 0
    answered(tenure, turn, Outcome("OK", at_ms=NOW_MS + LIFE_MS))
    tenure.admit([an_entry(9, head="k:w*4", holder=AGENT)], NOW_MS)
    assert tenure.turns(NOW_MS) == []
    assert (tenure.free_slots, tenure.open_slots) == (3, 0)


async def test_it_is_renewed_each_third_of_its_life_and_the_loop_wakes_for_that(keeping: tuple[Tenure, Run]) -> None:
    tenure, _ = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"))
    for times in (1, 2, 3):
        due_ms = NOW_MS + times * LIFE_MS // 3
        assert tenure.resumes_ms == due_ms
        assert tenure.turns(due_ms - 1) == []
        (turn,) = tenure.turns(due_ms)
        assert turn.operations == (Hold(GROUP, W),)
        answered(tenure, turn, Outcome("OK"))


async def test_once_it_fits_it_is_taken_with_all_its_slots_and_nothing_is_kept_any_more(
    keeping: tuple[Tenure, Run],
) -> None:
    tenure, run = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"), entry=an_entry(3, holder=AGENT))
    tenure.finished(run)
    (turn,) = tenure.turns(NOW_MS)
    (take,) = turn.operations
    assert isinstance(take, Take)
    assert (take.most, turn.slots) == (1, 4)
    assert take.limits is None
    answered(tenure, turn, Outcome("OK", None, (a_grant("w", 4),)), entry=an_entry(2, head="k:x"))
    assert tenure.reserving.kept is None
    assert tenure.turns(NOW_MS) == []
    assert tenure.resumes_ms is None


@pytest.mark.parametrize("code", ["RESERVED", "AUTH_FORBIDDEN", "QUARANTINE"])
async def test_where_the_store_says_no_what_is_behind_it_goes_on_at_once(
    code: str, keeping: tuple[Tenure, Run]
) -> None:
    tenure, _ = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome(code), entry=an_entry(5))
    assert tenure.reserving.kept is None
    (turn,) = tenure.turns(NOW_MS)
    (take,) = turn.operations
    assert isinstance(take, Take)
    assert (take.most, turn.slots) == (3, 3)
    answered(tenure, turn, Outcome("PASSED"), entry=an_entry(5))
    tenure.admit([an_entry(5)], NOW_MS + GIVE_WAY_MS - 1)
    assert Hold(GROUP, W) not in asked(tenure.turns(NOW_MS + GIVE_WAY_MS - 1)), "it is not asked again at once"
    tenure.taking.slot_freed()
    tenure.admit([an_entry(5)], NOW_MS + GIVE_WAY_MS)
    assert asked(tenure.turns(NOW_MS + GIVE_WAY_MS)) == [Hold(GROUP, W)]


@pytest.mark.parametrize(
    "entry",
    [
        an_entry(1, code="PAUSED"),
        an_entry(0),
        an_entry(3, head="j:v*4"),
        an_entry(3, head="j:v"),
    ],
)
async def test_what_is_to_be_had_no_longer_is_let_go_and_the_slots_are_used(
    entry: DirectoryEntry, keeping: tuple[Tenure, Run]
) -> None:
    tenure, _ = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"), entry=entry)
    operations = asked(tenure.turns(NOW_MS))
    assert operations[0] == Hold(GROUP, W, keep=False)
    rest = operations[1:]
    if entry.head_item == "v" and entry.head_width == 4:
        assert rest == [Hold(GROUP, ItemId("v"))]
    elif entry.head_item == "v":
        assert [type(operation) for operation in rest] == [Take]
    else:
        assert rest == []


async def test_fewer_slots_than_it_needs_let_it_go(keeping: tuple[Tenure, Run]) -> None:
    tenure, _ = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"))
    tenure.govern(DEFAULT_POLICY, 3, NOW_MS)
    operations = asked(tenure.turns(NOW_MS))
    assert operations[0] == Hold(GROUP, W, keep=False)
    assert tenure.reserving.kept is None


async def test_a_worker_that_stops_lets_go(keeping: tuple[Tenure, Run]) -> None:
    tenure, _ = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"))
    tenure.stop()
    assert asked(tenure.turns(NOW_MS)) == [Hold(GROUP, W, keep=False)]


async def test_what_this_worker_owns_waits_too_while_slots_are_kept(keeping: tuple[Tenure, Run]) -> None:
    """It would start before the item for which they are kept, and another after it."""
    tenure, run = keeping
    answered(tenure, tenure.turns(NOW_MS)[0], Outcome("OK"))
    tenure.inherit([replace(a_grant("mine", 1), lease=None)])
    assert tenure.turns(NOW_MS) == []
    tenure.finished(run)
    (turn,) = tenure.turns(NOW_MS)
    assert [type(operation) for operation in turn.operations] == [Take]
    assert turn.slots == 4
