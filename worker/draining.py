"""`treadle-worker drain`: asks Workers of this machine, from another shell, to give their work back and to end.

It may be said again and again, and before or after a SIGTERM: it is never taken for the second signal that ends at once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NoReturn

import typer
from treadle.shared.errors import Misuse
from treadle.shared.names import shown, token
from treadle.shared.processes import Life, life_of, send
from treadle.shared.redaction import safe_url, store_name

from . import roster
from .exits import Exit
from .roster import DRAIN, Record

LOOK_EVERY_S = 0.05
MARGIN_S = 5.0
"""How much longer than a Worker's own patience its end is waited for."""
NAMED_MAX = 20


class State(StrEnum):
    """What has come of it."""

    ASKED = "asked"
    ENDED = "ended"
    RUNNING = "running"
    """It had not ended when the time was over."""
    UNREADABLE = "unreadable"
    """Whether it still is that Worker cannot be told, so nothing was sent."""


class NoneRunsError(Exception):
    """No Worker matches."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which Workers are meant."""

    name: str | None = None
    """As a token."""
    pid: int | None = None
    store: str | None = None
    """By `store_name`."""
    every: bool = False

    def of(self, running: Sequence[Record]) -> list[Record]:
        """Those that are meant. Misuse where it may be one or another; NoneRunsError where there is none to be meant."""
        chosen = [one for one in running if self._means(one)]
        if not chosen and not self.every:
            others = (
                f"; running: {_listed(running)}"
                if running
                else (
                    "; none of this user runs on this machine: send SIGTERM to one of another user, or drain it where it runs"
                )
            )
            raise NoneRunsError(f"no Worker{self._said} runs{others}")
        if len(chosen) > 1 and not self.every:
            raise Misuse(
                f"{len(chosen)} Workers{self._said} run: {_listed(chosen)}; say which by --pid, --name or --url, "
                "or all by --all"
            )
        return chosen

    def _means(self, one: Record) -> bool:
        wanted = ((self.name, one.name), (self.pid, one.pid), (self.store, one.store))
        return all(mine in (None, theirs) for mine, theirs in wanted)

    @property
    def _said(self) -> str:
        named = f" named {shown(self.name)}" if self.name is not None else ""
        named += f" with pid {self.pid}" if self.pid is not None else ""
        return named + (f" of {self.store}" if self.store is not None else "")


def _listed(records: Sequence[Record]) -> str:
    more = f" and {len(records) - NAMED_MAX} more" if len(records) > NAMED_MAX else ""
    return ", ".join(one.shown for one in records[:NAMED_MAX]) + more


def ask(records: Sequence[Record]) -> dict[Record, State]:
    """Asks each; one whose pid is another's by now is not signalled."""
    found: dict[Record, State] = {}
    for record in records:
        if send(record.process, DRAIN):
            found[record] = State.ASKED
        else:
            found[record] = State.UNREADABLE if life_of(record.process) is Life.UNKNOWN else State.ENDED
    return found


def wait(states: dict[Record, State], *, timeout_s: float | None) -> dict[Record, State]:
    """What has become of each when all have ended, or the time is over; by default that in which each ends by itself."""
    waited_for = [record for record, state in states.items() if state is State.ASKED]
    patience_s = max((record.patience_s for record in waited_for), default=0.0) + MARGIN_S
    deadline_s = time.monotonic() + (patience_s if timeout_s is None else timeout_s)
    while waited_for:
        waited_for = [record for record in waited_for if life_of(record.process) is not Life.GONE]
        if time.monotonic() >= deadline_s:
            break
        if waited_for:
            time.sleep(LOOK_EVERY_S)
    left = frozenset(waited_for)
    ended = {State.ASKED: State.ENDED}
    return {one: State.RUNNING if one in left else ended.get(state, state) for one, state in states.items()}


def drain(
    name: Annotated[str | None, typer.Option(help="The Worker of that Agent name.")] = None,
    pid: Annotated[int | None, typer.Option(help="The Worker with that process id.")] = None,
    url: Annotated[
        str | None, typer.Option(help="Only Workers of this store. Those of any store by default.", metavar="URL")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every Worker of this user on this machine that matches.")
    ] = False,
    waits: Annotated[bool, typer.Option("--wait", help="Return when they have ended.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="How many seconds --wait waits at most. As long as the Workers may take, by default."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help='One object: "workers", each with "name", "pid", "store" and "state".')
    ] = False,
) -> None:
    """Asks Workers of this machine to take nothing more, to give their work back and to end.

    Without --all there must be just one that matches. Exit status: 0 asked, and with --wait ended (with --all also where
    none runs), 1 one has not ended in time or cannot be read, 2 several match, 3 none does.
    """
    try:
        if timeout is not None and not (waits and 0 < timeout <= 86_400):
            raise Misuse(f"--timeout: {timeout:g}, must be above 0 and at most 86,400 seconds, and comes with --wait")
        wanted = None if name is None else token(name, field="--name")
        choice = Choice(wanted, pid, None if url is None else _store(url), every)
        states = ask(choice.of(roster.living()))
    except NoneRunsError as none:
        _end(str(none), Exit.NONE_RUNS)
    except Misuse as misuse:
        _end(str(misuse), Exit.MISUSE)
    if waits:
        states = wait(states, timeout_s=timeout)
    if as_json:
        found = [
            {"name": shown(one.name), "pid": one.pid, "store": one.store, "state": state}
            for one, state in states.items()
        ]
        print(json.dumps({"workers": found}))
    else:
        for record, state in states.items():
            print(f"{record.shown}: {_SAID[state]}")
        if not states:
            print("no Worker of this user runs on this machine" + ("" if url is None else f" for {_store(url)}"))
    if any(state in (State.RUNNING, State.UNREADABLE) for state in states.values()):
        raise SystemExit(Exit.UNFORESEEN)


_SAID = {
    State.ASKED: "asked to drain",
    State.ENDED: "has ended",
    State.RUNNING: "has not ended in time; a second SIGTERM ends it at once, then its leases lapse",
    State.UNREADABLE: "cannot be read, so nothing was sent; send it a SIGTERM yourself",
}


def _store(url: str) -> str:
    name = store_name(url)
    if "://" not in name:
        raise Misuse(f"--url: {safe_url(url)[:80]!r} is no store address; use redis://, rediss:// or unix://")
    return name


def _end(text: str, status: Exit) -> NoReturn:
    print(f"treadle-worker: {text}", file=sys.stderr)
    raise SystemExit(status)
