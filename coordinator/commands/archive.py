"""`treadle archive`: ended Missions into files, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from treadle.shared import codec
from treadle.shared.answers import MissionView
from treadle.shared.archive import ArchivedItem, End, Header, Part, Record, Snapshot
from treadle.shared.errors import Corrupt, Misuse, Refused, TreadleError
from treadle.shared.model import Event, GroupId, ItemState
from treadle.shared.names import name_of, token, unknown_mission
from treadle.shared.store import Store, archiving

from .. import archiving as files
from ..core.readable import cut, safe, times
from ..core.replaying import Replay
from ..core.wording import quoted
from .opening import default_actor, with_store
from .options import AsJsonLines, Prefix, Url
from .output import Column, document, note, plain, say, table

MISSIONS_MAX = 1_000_000
FOLLOW_S = 10.0
ITEMS_SHOWN, RESULT_CHARS = 1_000, 200
Folder = Annotated[Path | None, typer.Option("--to", help="The folder to write to.", metavar="DIR")]


def archive(
    mission: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MISSION]...", help="Their ids; without one, all that have ended and have no archive."),
    ] = None,
    to: Folder = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on, for those that end later.")] = False,
    require: Annotated[
        bool | None,
        typer.Option("--require/--no-require", help="Whether ended Missions stay until they are archived."),
    ] = None,
    read: Annotated[Path | None, typer.Option("--read", help="Show what an archive holds.", metavar="FILE")] = None,
    verify: Annotated[
        Path | None, typer.Option("--verify", help="Say whether an archive is sound.", metavar="FILE")
    ] = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJsonLines = False,
) -> None:
    """Write ended Missions into files, one each, or read such a file back.

    A file has the Mission's record, all Events of its log, and its items with inputs, results and failures: lines of JSON in
    gzip. It is read back before it gets its name, and recorded in the Mission's log. With --require nothing that has ended
    goes from the store before that, however long its time is over. Exit status 1 where one of them could not be archived,
    or a file is not sound; the others are.

    --json, a line each: {"mission", "file", "sha256", "events", "items", "bytes", "error"}; of --require {"required",
    "changed"}; of --verify {"file", "mission", "state", "sha256", "events", "items", "replayed"}; of --read {"header"},
    {"mission"}, {"snapshot"}, {"event"}, {"item"} and {"end"} in the order of the file
    """
    if read is not None or verify is not None:
        if mission or to or follow or require is not None or (read and verify):
            raise Misuse("archive: --read and --verify take a FILE, and nothing else with it")
        if read is not None:
            _show(read, as_json=as_json)
        elif verify is not None:
            _verify(verify, as_json=as_json)
        return
    if to is None and (mission or follow or require is None):
        raise Misuse("archive: --to DIR says where the files go; or --read FILE, --verify FILE, --require")
    if to is not None and not to.is_dir():
        raise Misuse(f"--to: {to} is no folder; make it first")
    named = [(name, GroupId(token(name, field="MISSION"))) for name in dict.fromkeys(mission or ())]

    async def work(store: Store) -> bool:
        if require is not None:
            changed = await archiving.require(store, require)
            _say_required(required=require, changed=changed, as_json=as_json)
        if to is None:
            return True
        return await write(store, to, named, follow=follow, as_json=as_json)

    if not with_store(url, prefix, work):
        raise typer.Exit(1)


async def write(
    store: Store, folder: Path, named: Sequence[tuple[str, GroupId]], *, follow: bool, as_json: bool
) -> bool:
    """Writes these Missions, or all that have ended and have no archive; whether all went well. `follow`: until cancelled.

    Of what it follows, a log that could not be archived is tried again only once it has gone on.
    """
    all_well, failed = True, dict[GroupId, int]()
    while True:
        views = [await _named(store, *one) for one in named] or await archiving.unarchived(store, most=MISSIONS_MAX)
        wanted = [view for view in views if failed.get(view.group) != view.last_seq]
        for view in wanted:
            try:
                made = await files.archive(store, view, folder, actor=token(default_actor(), field="actor"))
            except (Refused, Corrupt) as error:
                if follow and error.code == "INVALID_STATE_TRANSITION":
                    continue  # what is left of it is still being withdrawn: at the next look it may be over
                all_well, failed[view.group] = False, view.last_seq
                _say_failed(view, error, as_json=as_json)
            else:
                _say_made(made, as_json=as_json)
        if not follow:
            if not wanted and not as_json:
                note("no Mission has ended that has no archive yet")
            return all_well
        named = ()
        await anyio.sleep(FOLLOW_S)


async def _named(store: Store, name: str, group: GroupId) -> MissionView:
    view = await store.mission(group)
    if view is None:
        raise unknown_mission(group)
    if view.is_expired:
        raise Refused(f"mission {quoted(name)}: its time was over, it is gone", code="GROUP_NOT_FOUND")
    return view


def _say_required(*, required: bool, changed: bool, as_json: bool) -> None:
    if as_json:
        document({"required": required, "changed": changed})
        return
    say("ended Missions stay until they are archived" if required else "ended Missions go when their time is over")


def _say_made(made: files.Archived, *, as_json: bool) -> None:
    if as_json:
        said = {"mission": made.mission, "file": str(made.path), "sha256": made.digest, "events": made.events}
        document(said | {"items": made.items, "bytes": made.size, "error": None})
        return
    what = f"{times(made.events, 'Event')}, {times(made.items, 'item')}, {made.size:,} bytes"
    say(f"{safe(made.mission)}: {safe(str(made.path))} ({what})")


def _say_failed(view: MissionView, error: TreadleError, *, as_json: bool) -> None:
    if as_json:
        nothing = dict.fromkeys(("file", "sha256", "events", "items", "bytes"))
        document({"mission": view.mission} | nothing | {"error": str(error)})
        return
    note(f"treadle: {safe(str(error))}")


def _verify(path: Path, *, as_json: bool) -> None:
    header, end = files.ends_of(path)
    replay = _replayed(path)
    told = replay.projection
    if as_json:
        said = {"file": str(path), "mission": header.mission, "state": replay.mission, "sha256": end.digest}
        document(said | {"events": end.events, "items": end.items, "replayed": told is not None})
        return
    what = f"{times(end.events, 'Event')}, {times(end.items, 'item')}, SHA-256 {end.digest}"
    say(f"{safe(str(path))}: sound; mission {quoted(header.mission)}, {replay.mission}, {what}")
    if told is not None:
        counts = ", ".join(f"{number:,} {state}" for state, number in sorted(replay.states.items()))
        say(f"its Events, replayed, give what its records say: {told.mission}; {counts or 'no items'}")
    else:
        say(f"its log begins at {header.first:,} and there is no Snapshot in it: its Events cannot be replayed")


def _replayed(path: Path) -> Replay:
    """Of a sound file: its Events, replayed and held against its records."""
    replay = Replay()
    for part in files.parts(path):
        try:
            replay.take(part)
        except Corrupt as error:
            raise Corrupt(f"{path}: every byte is as it was written, but {error}") from None
    return replay


def _show(path: Path, *, as_json: bool) -> None:
    """Only what is sound, and is what its Events tell, is shown: it is read before."""
    if as_json:
        files.ends_of(path)
        _replayed(path)
        for part in files.parts(path):
            document(_document(part))
        return
    _verify(path, as_json=False)
    rows: list[tuple[object, ...]] = []
    left_out = 0
    for part in files.parts(path):
        if isinstance(part, ArchivedItem) and len(rows) < ITEMS_SHOWN:
            rows.append((name_of(part.item), part.fields.get("st", "?"), part.fields.get("cap", "?"), _came(part)))
        elif isinstance(part, ArchivedItem):
            left_out += 1
    columns = [Column("ITEM"), Column("STATE"), Column("CAPABILITY"), Column("RESULT", may_shorten=True)]
    table(columns, rows)
    if left_out:
        note(f"{times(left_out, 'item')} left out; --json shows all of them")


def _came(item: ArchivedItem) -> str:
    """What came of it, short."""
    body = item.bodies.get("rs" if item.fields.get("st") == ItemState.VERIFIED else "fl")
    return cut(json.dumps(_readable(body)), RESULT_CHARS) if body is not None else "-"


def _readable(raw: bytes) -> Any:
    """What was packed, as JSON has it; of bytes that are no packed value their own form."""
    try:
        return plain(codec.unpack(raw, what="body"))
    except Corrupt:
        return plain(raw)


def _document(part: Part) -> dict[str, Any]:
    match part:
        case Header():
            named = {name: getattr(part, name) for name in Header.__dataclass_fields__ if name != "group"}
            return {"header": named}
        case Record():
            return {"mission": dict(part.fields)}
        case Snapshot():
            return {"snapshot": {"bytes": len(part.raw)}}
        case Event():
            item = None if part.item is None else name_of(part.item)
            said = {"seq": part.seq, "at_ms": part.at_ms, "kind": part.kind.value, "item": item, "by": part.by}
            return {"event": said | {"data": list(part.data)}}
        case ArchivedItem():
            bodies = {name: _readable(raw) for name, raw in part.bodies.items()}
            return {"item": {"id": name_of(part.item), "fields": dict(part.fields)} | bodies}
        case End():
            return {"end": {"events": part.events, "items": part.items, "sha256": part.digest}}
