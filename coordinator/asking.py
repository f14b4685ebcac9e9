"""What a handle on a Mission or a job needs of its client: two ways to ask the store, and one to wait for an end."""

from __future__ import annotations

import getpass
import secrets
import socket
import string
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from treadle.shared.model import GroupId, ItemId
from treadle.shared.policy import Policy
from treadle.shared.store import Store

ID_CHARS = 20
_T = TypeVar("_T")


class Asking(Protocol):
    """A client, as far as its handles know it."""

    @property
    def actor(self) -> str:
        """Who asks, as the store is told."""
        ...

    async def ask(self, question: Callable[[Store], Awaitable[_T]]) -> _T:
        """Ask the store, again while it cannot answer; `question` must be safe to repeat."""
        ...

    async def policy(self, *, anew: bool = False) -> Policy:
        """What the Organization grants: as it was read before, else as it stands now."""
        ...

    async def wait(self, question: Callable[[Store, float], Awaitable[_T]]) -> _T:
        """Ask where the answer may take as many seconds as `question` is told; never holds up what is asked otherwise."""
        ...

    async def wait_end(self, group: GroupId, item: ItemId | None) -> None:
        """Return once an item, or with None the Mission, has ended or is not there, or after some seconds, for a look."""
        ...


def new_id(kind: str) -> str:
    """An id that nobody else has: `kind`, and characters enough."""
    return f"{kind}-" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(ID_CHARS))


def default_actor() -> str:
    """Who asks where nobody said: user@host, the same in every command and client of this user here."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no such user: usual in containers
        return "anonymous"
