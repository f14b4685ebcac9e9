"""`treadle submit`: a Mission from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from treadle.shared.errors import Misuse
from treadle.shared.facts import FailureFacts, Progress
from treadle.shared.model import MissionState
from treadle.shared.settings import Settings
from treadle.shared.store import Store, stuck
from treadle.shared.versions import spoken

from ..client import Client, Mission
from ..core.mission_files import KINDS, decode, kind_of, mission_spec, placed
from ..core.readable import cut, listed, safe, times
from ..core.wording import lacked
from ..specs import MissionSpec
from .displays import counts, display, loading
from .following import End, follow
from .opening import opened, with_client
from .options import AsJson, Prefix, Timeout, Url
from .output import document, note, say, typed

FAILURES_SHOWN_MAX, FAILURES_TOLD_MAX = 5, 100

File = Annotated[Path, typer.Argument(help="The Mission, TOML or JSON; `-` reads standard input.", show_default=False)]


def submit(
    file: File,
    account: Annotated[str | None, typer.Option(help="In place of the file's.", metavar="NAME")] = None,
    id: Annotated[str | None, typer.Option("--id", help="In place of the file's.", metavar="MISSION")] = None,
    weight: Annotated[float | None, typer.Option(help="In place of the file's.", metavar="W")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show how far it is until it has ended.")] = False,
    timeout: Timeout = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Submit the Mission of a file.

    It says the Mission's id, and which of its items nobody can run now (NO_WORKER, UNSCHEDULABLE).

    The file has the fields of MissionSpec: objective, account, weight, work, ...; each of `work` those of WorkSpec: id,
    capability, inputs, after, ... Submitted again with its id and content unchanged it is the same Mission.

    With --wait, exit status 1 where it was not approved, or --timeout passed first; it goes on all the same.

    --json: {"mission", "items", "repeated", "created_ms", "no_worker", "unschedulable", "lacking"}, with --wait also
    {"state", "total", "verified", "running", "waiting", "failed", "cancelled", "open", "timed_out", "failures": [{"item",
    "type", "text"}]}
    """
    if timeout is not None and not wait:
        raise Misuse("--timeout: goes with --wait; without it nothing is waited for")
    given = {"account": account, "id": id, "weight": weight}
    name, text = _read(file)
    kind = kind_of(name, text)
    spec = mission_spec(
        text, name=name, kind=kind, given={field: value for field, value in given.items() if value is not None}
    )

    async def work(client: Client) -> int:
        mission = await _submit(client, spec, text, name, kind)
        if not as_json:
            _say(mission, wait=wait)
        if not wait:
            if as_json:
                document({"mission": mission.id} | _receipt(mission))
            return 0
        async with opened(Settings(url=url, prefix=prefix)) as store:
            if as_json:
                end = await follow(store, [mission.group], _Silent(), timeout_s=timeout)
            else:
                with display(as_json=False) as shown:
                    end = await follow(store, [mission.group], shown, timeout_s=timeout)
            failures = await _failures(store, mission, end)
        return _conclude(mission, end, failures, as_json=as_json, timeout=timeout)

    raise typer.Exit(with_client(url, prefix, work))


class _Silent:
    """For a wait that nobody looks at."""

    def show(self, frame: object) -> None: ...

    def away(self, why: str, since_s: float) -> None: ...

    def back(self, after_s: float) -> None: ...


def _read(file: Path) -> tuple[str, str]:
    """The file's name for messages, and its text."""
    if str(file) == "-":
        return "standard input", decode(sys.stdin.buffer.read(), name="standard input")
    name = safe(str(file))
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise Misuse(f"{name}: cannot be read ({error.strerror}); name a TOML or JSON file, or `-`") from None
    ending = file.suffix.lower().lstrip(".")
    if ending and ending not in KINDS and not raw.strip():
        raise Misuse(f"{name}: is empty; it must hold a Mission in TOML or JSON")
    return name, decode(raw, name=name)


async def _submit(client: Client, spec: MissionSpec, text: str, name: str, kind: str) -> Mission:
    try:
        with loading(len(spec.work)) as loaded:
            return await client.submit(spec, loaded=loaded)
    except Misuse as misuse:
        raise placed(misuse, text, name=name, kind=kind) from None


def _receipt(mission: Mission) -> dict[str, Any]:
    receipt = mission.receipt
    assert receipt is not None
    return {
        "items": receipt.items,
        "repeated": receipt.repeated,
        "created_ms": receipt.created_ms,
        "no_worker": list(receipt.no_worker),
        "unschedulable": dict(receipt.unschedulable),
        "lacking": {name: dict(most) for name, most in receipt.lacking.items()},
    }


def _say(mission: Mission, *, wait: bool) -> None:
    receipt = _receipt(mission)
    known = "was submitted before" if receipt["repeated"] else "submitted"
    say(f"mission {safe(mission.id)}: {known}, {times(receipt['items'], 'item')}")
    if names := receipt["no_worker"]:
        note(
            f"NO_WORKER: no live Worker offers {listed([spoken(name) for name in names])}; its items wait until one does"
        )
    for name, slots in receipt["unschedulable"].items():
        note(
            f"UNSCHEDULABLE: items of {spoken(name)} are wider than every live Worker that offers it ({times(slots, 'slot')})"
        )
    for name, most in receipt["lacking"].items():
        note(f"UNSCHEDULABLE: {lacked(name, most)}")
    if not wait:
        note(f"how far it is: treadle watch {typed(mission.id)}")


async def _failures(store: Store, mission: Mission, end: End) -> list[FailureFacts]:
    if not any(one.failed for one in (end.frame.missions if end.frame else ())):
        return []
    return await stuck.failures(store, mission.group, most=FAILURES_TOLD_MAX)


def _conclude(mission: Mission, end: End, failures: list[FailureFacts], *, as_json: bool, timeout: float | None) -> int:
    """Say how it ended; the exit status."""
    last: Progress | None = end.frame.missions[0] if end.frame and end.frame.missions else None
    if as_json:
        rows = [{"item": one.item, "type": one.type, "text": one.text} for one in failures]
        about = {"mission": mission.id} | _receipt(mission) | (counts(last) if last else {})
        document(about | {"timed_out": end.timed_out, "failures": rows})
    else:
        for one in failures[:FAILURES_SHOWN_MAX]:
            note(f"failed: {safe(one.item)}: {cut(f'{one.type}: {one.text}', 300)}")
        if last is not None and last.failed > min(len(failures), FAILURES_SHOWN_MAX):
            note(f"and {times(last.failed - min(len(failures), FAILURES_SHOWN_MAX), 'failure')} more")
        if end.timed_out:
            note(f"treadle: not ended within {timeout:g} s; it goes on: treadle watch {typed(mission.id)}")
    return 0 if last is not None and last.state is MissionState.APPROVED else 1
