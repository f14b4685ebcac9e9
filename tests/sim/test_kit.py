"""What the kit for users' tests stands on: dice that follow a seed, names, and a house that leaves nothing behind."""

from __future__ import annotations

import gc
import logging
import random
import secrets
import threading
import time

import pytest
from treadle.shared.errors import Misuse
from treadle.shared.testing.chance import Chance, logs_noted
from treadle.shared.testing.kit import CLIENT, Kit


def test_inside_everything_is_drawn_from_the_seed_and_outside_nothing() -> None:
    def draw() -> tuple[object, ...]:
        return random.random(), secrets.token_hex(8), secrets.choice("abcdefgh"), random.getrandbits(64)

    outside, token_hex = random.getstate(), secrets.token_hex
    drawn = []
    for seed in (7, 7, 8):
        chance = Chance(seed)
        with chance.drawn():
            first = draw()
        random.random()
        random.setstate(outside)
        with chance.drawn():  # and it goes on where it was
            drawn.append((first, draw()))
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert (random.getstate(), secrets.token_hex) == (outside, token_hex)


def test_warnings_stand_in_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    log = logging.getLogger("treadle.worker")
    with logs_noted(told.append, only=False):
        log.warning("first")
    with logs_noted(told.append, only=True):
        log.warning("second")
        log.info("not this")
    log.warning("third")
    assert [line.split("says: ")[1] for line in told] == ["first", "second"]
    assert caplog.messages == ["first", "third"]


def test_a_kit_leaves_nothing_behind() -> None:
    real, threads = time.time, threading.active_count()
    kit = Kit(1)

    async def ask() -> float:
        client = kit.store.client(timeout_s=1, seen=lambda _: None)
        await client.ping()
        await client.aclose()
        return time.time()

    assert kit.run(ask()) - kit.loop.epoch_s < 1
    assert abs(kit.loop.epoch_s - real()) < 60, "it begins now"
    assert time.time is real, "outside nothing of it is seen"
    kit.close()
    gc.collect()
    assert threading.active_count() == threads


def test_one_name_is_one_kind() -> None:
    kit = Kit(1)
    try:
        kit.seat("w1", is_worker=True)
        with pytest.raises(Misuse, match="name: 'w1' is a Worker in this test already"):
            kit.seat("w1", is_worker=False)
        with pytest.raises(Misuse, match="name: 'client' is a client in this test already"):
            kit.seat(CLIENT, is_worker=True)
        assert kit.store.named("bob").process is not kit.store.process
        assert kit.store.named("bob").process is kit.store.named("bob").process
    finally:
        kit.close()
