"""A store in memory, on fakeredis: the same function library, no server, and a clock that follows `time.time()`."""

from __future__ import annotations

from typing import Any

import fakeredis

from ..store.connection import Lineage, Seen


class FakeEndpoint:
    """An endpoint of a fakeredis server. `replid` is constant until a test changes it, as a restart would.

    `run_id` follows it, unless a test says what it is: a server that goes on may change its replid alone.
    """

    def __init__(self, server: fakeredis.FakeServer | None = None, *, replid: str = "fakeredis") -> None:
        self.server = server or fakeredis.FakeServer()
        self.replid = replid
        self.replid2 = "0"
        self.run_id = ""

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.replid, self.run_id or self.replid, self.replid2)

    @property
    def shown(self) -> str:
        return "fakeredis"

    def client(self, *, timeout_s: float, seen: Seen) -> Any:  # noqa: ARG002 - there is no socket to time out
        seen(self.lineage)
        return fakeredis.FakeAsyncRedis(server=self.server)

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:  # noqa: ARG002 - as above
        seen(self.lineage)
        return fakeredis.FakeRedis(server=self.server)
