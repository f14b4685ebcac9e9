"""How a command reaches its store, and how a wait of it ends: by its own end, a time-out, or a signal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.abc
from treadle.shared.errors import TreadleError, Unavailable, is_group
from treadle.shared.settings import Settings
from treadle.shared.store import Store

from ..asking import default_actor as default_actor
from ..client import Client
from ..line import repeated

_T = TypeVar("_T")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Store]:
    """The store of these settings; Unavailable, with what to do, where it cannot be reached."""
    try:
        store = await Store.connect(settings.url, prefix=settings.prefix, partitions=settings.partitions)
    except Unavailable as error:
        raise _out_of_reach(error) from None
    try:
        yield store
    finally:
        await store.aclose()


def with_store(url: str | None, prefix: str | None, work: Callable[[Store], Awaitable[_T]]) -> _T:
    """What `work` gives for the store of `--url` and `--prefix`, else of the environment."""
    settings = Settings(url=url, prefix=prefix)

    async def run() -> _T:
        async with opened(settings) as store:
            return await work(store)

    return finish(run)


def with_client(url: str | None, prefix: str | None, work: Callable[[Client], Awaitable[_T]]) -> _T:
    """As `with_store`, for what goes by the SDK. Its warnings are left to the command, which says them in its answer."""
    logging.getLogger("treadle.client").setLevel(logging.ERROR)
    settings = Settings(url=url, prefix=prefix)
    client = Client.connect(settings.url, prefix=settings.prefix)

    async def run() -> _T:
        try:
            await client.__aenter__()
        except Unavailable as error:
            raise _out_of_reach(error) from None
        try:
            return await work(client)
        finally:
            await client.__aexit__(None, None, None)

    return finish(run)


class SignalledError(Exception):
    """A signal asked the command to end; what it had on the terminal was put in order first."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def finish(work: Callable[[], Awaitable[_T]], *, heeds_signals: bool = False) -> _T:
    """Run it; of several errors at once the first that speaks to the user is raised. SignalledError on SIGTERM and SIGHUP.

    `heeds_signals`: it does so itself.
    """
    guarded = not heeds_signals and threading.current_thread() is threading.main_thread()
    try:
        return anyio.run(_until_a_signal, work) if guarded else anyio.run(work)
    except BaseExceptionGroup as group:
        raise first_of(group) from group


async def _until_a_signal(work: Callable[[], Awaitable[_T]]) -> _T:
    heard: list[int] = []

    async def listen(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                heard.append(number)
                scope.cancel()

    async with anyio.create_task_group() as group:
        await group.start(listen, group.cancel_scope)
        answer = await work()
        group.cancel_scope.cancel()
        return answer
    raise SignalledError(heard[0])


def first_of(error: BaseException) -> BaseException:
    """The first error inside a group of errors, one that speaks to the user before any other."""
    if not is_group(error):
        return error
    leaves = [first_of(one) for one in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, TreadleError)), leaves[0])


def _out_of_reach(error: Unavailable) -> Unavailable:
    return Unavailable(
        f"--url or TREADLE_URL: {error}; start that server or name another (`treadle up` starts one for trying things)"
    )


async def persist(store: Store, call: Callable[[], Awaitable[_T]]) -> _T:
    """Make a call that is safe to repeat until it is answered, some seconds: a reply may be lost, a server restart."""
    return await repeated(call, store.adopt)
