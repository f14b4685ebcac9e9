"""What one run may spend: amounts by dimension, as its contract has them, charged before they are used.

What was spent is saved with each Checkpoint, in the same bytes, and at each end of a run that is no result. So a run that
goes on from a Checkpoint goes on with the amounts of that Checkpoint: what a crash loses is what was spent on work that is
lost with it, and nothing is charged twice (S22).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.names import CAPABILITY

from ..context import Fail

AMOUNT_MAX = 10**12
"""Also of what is only counted: that stands still there."""
DIMENSIONS_MAX = 16
ROOM = 4_096
"""Bytes that all dimensions take at most beside the state in a Checkpoint."""
TOOL_CALLS = "tool_calls"
"""What each call of a tool spends one of."""
MISSIONS_MAX = 1_024


class OverBudget(Fail):
    """Raised by `context.spend` and by a tool: the item's budget does not reach. Final, as a Fail is; nothing was charged."""

    def __init__(self, dimension: str, asked: int, left: int, limit: int) -> None:
        super().__init__(
            f"budget {dimension}: {asked:,} asked, {left:,} left of {limit:,}; give the item more (budgets) and submit it again"
        )
        self.dimension, self.asked, self.left = dimension, asked, left


class Budget:
    """One run's budget. Threads of the run may spend at once; what is left is never below 0."""

    def __init__(self, limits: Mapping[str, int] | None = None, spent: Mapping[str, int] | None = None) -> None:
        """`spent`: by the attempts before this one."""
        self.limits = dict(limits or {})
        self._lock = threading.Lock()
        self._before = dict(spent or {})
        self._saved = self._spent = self._before  # one mapping for all: what is spent makes a new one

    def spend(self, dimension: str, amount: int) -> None:
        """Charges `amount`. OverBudget where less is left; a dimension without a limit is only counted."""
        if not isinstance(dimension, str) or not CAPABILITY.fullmatch(dimension):
            raise Misuse(f"spend: dimension {codec.shown(dimension)} is not a name such as 'tokens'")
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= AMOUNT_MAX:
            raise Misuse(f"spend: {dimension}: {codec.shown(amount)}, must be a whole number, 0 to {AMOUNT_MAX:,}")
        with self._lock:
            spent = self._spent.get(dimension, 0)
            limit = self.limits.get(dimension)
            if limit is not None and spent + amount > limit:
                raise OverBudget(dimension, amount, max(0, limit - spent), limit)
            if dimension not in self._spent and len(self._spent) >= 2 * DIMENSIONS_MAX:
                raise Misuse(f"spend: {dimension}: the {2 * DIMENSIONS_MAX + 1}th dimension of one item; use fewer")
            self._spent = self._spent | {dimension: min(spent + amount, AMOUNT_MAX)}

    def left(self, dimension: str) -> int | None:
        """How much may still be spent; None where there is no limit."""
        limit = self.limits.get(dimension)
        return None if limit is None else max(0, limit - self._spent.get(dimension, 0))

    @property
    def spent(self) -> Mapping[str, int]:
        """By all attempts, as far as it was saved, and this one."""
        return self._spent

    @property
    def here(self) -> dict[str, int]:
        """By this attempt."""
        if self._spent is self._before:
            return {}
        return {name: more for name, amount in self._spent.items() if (more := amount - self._before.get(name, 0))}

    @property
    def is_kept(self) -> bool:
        """Whether what is spent is saved with Checkpoints: where the contract has budgets."""
        return bool(self.limits)

    @property
    def is_saved(self) -> bool:
        """Whether nothing was spent since the last `seal`."""
        return not self.limits or self._saved == self._spent

    def seal(self, state: bytes, *, is_new: bool = True) -> bytes:
        """The bytes of a Checkpoint: `state` with what is spent, where that is kept; else `state` itself.

        `is_new`: not one that was saved before, perhaps by a version of this program that left no room in it.
        """
        if not self.limits:
            return state
        field, most = "checkpoint with what its run has spent", codec.CHECKPOINT_MAX - ROOM
        # Else a state is taken with little spent, and the end of its run finds no room for more.
        if is_new and len(state) > most:
            raise Misuse(f"{field}: {len(state):,} bytes when packed, at most {most:,} where there are budgets")
        spent = self._spent
        kept = {"state": state, "spent": {name: spent[name] for name in sorted(spent)}}
        raw = codec.pack(kept, field=field, limit=codec.CHECKPOINT_MAX)
        self._saved = spent
        return raw

    def open(self, raw: bytes, what: str) -> bytes:
        """The state of a Checkpoint that `seal` made; goes on with what it says was spent. Corrupt for any other bytes."""
        if not self.limits:
            return raw
        kept = codec.unpack(raw, what=what)
        fields = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
        state, spent = fields.get("state"), fields.get("spent")
        if not isinstance(state, bytes) or not is_amounts(spent, most=2 * DIMENSIONS_MAX):
            raise Corrupt(f"{what}: is no state with what was spent, as an item with budgets has it")
        self._before = self._saved = self._spent = dict(cast("dict[str, int]", spent))
        return state


def budget_of(contract: Mapping[str, Any], what: str) -> Budget:
    """The budget of a contract, unspent; Corrupt where it is none."""
    limits = contract.get("budgets", {})
    if not is_amounts(limits, most=DIMENSIONS_MAX):
        raise Corrupt(f"contract of {what}: its budgets are {codec.shown(limits)}, no amounts by their names")
    return Budget(limits)


def is_amounts(value: object, *, most: int) -> bool:
    """Whether it is whole numbers by name, so many at most."""
    if not isinstance(value, dict) or len(cast("dict[object, object]", value)) > most:
        return False
    return all(
        isinstance(name, str) and isinstance(amount, int) and not isinstance(amount, bool) and 0 <= amount <= AMOUNT_MAX
        for name, amount in cast("dict[object, object]", value).items()
    )


class Spending:
    """What the runs of one Worker spent, by Mission and dimension, since it started; of the last MISSIONS_MAX Missions."""

    def __init__(self) -> None:
        self._by_mission: dict[str, dict[str, int]] = {}

    def add(self, mission: str, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Adds what one run spent; what its Mission spent here with it."""
        sums = self._by_mission.pop(mission, {})
        self._by_mission[mission] = sums  # the newest come last
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
        if len(self._by_mission) > MISSIONS_MAX:
            del self._by_mission[next(iter(self._by_mission))]
        return sums

    def of(self, mission: str) -> Mapping[str, int]:
        """What a Mission spent here."""
        return self._by_mission.get(mission, {})
