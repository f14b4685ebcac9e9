"""A store in memory, on fakeredis: the same function library, no server, and a clock that follows `time.time()`."""

from __future__ import annotations

from typing import Any

import fakeredis

from ..store.connection import Lineage, Seen


class FakeEndpoint:
    """An endpoint of a fakeredis server. `replid` is constant until a test changes it, as a restart would."""

    def __init__(self, server: fakeredis.FakeServer | None = None, *, replid: str = "fakeredis") -> None:
        self.server = server or fakeredis.FakeServer()
        self.replid = replid

    @property
    def shown(self) -> str:
        return "fakeredis"

    def client(self, *, timeout_s: float, seen: Seen) -> Any:  # noqa: ARG002 - there is no socket to time out
        seen(Lineage(self.replid, self.replid))
        return fakeredis.FakeAsyncRedis(server=self.server)

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:  # noqa: ARG002 - as above
        seen(Lineage(self.replid, self.replid))
        return fakeredis.FakeRedis(server=self.server)
