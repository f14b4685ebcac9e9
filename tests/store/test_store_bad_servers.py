"""Servers that cannot be used, or not now: said in words that name what to do, and nothing half-written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
import redis.asyncio
from builders import GROUP, a_new_item, a_new_mission
from servers import LEGS, binary_of
from store.audit import audit
from store.world import SHORT_MS, World, a_fail, a_release, a_save, a_submit, a_take, a_yield, differences, held, opened
from treadle.shared.errors import Backpressure, Misuse, ReplyLost, StoreChanged, Unavailable
from treadle.shared.store import RedisEndpoint, RenewalDoor, Store
from treadle.shared.store.embedded import EmbeddedServer

real = pytest.mark.slow
on_real_servers = pytest.mark.parametrize("leg", LEGS)


@pytest.fixture
def server(leg: str) -> Iterator[EmbeddedServer]:
    """A server of one's own, to be configured, filled, paused and restarted."""
    own = EmbeddedServer(binary=binary_of(leg)).start()
    yield own
    own.stop()


@asynccontextmanager
async def living_on(server: EmbeddedServer, leg: str) -> AsyncIterator[World]:
    raw = redis.asyncio.Redis.from_url(server.url, protocol=2)
    try:
        async with opened(leg, RedisEndpoint(server.url), raw, None) as world:
            yield world
            await audit(world)
    finally:
        await raw.aclose()


# --- unreachable ---


@pytest.mark.parametrize("url", ["unix:///nowhere/at/all.sock", "redis://127.0.0.1:1/0"])
async def test_an_unreachable_server_is_said_with_its_address(url: str) -> None:
    with pytest.raises(Unavailable) as caught:
        await Store.connect(url)
    assert url.split("//")[1].split("/")[0] in str(caught.value)
    assert caught.value.retryable


async def test_a_host_that_refuses_is_said_without_the_password() -> None:
    with pytest.raises(Unavailable) as caught:
        await Store.connect("redis://ana:hunter2@127.0.0.1:1/0")
    assert "hunter2" not in repr(caught.value)
    assert "127.0.0.1:1" in str(caught.value)


async def test_something_that_is_no_server_is_said_within_the_time_out() -> None:
    async def silent(stream: Any) -> None:
        async with stream:
            await anyio.sleep(5)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, silent)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        began_s = anyio.current_time()
        with pytest.raises(Unavailable):
            await Store.connect(f"redis://127.0.0.1:{port}/0", timeout_s=0.2)
        assert anyio.current_time() - began_s < 2
        tasks.cancel_scope.cancel()


# --- passwords ---


@real
@on_real_servers
async def test_a_wrong_or_missing_password_is_misuse_and_is_not_shown(server: EmbeddedServer) -> None:
    async with redis.asyncio.Redis.from_url(server.url) as client:
        await client.config_set("requirepass", "right-one")
    path = str(server.socket_path)
    for url in (f"unix://:hunter2@{path}?db=0", f"unix://{path}?db=0&password=hunter2", server.url):
        with pytest.raises(Misuse, match="check user and password in TREADLE_URL") as caught:
            await Store.connect(url)
        assert "hunter2" not in repr(caught.value)
        assert "hunter2" not in repr(caught.value.__cause__)
    store = await Store.connect(f"unix://:right-one@{path}?db=0")
    assert "right-one" not in store.endpoint.shown
    await store.aclose()


# --- a full store ---


