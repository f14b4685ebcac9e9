"""`treadle-worker`: runs a Worker.

Exit statuses: 0 stopped as asked, 1 something unforeseen, 2 something given is wrong or the store cannot be reached at the
start, 4 replaced by a newer runtime of the same name, 128 + n ended by a second signal n.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Annotated

import anyio
import typer
from treadle.shared.errors import Misuse, TreadleError, Unavailable
from treadle.shared.first_process import run_below_first_process
from treadle.shared.model import AgentId
from treadle.shared.names import token
from treadle.shared.processes import follow_owner
from treadle.shared.settings import Settings

from .handlers import load
from .worker import Replaced, Worker

EXIT_MISUSE, EXIT_REPLACED = 2, 4
END_S = 10.0
"""How long, beyond the grace and one lease TTL, giving back and unwinding may take."""
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
_log = logging.getLogger("treadle.worker")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"treadle-worker {metadata.version('treadle')}")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Runs the work of Missions."""


@app.command()
def run(
    handlers: Annotated[str, typer.Option(help="Module that holds the handlers, such as 'app.handlers'.")],
    slots: Annotated[int | None, typer.Option(help="Capacity Slots. TREADLE_SLOTS, else the number of CPUs.")] = None,
    groups: Annotated[str, typer.Option(help="Missions to work for, by a pattern of their ids.")] = "*",
    name: Annotated[
        str | None, typer.Option(help="Agent name, unique. Host, process id and a nonce by default.")
    ] = None,
    app_dir: Annotated[Path | None, typer.Option(help="Folder to search for the module after the current one.")] = None,
    url: Annotated[str | None, typer.Option(help="The store. TREADLE_URL, else redis://127.0.0.1:6379/0.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Works until SIGTERM or Ctrl-C; then handlers get TREADLE_GRACE_S to reach a safe point. A second signal ends at once."""
    worker: Worker | None = None
    try:
        _configure_logging(log_level)
        settings = Settings(url=url, slots=slots)
        agent = token(_default_name() if name is None else name, field="--name")
        worker = Worker(
            load(handlers, app_dir),
            endpoint=settings.url,
            name=AgentId(agent),
            prefix=settings.prefix,
            partitions=settings.partitions,
            slots=settings.slots,
            groups=groups,
            lease_ttl_s=settings.lease_ttl_s,
            grace_s=settings.grace_s,
        )
        anyio.run(_until_stopped, worker, settings.grace_s + settings.lease_ttl_s + END_S)
    except Replaced as replaced:
        _fail(str(replaced), EXIT_REPLACED)
    except Misuse as misuse:
        _fail(str(misuse), EXIT_MISUSE)
    except Unavailable as error:
        _fail(f"TREADLE_URL or --url: {error}; start that server or name another", EXIT_MISUSE)
    except TreadleError as error:
        _fail(str(error), 1)
    finally:
        if worker is not None and worker.threads_left:
            _leave_threads(worker.threads_left, sys.exc_info()[1])


async def _until_stopped(worker: Worker, patience_s: float) -> None:
    """Runs it; the first signal stops it, a second ends this process at once, and so does patience that is over.

    Not by the event loop's own signal handling: a handler that blocks the loop would keep both from being heard.
    """
    loop = asyncio.get_running_loop()
    heard: list[int] = []
    told = threading.Event()
    threading.Thread(target=_insist, args=(told, patience_s), name="treadle-insist", daemon=True).start()

    def stop() -> None:
        _log.info("stopping: nothing more is taken, handlers may reach a safe point; once more ends at once")
        worker.stop()

    def on_signal(number: int, _frame: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            os._exit(128 + number)
        told.set()
        loop.call_soon_threadsafe(stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    await worker.run()


def _insist(told: threading.Event, patience_s: float) -> None:
    """Ends this process where a handler will neither return nor be cancelled: its work was given back or lapses."""
    told.wait()
    time.sleep(patience_s)
    os.write(2, b"treadle-worker: a handler will not end; ended without it, its item goes on elsewhere\n")
    os._exit(1)


def _leave_threads(count: int, error: BaseException | None) -> None:
    """Ends this process at once where sync handlers will not end: their items went on elsewhere, or failed by their time."""
    if error is None or isinstance(error, SystemExit):
        _log.warning("ended without %d threads of handlers that would not end", count)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(error.code if error is not None and isinstance(error.code, int) else 0)


def _default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _configure_logging(level: str) -> None:
    if level not in ("debug", "info", "warning", "error"):
        raise Misuse(f"--log-level: {level[:40]!r}, must be debug, info, warning or error")
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )


def _fail(text: str, status: int) -> None:
    print(f"treadle-worker: {text}", file=sys.stderr)
    raise SystemExit(status)


def main() -> None:
    """The console script."""
    run_below_first_process()
    follow_owner()
    app()


if __name__ == "__main__":
    main()
