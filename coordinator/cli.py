"""`treadle`: the command of those who submit and watch.

Exit status 0: done; 1: what was asked about is wrong, or failed; 2: cannot be done as asked; 128 + n: a signal.
"""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from treadle.shared.errors import Misuse, TreadleError, Unavailable
from treadle.shared.redaction import known

from .commands import opening
from .commands.approving import approve
from .commands.archive import archive
from .commands.blocking import blocked, unblock
from .commands.control import cancel, parked, requeue, retry
from .commands.demo import demo
from .commands.doctor import doctor
from .commands.enqueue import enqueue
from .commands.incarnation import new_incarnation
from .commands.listing import groups, missions, workers
from .commands.members import admit, revoke
from .commands.offering import offer
from .commands.pausing import pause, resume
from .commands.policy import app as policy
from .commands.prioritising import prioritise
from .commands.repairs import repair, verify
from .commands.replaying import replay, snapshot
from .commands.results import results
from .commands.schedules import schedules, unschedule
from .commands.submit import submit
from .commands.up import up
from .commands.watch import watch
from .commands.why import why
from .demo.story import SignalledError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"treadle {version('treadle')}")
        raise typer.Exit


@app.callback()
def treadle(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Missions over Redis Streams, shared fairly, done once."""


for command in (
    demo,
    up,
    submit,
    enqueue,
    watch,
    results,
    missions,
    workers,
    groups,
    why,
    cancel,
    retry,
    offer,
    prioritise,
    requeue,
    parked,
    blocked,
    unblock,
    approve,
    pause,
    resume,
    revoke,
    admit,
    schedules,
    unschedule,
    replay,
    snapshot,
    archive,
    verify,
    repair,
    doctor,
    new_incarnation,
):
    app.command()(command)
app.add_typer(policy, name="policy")


_HALTED = "; its log is damaged and nothing of it moves: see `treadle verify MISSION`, `treadle repair MISSION`"


def main() -> None:
    """Run the command; errors become one message and an exit status, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not a stream of somebody's own
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (Misuse, Unavailable) as error:
        _stop(f"treadle: {error}", 2)
    except TreadleError as error:
        halted = error.code in ("LOG_FOREIGN", "LOG_REBORN")
        _stop(f"treadle: {error}{_HALTED if halted else ''}", 1)
    except SignalledError as error:
        _stop(f"treadle: {error}; nothing is left running", 128 + error.number)
    except opening.SignalledError as error:
        _stop(f"treadle: {error}", 128 + error.number)
    except KeyboardInterrupt:
        _stop("treadle: interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        raise SystemExit(1) from None
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        text = f"{type(error).__name__}: {error}"
        _stop(f"treadle: unforeseen: {text[:500]}; `python -X dev -m treadle.coordinator.cli` shows where", 1)


def _stop(message: str, status: int) -> NoReturn:
    print(known.hide(message), file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
