"""`treadle policy`: what the Organization grants to whom: checked, applied, shown, and who changed it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from treadle.shared.errors import Misuse, Refused
from treadle.shared.policy import Policy
from treadle.shared.policy_file import parse
from treadle.shared.store import Store, policies
from treadle.shared.store.policies import Change, Standing

from ..core.mission_files import decode
from ..core.readable import safe, span, times
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url
from .output import Column, document, note, say, table

File = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, TOML.", show_default=False)]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="What the Organization grants: weights, quotas, classes."
)


@app.command()
def check(file: File, as_json: AsJson = False) -> None:
    """Say what is wrong in a policy file, each with its line; no store is asked.

    Exit status 1 where something is.

    --json: {"file", "ok", "faults": [TEXT]}
    """
    name, text = _read(file)
    faults: list[str] = []
    found: Policy | None = None
    try:
        found = parse(text, name=name)
    except Misuse as misuse:
        faults = str(misuse).split("\n")
    if as_json:
        document({"file": str(file), "ok": not faults, "faults": faults})
    elif found is not None:
        say(f"{name}: sound: {_counted(found)}")
    else:
        for fault in faults:
            say(fault)
    raise typer.Exit(1 if faults else 0)


@app.command()
def apply(
    file: File,
    why: Annotated[str, typer.Option("--note", help="Recorded with it.", metavar="TEXT")] = "",
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Make a file the policy, for every Worker's next decision.

    It is recorded with who did it. A file with a fault in it changes nothing; the policy that stands already is not applied
    again.

    --json: {"version", "changed"}
    """
    name, text = _read(file)
    parse(text, name=name)
    if len(why) > policies.NOTE_CHARS_MAX:
        raise Misuse(f"--note: {len(why):,} characters, at most {policies.NOTE_CHARS_MAX}; shorten it")

    async def work(store: Store) -> tuple[int, bool]:
        return await persist(store, lambda: policies.apply(store, text, actor=default_actor(), note=why))

    try:
        version, changed = with_store(url, prefix, work)
    except Refused as refused:
        if refused.code != "REVISION_CONFLICT":
            raise
        text = "somebody else applied a policy at the same time; look at it (`treadle policy show`), then apply yours again"
        raise Refused(text, code=refused.code) from None
    if as_json:
        document({"version": version, "changed": changed})
    else:
        say(f"{name}: {'is' if changed else 'was already'} version {version} of the policy")


@app.command()
def show(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show the policy that stands, as it was written.

    --json: {"version", "at_ms", "actor", "note", "digest", "text"}; version 0 and nulls where none was ever applied
    """

    async def work(store: Store) -> tuple[int, Standing | None]:
        return await store.now_ms(), await policies.read(store)

    now_ms, standing = with_store(url, prefix, work)
    if as_json:
        nothing: dict[str, Any] = dict.fromkeys(("at_ms", "actor", "note", "digest", "text"))
        document({"version": 0, **nothing} if standing is None else _plain(standing.change) | {"text": standing.text})
    elif standing is None:
        note("no policy was applied: one class, equal accounts, no caps (docs/policy.md)")
    else:
        change = standing.change
        said = f": {safe(change.note)}" if change.note else ""
        note(f"version {change.version}, by {safe(change.actor)}, {span(now_ms - change.at_ms)} ago{said}")
        print(standing.text, end="" if standing.text.endswith("\n") else "\n", flush=True)


@app.command()
def history(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """List the last 100 changes of the policy, the newest first.

    --json: {"now_ms", "changes": [{"version", "at_ms", "actor", "note", "digest"}]}
    """

    async def work(store: Store) -> tuple[int, list[Change]]:
        return await store.now_ms(), await policies.history(store)

    now_ms, changes = with_store(url, prefix, work)
    if as_json:
        document({"now_ms": now_ms, "changes": [_plain(change) for change in changes]})
        return
    if not changes:
        note("no policy was ever applied")
        return
    columns = [
        Column("VERSION", right=True),
        Column("APPLIED", right=True),
        Column("BY"),
        Column("DIGEST", is_extra=True),
    ]
    rows = ((one.version, f"{span(now_ms - one.at_ms)} ago", one.actor, one.digest, one.note) for one in changes)
    table([*columns, Column("NOTE", may_shorten=True)], rows)


def _plain(change: Change) -> dict[str, Any]:
    return {
        "version": change.version,
        "at_ms": change.at_ms,
        "actor": change.actor,
        "note": change.note,
        "digest": change.digest,
    }


def _counted(found: Policy) -> str:
    rules = {"account": found.accounts, "Mission": found.missions, "Worker": found.workers}
    said = [times(len(of), f"rule of {kind}s", f"rules of {kind}s") for kind, of in rules.items() if of]
    return ", ".join([times(len(found.classes), "class", "classes"), *said])


def _read(file: Path) -> tuple[str, str]:
    """The file's name for messages, and its text."""
    name = safe(str(file))
    try:
        return name, decode(file.read_bytes(), name=name)
    except OSError as error:
        raise Misuse(f"{name}: cannot be read ({error.strerror}); name a policy file (docs/policy.md)") from None
