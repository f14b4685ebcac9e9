"""Opening a session by the terms a Worker works under."""

from __future__ import annotations

from treadle.shared.model import Grant, Session
from treadle.shared.store import Authority

from .terms import Terms


async def open_session(authority: Authority, terms: Terms, *, nonce: str, lives: bool) -> tuple[Session, list[Grant]]:
    """As `Authority.open_session`: the session, and what an older one of this Agent held."""
    return await authority.open_session(
        terms.name,
        terms.capabilities,
        lease_ttl_ms=terms.lease_ttl_ms,
        nonce=nonce,
        slots=terms.slots,
        resources=terms.resources,
        lives=lives,
    )
