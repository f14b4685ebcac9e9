"""`treadle enqueue`: one job, without a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from treadle.shared.errors import Misuse
from treadle.shared.model import Urgency

from ..client import Client
from ..core.moments import moment
from ..core.readable import safe
from ..core.wording import lacked
from .opening import with_client
from .options import AsJson, Prefix, Timeout, Url, whole
from .output import document, note, plain, say

Capability = Annotated[str, typer.Argument(help="What is to be done: the name of a handler.", show_default=False)]


def enqueue(
    capability: Capability,
    inputs: Annotated[
        str, typer.Option(help="A JSON object, or @FILE that holds one (@-: standard input).", metavar="JSON")
    ] = "{}",
    account: Annotated[str | None, typer.Option(help="Whose share it uses; yours.", metavar="NAME")] = None,
    key: Annotated[
        str | None, typer.Option(help="Its id: enqueued again with it, it is the same job.", metavar="KEY")
    ] = None,
    not_before: Annotated[
        str | None, typer.Option("--not-before", help="+90s, +2h, or 2030-01-01T09:00:00+01:00.", metavar="TIME")
    ] = None,
    urgency: Annotated[Urgency, typer.Option(help="Among its account's jobs.")] = Urgency.NORMAL,
    slots: Annotated[
        int, typer.Option(help="Capacity Slots it takes at once.", parser=whole(1, 1024), metavar="N")
    ] = 1,
    retry: Annotated[
        int | None, typer.Option(help="How often it is tried again, 0 to 100.", parser=whole(0, 100), metavar="N")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its result and print it as JSON.")] = False,
    timeout: Timeout = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job.

    It says the job's address. With --wait the result is printed as JSON instead; exit status 1 where the job failed or was
    cancelled, or --timeout passed first.

    --json: {"job", "mission", "address", "repeated", "no_worker", "unschedulable", "lacking"}, with
    --wait also {"result"}
    """
    if timeout is not None and not wait:
        raise Misuse("--timeout: goes with --wait; without it nothing is waited for")
    given = _inputs(inputs)
    fields: dict[str, Any] = {"account": account, "key": key, "urgency": urgency, "slots": slots, "retry": retry}
    if not_before is not None:
        fields["not_before"] = moment(not_before, field="--not-before")

    async def work(client: Client) -> None:
        job = await client.enqueue(capability, given, **{name: one for name, one in fields.items() if one is not None})
        receipt = job.receipt
        assert receipt is not None
        said = {
            "job": job.id,
            "mission": job.mission,
            "address": job.address,
            "repeated": receipt.repeated,
            "no_worker": list(receipt.no_worker),
            "unschedulable": dict(receipt.unschedulable),
            "lacking": {name: dict(most) for name, most in receipt.lacking.items()},
        }
        if not as_json:
            (note if wait else say)(safe(job.address))
            if receipt.no_worker:
                note(f"NO_WORKER: no live Worker offers {capability}; it waits until one does")
            for slots_ in receipt.unschedulable.values():
                note(f"UNSCHEDULABLE: no live Worker that offers {capability} has more than {slots_} slots")
            for name, most in receipt.lacking.items():
                note(f"UNSCHEDULABLE: {lacked(name, most)}")
        if not wait:
            if as_json:
                document(said)
            return
        try:
            result = await job.result(timeout=timeout)
        except TimeoutError as error:
            note(f"treadle: {error}")
            raise typer.Exit(1) from None
        if as_json:
            document(said | {"result": plain(result)})
        else:
            say(json.dumps(plain(result)))

    with_client(url, prefix, work)


def _inputs(text: str) -> dict[str, Any]:
    name = "--inputs"
    if text.startswith("@"):
        name = f"--inputs: {safe(text[1:]) if text != '@-' else 'standard input'}"
        try:
            text = sys.stdin.read() if text == "@-" else Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise Misuse(f"{name}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise Misuse(f"{name}: is no UTF-8") from None
    try:
        found: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise Misuse(f"{name}: is no JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise Misuse(f"{name}: is nested too deeply; inputs may be 16 levels deep") from None
    if not isinstance(found, dict):
        raise Misuse(f'{name}: holds a {type(found).__name__}, must be an object, as {{"file": "1.jpg"}}')
    return cast("dict[str, Any]", found)
