"""The error tree, by who must act. Each error carries its protocol code (protocol.md, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard


class TreadleError(Exception):
    """The root. `code` is the protocol's error code, `retryable` says whether the same call may succeed later."""

    code: str = "INTERNAL_ERROR"
    retryable: bool = False

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.details: Mapping[str, str] = details or {}
        """What a refusal of the store names, `current=3` in its text being `details["current"]`."""
        if code is not None:
            self.code = code


class Refused(TreadleError):
    """The store holds something newer, or the state does not allow it: re-read, then decide again."""

    code = "INVALID_STATE_TRANSITION"


class Stale(Refused):
    """The caller was replaced: its session, ownership or lease is no longer the current one ("fenced")."""

    code = "AUTH_STALE_SESSION"


class StoreChanged(Refused):
    """The server is not the one this session was opened on (restart, failover): open a new session."""

    code = "STORE_CHANGED"
    retryable = True


class StoreLost(TreadleError):
    """The store is not the one this process knew, or went back in time: a person must look before anything goes on (S24)."""

    code = "STORE_LOST"


class Expired(Refused):
    """What is asked for was kept for its time and is gone, or was never there."""

    code = "RESULT_EXPIRED"


class CursorTooOld(Refused):
    """The log begins above what is asked for: go on from the Group's Snapshot (`details`: first, snapshot)."""

    code = "CURSOR_TOO_OLD"


class Misuse(TreadleError):
    """The caller's own code, file or setting is wrong. The message names the field, the value and the bound."""

    code = "SCHEMA_VALIDATION_FAILED"


class Corrupt(TreadleError):
    """Bytes that cannot be trusted: stop with this Group, never skip."""

    code = "PROTOCOL_VIOLATION"


class Unavailable(TreadleError):
    """The store cannot answer now: wait and try again. Nothing is wrong with the call itself."""

    code = "INTERNAL_ERROR"
    retryable = True


class ReplyLost(Unavailable):
    """The call may or may not have run: repeat it byte for byte, its action id makes that safe."""


class Backpressure(Unavailable):
    """The store is full for new work; finishing still works (design.md 3.3)."""

    code = "BACKPRESSURE"


STALE_CODES = frozenset(
    {"AUTH_STALE_SESSION", "AUTH_STALE_COORDINATOR", "MEMBERSHIP_STALE", "WORK_STALE_OWNERSHIP", "WORK_LEASE_EXPIRED"}
)
"""What the texts call FENCED: a refusal of something that was current once."""


def refusal(code: str, text: str) -> Refused:
    """The exception for a refusal of the store: its code, and a text that names things as `name=value`."""
    kind = Stale if code in STALE_CODES else CursorTooOld if code == CursorTooOld.code else Refused
    details = dict(part.split("=", 1) for part in text.split() if "=" in part)
    return kind(f"{code}: {text}", code=code, details=details)


def is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    """Whether it is a group of errors; the built-in `isinstance` does not tell type checkers of what."""
    return isinstance(error, BaseExceptionGroup)
