"""The Groups that keep this Agent out, and when each is asked again (R6)."""

from __future__ import annotations

from treadle.shared.model import GroupId

BARRED_S = 30.0
"""So long a Group is not asked: the doorbell that it lets this Agent in again can be lost."""


class Bars:
    """Which Groups to leave alone. One that was lifted is told once, by its partition, to be looked at anew."""

    def __init__(self) -> None:
        self._bars: dict[GroupId, tuple[int, float]] = {}

    @property
    def groups(self) -> set[GroupId]:
        """Those to leave alone now."""
        return set(self._bars)

    def put(self, group: GroupId, partition: int, now_s: float) -> None:
        """Leaves a Group alone for a while from now on."""
        self._bars[group] = (partition, now_s + BARRED_S)

    def lift(self, group: GroupId, partition: int) -> None:
        """Lets a Group be asked again, whether or not it was left alone: its entries may have been passed over."""
        self._bars[group] = (partition, 0.0)

    def lifted(self, now_s: float) -> set[int]:
        """The partitions to be looked at anew, each once."""
        over = [group for group, (_, until_s) in self._bars.items() if until_s <= now_s]
        return {self._bars.pop(group)[0] for group in over}
