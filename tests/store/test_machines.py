"""The state machines can fail: each finds the bugs that are put into the function library on purpose."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sim.editing import Edit, edited
from store.machine import DEEP, StoreMachine
from store.test_due_machine import DueMachine
from store.test_lease_machine import LeaseMachine

BUGS: list[tuple[type[StoreMachine], str, str, str]] = [
    (LeaseMachine, "_fence.lua", "it.lid ~= lease or tonumber(it.lex) <= S.now", "it.lid ~= lease"),
    (LeaseMachine, "_fence.lua", "if current ~= epoch then", "if false then"),
    (DueMachine, "_offer.lua", "G.due[timer .. G.name .. ' ' .. it.id] = false", ""),
    (DueMachine, "tick.lua", "'LIMIT', 0, most)", "'LIMIT', 0, most + 1)"),
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("machine", "file", "old", "new"), BUGS)
def test_a_bug_on_purpose_is_found(machine: type[StoreMachine], file: str, old: str, new: str) -> None:
    with edited([Edit(file, old, new)]), pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=settings(DEEP, derandomize=True, phases=[Phase.generate]))
