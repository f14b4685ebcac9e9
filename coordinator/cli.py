"""`treadle`: the command of those who submit and watch.

Exit status 0: done; 1: done and something is wrong; 2: cannot be done as asked; 128 + n: a signal.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from treadle.shared.errors import Misuse, TreadleError, Unavailable

from .demo import evidence, plain, shards, story
from .demo.table import table

REPORT = Path("treadle-demo-report.json")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _whole(least: int, most: int) -> Callable[[object], int]:
    """A parser for whole numbers within bounds; its message has the value and the bounds, typer's has not."""

    def parse(given: object) -> int:
        try:
            value = int(str(given))
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(given)[:40]!r}, must be a whole number from {least} to {most}")
        return value

    return parse


def _seconds(least: float, most: float) -> Callable[[object], float]:
    def parse(given: object) -> float:
        try:
            value = float(str(given))
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(given)[:40]!r}, must be a number of seconds from {least:g} to {most:g}")
        return value

    return parse


@app.callback()
def treadle() -> None:
    """Missions over Redis Streams, shared fairly, done once."""


@app.command()
def demo(
    path: Annotated[
        Path | None,
        typer.Option(
            help="Work on the *.py files below this folder; default: the standard library of this Python.",
            exists=True,
            file_okay=False,
            readable=True,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Worker processes, 1 to 32.", parser=_whole(1, 32), metavar="N")] = 4,
    slots: Annotated[
        int, typer.Option(help="Capacity Slots of each Worker, 1 to 16.", parser=_whole(1, 16), metavar="N")
    ] = 2,
    ttl: Annotated[float, typer.Option(help="Lease TTL, 1 to 60 seconds.", parser=_seconds(1, 60), metavar="S")] = 2.0,
    report: Annotated[Path, typer.Option(help="Where the report is written (JSON).", dir_okay=False)] = REPORT,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs and the evidence, and say where.")] = False,
) -> None:
    """Two Missions on real files, shared by weight 1 to 3; one Worker is killed; the result is checked."""
    _check_writable(report)
    listing = shards.list_files(path or shards.default_root())
    if not listing.files:
        left_out = f" (left out: {listing.left_out})" if listing.left_out else ""
        raise Misuse(f"--path: no *.py file below {listing.root}{left_out}; name a folder that holds some")
    out = sys.stderr if as_json else sys.stdout
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=out, flush=True)

    say(f"{len(listing.files)} Python files below {listing.root}" + _left_out(listing))
    logging.getLogger("treadle.client").setLevel(logging.ERROR)  # that no Worker is up yet is no news here
    kept = Path(tempfile.mkdtemp(prefix="treadle-demo-")) if keep else None
    try:
        told = story.run(story.Plan(listing, workers, slots, ttl, kept), say)
        figures, difference = _check(told, listing, say)
    finally:
        if kept is not None:
            say(f"kept: {kept} (Group logs, evidence, the Workers' own logs)")
    _write(report, {"figures": figures, **told.reports})
    if told.why_no_kill:
        say(f"no Worker was killed: {told.why_no_kill}")
    print(f"\n{table(figures, story.WEIGHTS)}\n\nreport: {report}", file=out, flush=True)
    if difference:
        print(difference, file=out, flush=True)
    if as_json:
        print(json.dumps(figures))
    if difference or figures["duplicates"] or figures["verified"] != figures["items"]:
        raise typer.Exit(1)


def _check(told: story.Told, listing: shards.Listing, say: Any) -> tuple[dict[str, Any], str]:
    say("comparing with a plain single-process computation of the same files")
    began = time.monotonic()
    expected = plain.compute(listing.root, (file.path for file in listing.files))
    plain_s = round(time.monotonic() - began, 3)
    difference = plain.difference(expected, told.reports)
    if difference and (changed := shards.changed_since(listing)):
        say(f"{len(changed)} files changed while the demo ran, {changed[0]!r} for one: let them rest and run it again")
    logs = told.logs
    figures: dict[str, Any] = evidence.figures(logs["index"], logs["audit"], told.lines, told.ends)
    return figures | {"plain_s": plain_s, "report_matches": not difference}, difference


def _left_out(listing: shards.Listing) -> str:
    return f"; left out: {listing.left_out}" if listing.left_out else ""


def _check_writable(report: Path) -> None:
    """Better now than after the work."""
    if not report.parent.is_dir() or not os.access(report if report.exists() else report.parent, os.W_OK):
        raise Misuse(f"--report: {report} cannot be written; name a file in a folder that exists and is yours")


def _write(file: Path, value: object) -> None:
    """Whole or not at all."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.part")
    beside.write_text(json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(file)


def main() -> None:
    """Run the command; errors become one message and an exit status, never a traceback."""
    try:
        app()
    except (Misuse, Unavailable) as error:
        _stop(f"treadle: {error}", 2)
    except TreadleError as error:
        _stop(f"treadle: {error}", 1)
    except story.SignalledError as error:
        _stop(f"treadle: {error}; nothing is left running", 128 + error.number)
    except KeyboardInterrupt:
        _stop("treadle: interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        raise SystemExit(1) from None


def _stop(message: str, status: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