@real
@on_real_servers
async def test_a_full_store_refuses_new_work_and_lets_what_is_there_be_finished(
    server: EmbeddedServer, leg: str
) -> None:
    """Design 3.3: admission is refused whole, finishing is not."""
    async with living_on(server, leg) as world:
        await world.mission(GROUP, *(a_new_item(f"i{number}") for number in range(9)))
        hand = await world.hand()
        grants = await hand.take(most=6)
        await world.raw.config_set("maxmemory", 1)
        before = await world.dump()
        with pytest.raises(Backpressure, match="full") as caught:
            await world.store.create(a_new_mission("m-2"))
        assert caught.value.retryable
        assert differences(before, await world.dump()) == []

        one, two, three, four, five, six = grants
        ended = a_submit(one, b"r" * 100_000)
        reply = await hand.turn(ended, a_save(two), a_yield(three), a_fail(four), a_release(five), a_take())
        assert [outcome.code for outcome in reply.outcomes] == ["OK"] * 6
        assert await hand.renew(six) == ["OK"]
        await world.authority.tick(0)
        (again,) = await hand.take()
        assert (await hand.do(a_submit(again))).code == "OK"
        newer = await world.hand(nonce="after a restart")
        assert {grant.item for grant in newer.requeued} == {two.item, three.item, six.item}
        await newer.close()
        assert (await world.store.mission(one.group)) is not None
        await world.raw.config_set("maxmemory", 0)
        assert not (await world.store.create(a_new_mission("m-2"))).repeated


@real
@on_real_servers
async def test_a_new_program_on_a_full_server_is_told_that_it_is_full(server: EmbeddedServer) -> None:
    async with redis.asyncio.Redis.from_url(server.url) as client:
        await client.config_set("maxmemory", 1)
        with pytest.raises(Backpressure):
            await Store.connect(server.url)
        assert await client.keys("*") == []


# --- not now ---


@real
@on_real_servers
async def test_a_server_that_became_a_replica_is_waited_for(server: EmbeddedServer, leg: str) -> None:
    async with living_on(server, leg) as world:
        await world.mission()
        hand = await world.hand(ttl_ms=SHORT_MS)
        grant = await hand.started()
        await world.raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        before = await world.dump()
        with pytest.raises(Unavailable, match="read only") as caught:
            await hand.do(a_submit(grant))
        assert not isinstance(caught.value, ReplyLost)
        assert differences(before, await world.dump()) == []
        await world.raw.execute_command("REPLICAOF", "NO", "ONE")
        # It took another history meanwhile, as after a failover: the session that was is over (design.md 3.11).
        with pytest.raises(StoreChanged):
            await hand.again()
        await world.store.adopt()
        heir = await world.hand(nonce="again", lives=True)
        (requeued,) = heir.requeued
        await world.pass_ms(SHORT_MS)  # the quarantine
        assert (await heir.do(a_submit(await heir.restarted(requeued)))).code == "OK"


@real
@on_real_servers
async def test_a_server_that_is_busy_with_a_script_is_waited_for(server: EmbeddedServer, leg: str) -> None:
    async with living_on(server, leg) as world:
        await world.mission()
        hand = await world.hand()
        await world.raw.config_set("lua-time-limit", 5)
        async with (
            redis.asyncio.Redis.from_url(server.url, socket_timeout=20) as other,
            anyio.create_task_group() as tasks,
        ):

            async def loop_for_ever() -> None:
                with pytest.raises(redis.exceptions.ResponseError):
                    await other.eval("while true do end", 0)

            tasks.start_soon(loop_for_ever)

            async def is_busy() -> bool:
                try:
                    await world.raw.ping()
                except redis.exceptions.ResponseError as error:
                    return str(error).startswith("BUSY")
                return False

            await world.eventually(is_busy, "the server says BUSY")
            with pytest.raises(Unavailable, match="BUSY") as caught:
                await hand.turn(a_take(), slots=1)
            assert not isinstance(caught.value, ReplyLost)
            await world.raw.script_kill()
        assert len((await hand.again()).outcomes[0].grants) == 1


