"""Giving back all that a session holds, without the event loop, which a handler keeps for good: the process ends behind it."""

from __future__ import annotations

import threading

from treadle.shared.errors import TreadleError
from treadle.shared.model import Session
from treadle.shared.store import RenewalDoor, Store

from .slots.pool import Pool

ABANDON_S = 3.0
"""How long that may take: it is within what a Worker has for its end."""


def abandon(store: Store, session: Session, pool: Pool) -> bool:
    """Whether all was given back in time, and no process of a slot is left that could go on with it (S16).

    From any thread. It neither logs nor prints: the main thread may hold the log's lock.
    """
    is_given_back = threading.Event()

    def give_back() -> None:
        if not pool.kill():
            return
        door = RenewalDoor(store, session)
        try:
            door.close_session()
        except TreadleError:
            return
        finally:
            door.close()
        is_given_back.set()

    giving = threading.Thread(target=give_back, name="treadle-abandon", daemon=True)
    giving.start()
    giving.join(ABANDON_S)
    return is_given_back.is_set()
