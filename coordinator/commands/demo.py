"""`treadle demo`: two Missions on real files, one Worker killed, the result checked."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.live import Live
from treadle.shared.errors import Misuse

from ..demo import evidence, plain, shards, story
from ..demo.table import table
from .displays import Bars
from .options import AsJson, seconds, whole
from .output import console

REPORT = Path("treadle-demo-report.json")


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
    workers: Annotated[int, typer.Option(help="Worker processes, 1 to 32.", parser=whole(1, 32), metavar="N")] = 4,
    slots: Annotated[
        int, typer.Option(help="Capacity Slots of each Worker, 1 to 16.", parser=whole(1, 16), metavar="N")
    ] = 2,
    ttl: Annotated[float, typer.Option(help="Lease TTL, 1 to 60 seconds.", parser=seconds(1, 60), metavar="S")] = 2.0,
    report: Annotated[Path, typer.Option(help="Where the report is written (JSON).", dir_okay=False)] = REPORT,
    as_json: AsJson = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs and the evidence, and say where.")] = False,
) -> None:
    """Run the main job on real files, with a kill -9 in the middle.

    Two Missions share the Workers by weight 1 to 3; one Worker is killed; the result is checked.
    """
    _check_writable(report)
    listing = shards.list_files(path or shards.default_root())
    if not listing.files:
        left_out = f" (left out: {listing.left_out})" if listing.left_out else ""
        raise Misuse(f"--path: no *.py file below {listing.root}{left_out}; name a folder that holds some")
    out = sys.stderr if as_json else sys.stdout
    began = time.monotonic()

    def stamped(line: str) -> str:
        return f"{time.monotonic() - began:6.1f} s  {line}"

    def say(line: str) -> None:
        print(stamped(line), file=out, flush=True)

    say(f"{len(listing.files)} Python files below {listing.root}" + _left_out(listing))
    logging.getLogger("treadle.client").setLevel(logging.ERROR)  # that no Worker is up yet is no news here
    kept = Path(tempfile.mkdtemp(prefix="treadle-demo-")) if keep else None
    try:
        told = _tell(story.Plan(listing, workers, slots, ttl, kept), say, stamped, out)
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


def _tell(plan: story.Plan, say: Callable[[str], None], stamped: Callable[[str], str], out: TextIO) -> story.Told:
    """With bars below the lines on a terminal; they are gone when it has ended, for the table says more."""
    target = console(out)
    if not target.is_terminal or target.is_dumb_terminal:
        return story.run(plan, say)
    with Live(console=target, auto_refresh=False, transient=True) as live:
        return story.run(plan, lambda line: target.print(stamped(line)), Bars(live).show)


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
