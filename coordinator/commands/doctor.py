"""`treadle doctor`: whether the server and the store are as they should be."""

from __future__ import annotations

import typer
from treadle.shared.settings import Settings
from treadle.shared.store import health

from ..core.health import Verdict, judge, worst
from .opening import finish
from .options import AsJson, Prefix, Url
from .output import cell, console, document


def doctor(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Check the server and the store, and say what to do.

    Each check is OK, WARN, FAIL or UNKNOWN (the server does not say). Nothing is written. Exit status 1 where a check
    says FAIL.

    --json: {"verdict", "checks": [{"check", "verdict", "found", "todo"}]}
    """
    settings = Settings(url=url, prefix=prefix)
    findings = judge(finish(lambda: health.examine(settings.url, prefix=settings.prefix)))
    verdict = worst(findings)
    if as_json:
        checks = [
            {"check": one.check, "verdict": one.verdict.value, "found": one.found, "todo": one.todo} for one in findings
        ]
        document({"verdict": verdict.value, "checks": checks})
    else:
        target = console()
        width = max(len(one.check) for one in findings)
        for one in findings:
            target.print(
                cell(f"{one.check:<{width}} "), cell(one.verdict), cell(f"{'':<{7 - len(one.verdict)}}{one.found}")
            )
            if one.todo:
                target.print(cell(f"{'':<{width}}  {'':<8}-> {one.todo}"), style="dim")
    if verdict is Verdict.FAIL:
        raise typer.Exit(1)
