"""What this wing brings to `treadle.shared.testing`: a Client on the store in memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from treadle.shared.testing.kit import PARTITIONS, PREFIX, Kit

from .client import Client

ACTOR = "tester"


@contextmanager
def opened_client(kit: Kit) -> Generator[Client]:
    """A Client that is open on the kit's store, on the kit's loop; for the fixture `treadle_client`."""

    async def enter() -> Client:
        return await Client(kit.store, PREFIX, ACTOR, PARTITIONS).__aenter__()

    client = kit.run(enter())
    try:
        yield client
    finally:
        kit.run(client.__aexit__(None, None, None))
