"""`treadle-worker`: runs a Worker, or asks one that runs to drain. Its exit statuses are those of `Exit`."""

from __future__ import annotations

import importlib
import os
import secrets
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from treadle.shared.errors import Misuse, StoreLost, TreadleError, Unavailable
from treadle.shared.first_process import run_below_first_process
from treadle.shared.model import AgentId, Capability
from treadle.shared.names import token
from treadle.shared.processes import follow_owner
from treadle.shared.redaction import install, known, store_name
from treadle.shared.resources import parse
from treadle.shared.settings import Settings

from .abandoning import ABANDON_S
from .credentials import CredentialsFile
from .draining import drain
from .exits import Exit
from .handlers import Handler, Runtime
from .loading import load
from .outlets import open_outlets
from .process import Process
from .programs import from_options
from .roster import recorded
from .slots.tools import collect_tools
from .worker import Replaced, Worker

END_S = 7.0
"""How long, beyond the grace and one lease TTL, giving back and unwinding may take; then it is done without handlers."""
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


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
    handlers: Annotated[
        str | None, typer.Option(help="Module that holds the handlers, such as 'app.handlers'.", show_default=False)
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Option(
            help="A program as a handler: 'NAME=PROGRAM ARGUMENT {field} ...'. Repeatable.", metavar="NAME=ARGV"
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Capacity Slots. TREADLE_SLOTS, else the number of CPUs.")] = None,
    resources: Annotated[
        str | None,
        typer.Option(help="What it has besides slots, such as 'gpu=2,license-x=1'. TREADLE_RESOURCES, else nothing."),
    ] = None,
    groups: Annotated[str, typer.Option(help="Missions to work for, by a pattern of their ids.")] = "*",
    name: Annotated[
        str | None, typer.Option(help="Agent name, unique. Host, process id and a nonce by default.")
    ] = None,
    app_dir: Annotated[Path | None, typer.Option(help="Folder to search for the module after the current one.")] = None,
    url: Annotated[str | None, typer.Option(help="The store. TREADLE_URL, else redis://127.0.0.1:6379/0.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Policy file to apply, now and whenever it changes. TREADLE_POLICY, else none.")
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(help="Credentials file: which work is given which secrets. TREADLE_CREDENTIALS, else none."),
    ] = None,
    runtime: Annotated[
        str, typer.Option(help="Where handlers run that do not say it: task, or process for one of its own.")
    ] = "task",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Works until SIGTERM, Ctrl-C or `drain`; then handlers get TREADLE_GRACE_S to reach a safe point.

    A second signal ends at once.
    """
    process: Process | None = None
    try:
        _configure_logging(log_level)
        settings = Settings(url=url, slots=slots, resources=resources, policy=policy, credentials=credentials)
        agent = token(_default_name() if name is None else name, field="--name")
        # First: what the file takes from the environment no module of handlers is to see.
        provider = None if settings.credentials is None else CredentialsFile(settings.credentials)
        worker = Worker(
            _handlers(handlers, command or [], app_dir),
            endpoint=settings.url,
            name=AgentId(agent),
            prefix=settings.prefix,
            partitions=settings.partitions,
            slots=settings.slots,
            resources=dict(parse(settings.resources)),
            groups=groups,
            runtime=_runtime(runtime),
            slot_dir=settings.slot_dir,
            lease_ttl_s=settings.lease_ttl_s,
            grace_s=settings.grace_s,
            log_keep=settings.log_keep,
            policy=settings.policy,
            credentials=provider,
            tools={} if handlers is None else collect_tools(importlib.import_module(handlers)),
        )
        patience_s = settings.grace_s + settings.lease_ttl_s + END_S
        process = Process(worker, grace_s=settings.grace_s, patience_s=patience_s)
        process.listen()
        with recorded(agent, patience_s=patience_s + ABANDON_S, store=store_name(settings.url)):
            process.work()
    except Replaced as replaced:
        _fail(str(replaced), Exit.REPLACED)
    except StoreLost as lost:
        _fail(str(lost), Exit.STORE_LOST)
    except Misuse as misuse:
        _fail(str(misuse), Exit.MISUSE)
    except Unavailable as error:
        _fail(f"TREADLE_URL or --url: {error}; start that server or name another", Exit.MISUSE)
    except TreadleError as error:
        _fail(str(error), Exit.UNFORESEEN)
    finally:
        if process is not None:
            process.leave(sys.exc_info()[1])


def _handlers(module: str | None, commands: list[str], app_dir: Path | None) -> dict[Capability, Handler]:
    """What stands in the module, and the programs beside it."""
    if module is None and not commands:
        raise Misuse("nothing to do: give --handlers MODULE, or --command 'NAME=PROGRAM ARGUMENT ...'")
    found, programs = {} if module is None else load(module, app_dir), from_options(commands)
    if twice := sorted(found.keys() & programs.keys()):
        raise Misuse(f"--command: {twice[0]!r} is in {module} too; keep one")
    return found | programs


def _runtime(said: str) -> Runtime:
    if said not in ("task", "process"):
        raise Misuse(f"--runtime: {said[:40]!r}, must be task or process")
    return "process" if said == "process" else "task"


app.command()(drain)


def _default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _configure_logging(level: str) -> None:
    if level not in ("debug", "info", "warning", "error"):
        raise Misuse(f"--log-level: {level[:40]!r}, must be debug, info, warning or error")
    install(level)


def _fail(text: str, status: int) -> None:
    print(f"treadle-worker: {known.hide(text)}", file=sys.stderr)
    raise SystemExit(status)


def main() -> None:
    """The console script."""
    open_outlets()
    run_below_first_process()
    follow_owner()
    app()


if __name__ == "__main__":
    main()
