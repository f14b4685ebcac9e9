"""How much one run may say: so much a second, so much in all; what is beyond that is counted. Pure."""

from __future__ import annotations

SECOND_BYTES = 64 << 10
TOTAL_BYTES = 1 << 20


class Allowance:
    """One run's."""

    def __init__(self) -> None:
        self._since_s = float("-inf")
        self._in_second = self._in_all = 0
        self._is_full = False
        """Whether something was dropped in this second: what follows it is dropped too, so that no line lacks its like."""
        self.dropped_bytes = 0

    def is_spent(self, now_s: float) -> bool:
        """Whether nothing more may be said now."""
        if now_s - self._since_s >= 1:
            self._since_s, self._in_second = now_s, 0
            self._is_full = self._in_all >= TOTAL_BYTES
        return self._is_full

    def takes(self, size: int, now_s: float) -> bool:
        """Whether so many bytes may be said now; where not, they are counted as dropped."""
        if not self.is_spent(now_s):
            in_second, in_all = self._in_second + size, self._in_all + size
            if in_second <= SECOND_BYTES and in_all <= TOTAL_BYTES:
                self._in_second, self._in_all = in_second, in_all
                return True
            self._is_full = True
            if in_all > TOTAL_BYTES:
                self._in_all = TOTAL_BYTES
        self.dropped_bytes += size
        return False