@real
@on_real_servers
async def test_a_server_that_is_stopped_is_a_lost_reply_on_every_link_and_all_goes_on_after_it(
    server: EmbeddedServer, leg: str
) -> None:
    async with living_on(server, leg) as world:
        await world.mission()
        hasty = await Store.connect(server.url, prefix=world.store.prefix, timeout_s=0.2)
        hand = await world.hand(ttl_ms=1000)
        grant = await hand.started()
        door = RenewalDoor(hasty, hand.session)
        server.pause()
        with pytest.raises(ReplyLost):
            await hasty.now_ms()
        with pytest.raises(ReplyLost):
            door.renew(0, [held(grant)])
        server.resume()
        assert await hasty.now_ms() > 0
        codes = door.renew(0, [held(grant)])[1]
        assert codes in (["OK"], ["WORK_LEASE_EXPIRED"])
        world.renewed[held(grant).lease] = int((await world.item())["lex"])
        door.close()
        await hasty.aclose()


@real
@on_real_servers
async def test_a_connection_that_a_person_killed_is_made_anew(server: EmbeddedServer, leg: str) -> None:
    async with living_on(server, leg) as world:
        await world.mission()
        hand = await world.hand()
        assert await world.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0
        # Either the call finds it closed and connects first, or its answer is lost: the caller sees one of both.
        with suppress(ReplyLost):
            await hand.turn(a_take(), slots=1)
        assert len((await hand.again()).outcomes[0].grants) == 1


# --- cancelled in the middle ---


@real
@on_real_servers
async def test_a_call_that_is_cancelled_does_not_leave_its_answer_for_the_next_one(
    server: EmbeddedServer, leg: str
) -> None:
    async with living_on(server, leg) as world:
        await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
        hand = await world.hand()
        server.pause()
        with anyio.move_on_after(0.05) as scope:
            await hand.turn(a_take(GROUP, 2), slots=1, ahead=1)
        assert scope.cancelled_caught
        server.resume()
        assert await world.store.now_ms() > 1_000_000_000_000
        reply = await hand.again()
        assert [grant.item for grant in reply.outcomes[0].grants] == ["a", "b"]
        view = await world.store.mission(reply.outcomes[0].grants[0].group)
        assert view is not None
        assert (await world.kinds()).count("work.started") == 1


# --- a server that was restarted ---


@real
@on_real_servers
async def test_a_restarted_server_is_another_server_until_it_is_adopted(server: EmbeddedServer, leg: str) -> None:
    """Design 3.11: the old session's calls are refused; after adopt a new session works, and the incarnation rose."""
    async with living_on(server, leg) as world:
        await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
        old = await world.hand(nonce="old", ttl_ms=SHORT_MS)
        grant = await old.started()
        door = RenewalDoor(world.store, old.session)
        before = await world.raw.hgetall(world.key("@meta"))
        server.restart()
        with pytest.raises(ReplyLost):
            await old.do(a_submit(grant))
        for _ in range(2):
            with pytest.raises(StoreChanged, match="open a new session"):
                await old.again()
        with pytest.raises((StoreChanged, ReplyLost)):
            door.renew(0, [held(grant)])
        with pytest.raises(StoreChanged):
            door.renew(0, [held(grant)])
        door.close()
        with pytest.raises(StoreChanged):
            await world.authority.wait(old.session, tokens=True, timeout_s=0.1)

        lineage = await world.store.adopt()

        after = await world.raw.hgetall(world.key("@meta"))
        assert (after[b"replid"], after[b"run_id"]) == (lineage.replid.encode(), lineage.run_id.encode())
        assert int(after[b"incarnation"]) > int(before[b"incarnation"])
        with pytest.raises(StoreChanged):
            await old.turn()
        new = await world.hand(nonce="new")
        assert [one.item for one in new.requeued] == ["a"]
        await world.pass_ms(SHORT_MS)  # the quarantine
        again = await new.restarted(new.requeued[0])
        assert again.lease is not None
        assert grant.lease is not None
        assert again.lease.token > grant.lease.token
        assert (await new.do(a_submit(again))).code == "OK"
        await world.authority.wait(new.session, tokens=True, timeout_s=0.1)
