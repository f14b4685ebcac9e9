"""From a handler's `Blocked` to what the store takes: checked, packed, bounded. Pure."""

from __future__ import annotations

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.inputs import plain
from treadle.shared.names import text_token

from ..context import BLOCKED_S_MAX, Blocked
from .failures import printable

REASON_MAX = 200


def terms_of(blocked: Blocked) -> tuple[str, bytes, int]:
    """Reason (a token), needs (msgpack, empty for None) and milliseconds of the blocked lease; Misuse names what is wrong."""
    reason, lease_s = blocked.reason, blocked.lease_s
    if not isinstance(reason, str) or not reason.strip():
        raise Misuse(f"Blocked: reason: {codec.shown(reason)}, must be a text that says what it waits for")
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 1 <= lease_s <= BLOCKED_S_MAX:
        raise Misuse(f"Blocked: lease_s: {codec.shown(lease_s)}, must be 1 to {BLOCKED_S_MAX:,} seconds")
    needs = b""
    if blocked.needs is not None:
        needs = codec.pack(plain(blocked.needs), field="Blocked: needs", limit=codec.EVIDENCE_MAX)
    return text_token(printable(reason, REASON_MAX - 4)), needs, int(lease_s * 1000)
