"""The store holds bytes: a client that would read them as text is refused or put right, and never found out later (BR-63)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from treadle.coordinator import Client, SyncClient
from treadle.shared.errors import Misuse

MADE: list[Callable[[], Any]] = [
    lambda: redis.asyncio.Redis(decode_responses=True),
    lambda: redis.asyncio.Redis(protocol=3),
    lambda: redis.Redis(decode_responses=True),
    lambda: fakeredis.FakeAsyncRedis(decode_responses=True),
    lambda: fakeredis.FakeRedis(),
]


@pytest.mark.parametrize("connect", [Client.connect, SyncClient.connect], ids=["client", "sync client"])
@pytest.mark.parametrize("make", MADE)
def test_br_63_a_ready_made_client_is_refused_at_construction_with_what_to_pass_instead(
    make: Callable[[], Any], connect: Callable[[Any], object]
) -> None:
    with pytest.raises(Misuse, match=r"^url: .*is no address; pass the URL, redis://"):
        connect(make())
