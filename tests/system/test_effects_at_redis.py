"""Effects on a real server of the user's own: one script, as on the one that is played in the other tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from treadle.shared.errors import Misuse, Refused, Stale, Unavailable
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker.effects import Token
from treadle.worker.effects.redis import RedisGate

FIRST, SECOND = Token(1, 1, 1, "w-1.1.0"), Token(1, 1, 2, "w-2.1.0")
KEY = "m/a/reserve"


@pytest.fixture
def client(server: EmbeddedServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as made:
        yield made


def test_s3_s6_commands_run_once_and_never_for_who_was_overtaken(client: Any) -> None:
    gate = RedisGate(client)
    zombie, other = gate.enter(KEY, FIRST), gate.enter(KEY, SECOND)
    for passage, line in ((zombie, "zombie"), (other, "other")):
        passage.place.queue("INCRBY", "stock", -1)
        passage.place.queue("RPUSH", "book", line, b"\xff\x00")
    with pytest.raises(Stale) as caught:
        zombie.commit(b"zombie")
    assert caught.value.code == "TOKEN_STALE"
    other.commit(b"\xc3\xff")
    other.commit(b"its answer was lost")
    assert gate.enter(KEY, Token(1, 2, 1, "w-3")).stored == b"\xc3\xff"
    assert (client.get("stock"), client.lrange("book", 0, -1)) == (b"-1", [b"other", b"\xff\x00"])


@pytest.mark.parametrize("first", [True, False])
def test_what_fails_there_is_told_with_what_was_run_before(client: Any, first: bool) -> None:
    gate = RedisGate(client)
    client.set("text", "no number")
    passage = gate.enter(KEY, FIRST)
    if not first:
        passage.place.queue("RPUSH", "book", "one")
    passage.place.queue("INCR", "text")
    with pytest.raises(Misuse if first else Refused, match="not an integer"):
        passage.commit(b"")
    if first:
        assert gate.enter(KEY, SECOND).stored is None
    else:
        with pytest.raises(Refused, match="1 commands of it were run") as caught:
            gate.enter(KEY, SECOND)
        assert caught.value.code == "EFFECT_TORN"


def test_a_server_that_is_gone_is_unavailable(server: EmbeddedServer) -> None:
    client = redis.Redis.from_url(server.url)
    gate = RedisGate(client)
    server.stop()
    with pytest.raises(Unavailable, match=f"effect {KEY}"):
        gate.enter(KEY, FIRST)
    client.close()
