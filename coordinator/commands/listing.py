"""`treadle missions`, `workers`, `groups`: what is there now."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

import anyio
import typer
from treadle.shared.answers import MissionView
from treadle.shared.facts import GroupFacts, Progress, RunFacts, WorkerFacts
from treadle.shared.lifecycle import TERMINAL_MISSIONS
from treadle.shared.model import AgentId, GroupId, MissionState
from treadle.shared.names import name_of
from treadle.shared.resources import packed
from treadle.shared.store import Store, pictures, policies
from treadle.shared.store import sizes as memory
from treadle.shared.store.underway import underway

from ..core.figures import presence, run_fields
from ..core.readable import size, span, times
from ..core.sharing import Share, shares, weight_of
from .opening import with_store
from .options import AsJson, Prefix, Url, seconds, whole
from .output import Column, document, note, table

MOST_LOOKED_AT = 100_000
OVER_S_MAX = 3_600.0
Most = Annotated[
    int, typer.Option(help="Show at most so many.", parser=whole(1, MOST_LOOKED_AT), metavar="N", show_default=True)
]


def missions(
    state: Annotated[MissionState | None, typer.Option(help="Only those in this state.")] = None,
    account: Annotated[str | None, typer.Option(help="Only those of this account.", metavar="NAME")] = None,
    most: Most = 100,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """List Missions, the newest last.

    --json: {"now_ms", "left_out", "missions": [{"mission", "state", "account", "owner", "objective", "weight", "total",
    "verified", "failed", "cancelled", "running", "created_ms", "ended_ms", "deadline_ms", "last_seq", "open",
    "halted", "runs": [{"item", "attempt", "worker", "started_ms", "done", "total", "phase", "note", "milestones"}]}]};
    runs: what runs now and said how far it is; one whose time is over after its end is not listed any more; halted: why its
    Group was halted, else null
    """

    async def read(store: Store) -> tuple[int, list[MissionView], list[Progress], list[RunFacts]]:
        views = await store.missions(most=MOST_LOOKED_AT)
        wanted = [one for one in views if state in (None, one.state) and account in (None, one.account)]
        live = [one.group for one in wanted[-most:] if one.state not in TERMINAL_MISSIONS]
        runs = await underway(store, live) if as_json else []
        return await store.now_ms(), wanted, await pictures.progress(store, live), runs

    now_ms, found, progress, runs = with_store(url, prefix, read)
    running = {one.group: one.running for one in progress}
    left_out, shown = max(0, len(found) - most), found[-most:]
    if as_json:
        said: dict[GroupId, list[dict[str, object]]] = {}
        for run in runs:
            said.setdefault(run.group, []).extend([run_fields(run)] if run.progress else [])
        rows = [_fields(one) | {"running": running.get(one.group, 0), "runs": said.get(one.group, [])} for one in shown]
        document({"now_ms": now_ms, "left_out": left_out, "missions": rows})
        return
    if not shown:
        note("no Mission" + (" of these" if found or state or account else "; `treadle submit FILE` makes one"))
        return
    columns = [
        *(Column("MISSION"), Column("STATE"), Column("ACCOUNT"), Column("VERIFIED", right=True)),
        *(Column("RUNNING", right=True, is_extra=True), Column("FAILED", right=True)),
        *(Column("AGE", right=True, is_extra=True), Column("OBJECTIVE", may_shorten=True, is_extra=True)),
    ]
    table(
        columns,
        (
            (
                *(one.mission, "HALTED" if one.halted else one.state, one.account, f"{one.verified}/{one.total}"),
                *(running.get(one.group, 0), one.failed, span(now_ms - one.created_ms), one.objective),
            )
            for one in shown
        ),
    )
    if left_out:
        note(f"{left_out:,} older ones are left out; --most {min(len(found), MOST_LOOKED_AT)} shows them")


def _fields(one: MissionView) -> dict[str, Any]:
    return {
        "mission": one.mission,
        "state": one.state.value,
        "account": one.account,
        "owner": one.owner,
        "objective": one.objective,
        "weight": one.weight,
        "total": one.total,
        "verified": one.verified,
        "failed": one.failed,
        "cancelled": one.cancelled,
        "created_ms": one.created_ms,
        "ended_ms": one.ended_ms,
        "deadline_ms": one.deadline_ms,
        "last_seq": one.last_seq,
        "open": one.is_open,
        "halted": one.halted or None,
    }


def workers(url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """List the Workers that have a session.

    What they offer, when they last told that they are there, and how full they are, coarsely: `idle`, `partly`, `busy`, or
    `unknown`. A `silent` one has told nothing for four lease TTLs; after ten the store ends its session.

    --json: {"now_ms", "workers": [{"worker", "epoch", "state", "load", "capabilities", "versions", "slots",
    "resources", "ttl_ms", "renewed_ms"}]}
    """

    async def read(store: Store) -> tuple[int, list[WorkerFacts], dict[AgentId, int]]:
        now_ms, found = await pictures.workers(store)
        return now_ms, found, await pictures.slots_in_use(store, found)

    now_ms, found, used = with_store(url, prefix, read)
    loads = [presence(one, used.get(one.agent), now_ms) for one in found]
    if as_json:
        rows = [_worker(one, load, now_ms) for one, load in zip(found, loads, strict=True)]
        document({"now_ms": now_ms, "workers": rows})
        return
    if not found:
        note("no Worker; `treadle-worker run --handlers MODULE` starts one")
        return
    columns = [
        *(Column("WORKER"), Column("EPOCH", right=True, is_extra=True), Column("STATE"), Column("SLOTS", right=True)),
        *(Column("LOAD"), Column("RENEWED", right=True), Column("CAPABILITIES")),
        Column("RESOURCES", is_extra=True),
    ]
    table(
        columns,
        (
            (
                *(name_of(one.agent), one.epoch, _liveness(one, now_ms), one.slots, load),
                f"{span(now_ms - one.renewed_ms)} ago" if one.renewed_ms else "?",
                *(" ".join(one.capabilities), packed(one.resources)),
            )
            for one, load in zip(found, loads, strict=True)
        ),
    )


def _liveness(one: WorkerFacts, now_ms: int) -> str:
    return "silent" if one.is_silent(now_ms) else "live"


def _worker(one: WorkerFacts, load: str, now_ms: int) -> dict[str, Any]:
    fields = asdict(one)
    name = name_of(fields.pop("agent"))
    del fields["held"]  # how much it is of whom is nobody's but theirs (R39)
    fields["resources"] = dict(one.resources)
    return {"worker": name, "state": _liveness(one, now_ms), "load": load} | fields


def groups(
    account: Annotated[str | None, typer.Option(help="Only those of this account.", metavar="NAME")] = None,
    with_ended: Annotated[bool, typer.Option("--all", help="Those of ended Missions too.")] = False,
    sizes: Annotated[bool, typer.Option("--sizes", help="Memory too, about: it measures some items of each.")] = False,
    over_s: Annotated[
        float | None,
        typer.Option("--over", help="SHARE of the next so many seconds.", parser=seconds(0.1, OVER_S_MAX), metavar="S"),
    ] = None,
    most: Most = 1000,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """List Groups: takeable work, service against weight.

    As Workers see them: what may be taken now, what runs, and the service each has had. USED is in slot-seconds. SHARE is of
    the service that all Groups have had which have not ended: since each began, or with --over in the seconds that the command
    then waits. DUE is what the weights of class, account and Mission give it while all of them have work; ATTAINABLE what it
    can have now of the slots of the live Workers, by quotas of slots, capabilities and what the others can use. LOG is how many
    Events its log has, from FIRST to SEQ; SNAPSHOT the sequence of its newest one. A log that was damaged is `halted:CODE`;
    one that has ended goes when its time is over.

    --json: {"over_s", "groups": [{"mission", "account", "state", "weight", "priority_class", "partition", "takeable",
    "running", "used_ms", "share", "due", "attainable", "seq", "log_length", "items", "first_seq", "snapshot_seq", "bytes",
    "payload_bytes"}]};
    weight is the one by the policy, over_s null without --over, share where nothing was used, share, due and attainable where
    it has ended, attainable where no Worker is live, snapshot_seq where there is none, both sizes without --sizes, bytes
    where the server cannot say; payload_bytes: inputs, Checkpoints, results and failures, exactly, those over 64 bytes
    """

    async def read(store: Store) -> tuple[list[GroupFacts], list[Share]]:
        everything = await pictures.groups(store, most=MOST_LOOKED_AT, only_live=not with_ended)
        before_ms = {one.group: 0 for one in everything}
        if over_s is not None:
            before_ms = {one.group: one.used_ms for one in everything}
            await anyio.sleep(over_s)
            everything = await pictures.groups(store, most=MOST_LOOKED_AT, only_live=not with_ended)
        used_ms = {one.group: one.used_ms - before_ms.get(one.group, 0) for one in everything}
        now_ms, found = await pictures.workers(store)
        live, policy = [one for one in found if not one.is_silent(now_ms)], await policies.known(store)
        everything = [replace(one, weight=weight_of(one, policy)) for one in everything]
        if sizes:
            wanted = [one.group for one in everything if account in (None, one.account)][:most]
            measured = await memory.sizes(store, wanted)
            held = await memory.payloads(store, wanted)
            everything = [
                replace(one, bytes=measured.get(one.group), payload_bytes=held.get(one.group)) for one in everything
            ]
        return everything, shares(everything, policy, live, used_ms)

    found = [
        (one, share)
        for one, share in zip(*with_store(url, prefix, read), strict=True)
        if account in (None, one.account)
    ]
    if as_json:
        document({"over_s": over_s, "groups": [_group(one, share) for one, share in found[:most]]})
        return
    if not found:
        note("no Group" + ("" if with_ended else " of a Mission that has not ended; --all shows the others"))
        return
    columns = [
        *(Column("ACCOUNT"), Column("MISSION"), Column("STATE"), Column("WEIGHT", right=True)),
        *(Column("TAKEABLE", right=True), Column("RUNNING", right=True), Column("USED", right=True, is_extra=True)),
        *(Column("SHARE", right=True), Column("DUE", right=True), Column("ATTAINABLE", right=True)),
        *(Column("ITEMS", right=True, is_extra=True), Column("SEQ", right=True, is_extra=True)),
        *(Column("LOG", right=True, is_extra=True), Column("FIRST", right=True, is_extra=True)),
        Column("SNAPSHOT", right=True, is_extra=True),
        *([Column("BYTES", right=True), Column("PAYLOAD", right=True, is_extra=True)] if sizes else []),
    ]
    table(
        columns,
        (
            (
                *(one.account, one.mission, one.state, f"{one.weight:g}", one.takeable, one.running),
                *(f"{one.used_ms / 1000:,.1f}", _part(share.had), _part(share.due), _part(share.attainable)),
                *(one.items, one.seq, one.log_length, one.first_seq or "-"),
                "-" if one.snapshot_seq is None else one.snapshot_seq,
                *((["-" if one is None else size(one) for one in (one.bytes, one.payload_bytes)]) if sizes else ()),
            )
            for one, share in found[:most]
        ),
    )
    if len(found) > most:
        note(f"{times(len(found) - most, 'Group')} left out; --most {len(found)} shows them")


def _part(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _group(one: GroupFacts, share: Share) -> dict[str, Any]:
    fields = asdict(one)
    del fields["group"], fields["takes"]
    return fields | {"share": share.had, "due": share.due, "attainable": share.attainable}
