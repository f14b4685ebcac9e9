"""What the facts of a server mean for treadle: each OK, WARN, FAIL or UNKNOWN, with what to do. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from treadle.shared.facts import NEVER_MS, ServerFacts
from treadle.shared.names import shown

from .readable import cut, listed, size, span

VERSION_MIN = {"Redis": 7, "Valkey": 7}
"""FUNCTION came with Redis 7; Valkey began there."""
FULL_WARN, FULL_FAIL = 0.75, 0.85
"""New work is refused from 85 % on (design.md 3.3)."""
SKEW_WARN_MS, SKEW_FAIL_MS = 2_000, 60_000
LATENCY_WARN_MS = 5.0
NODE_BYTES_MAX = 512
OVERDUE_WARN_MS = 10_000
LIBRARIES_MAX = 2


class Verdict(StrEnum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, and what to do where something is to be done."""

    check: str
    verdict: Verdict
    found: str
    todo: str = ""


_Found = tuple[Verdict, str, str]


def judge(facts: ServerFacts) -> tuple[Finding, ...]:
    """Every check in a fixed order; of a server that cannot be reached, only that."""
    if facts.unreachable:
        todo = "start that server, or name another by --url or TREADLE_URL"
        return (Finding("connection", Verdict.FAIL, facts.unreachable, todo),)
    return (Finding("connection", Verdict.OK, facts.address), *(Finding(name, *rule(facts)) for name, rule in _CHECKS))


def _ok(found: str) -> _Found:
    return Verdict.OK, found, ""


def _unsaid(todo: str) -> _Found:
    return Verdict.UNKNOWN, "the server does not say", todo


def _version(facts: ServerFacts) -> _Found:
    if facts.version is None:
        return _unsaid("make sure that it is Redis 7 or newer, or Valkey")
    name = f"{facts.product} {facts.version}"
    major = facts.version.partition(".")[0]
    if not major.isdigit() or int(major) < VERSION_MIN.get(facts.product or "", 7):
        return Verdict.FAIL, name, "upgrade it: Redis 7 or newer, or Valkey"
    return _ok(name)


def _role(facts: ServerFacts) -> _Found:
    if facts.is_loading:
        return Verdict.FAIL, "it is loading its data", "wait until it has"
    if facts.is_cluster:
        return Verdict.FAIL, "it is a node of a Cluster", "use a single server: Clusters are not supported yet"
    if facts.role is None:
        return _unsaid("make sure that it is no replica")
    if facts.role not in ("master", "primary"):
        return Verdict.FAIL, f"it is a {facts.role}", "name its primary: a replica takes no writes"
    return _ok("primary")


def _eviction(facts: ServerFacts) -> _Found:
    if facts.eviction is None:
        return _unsaid("make sure that maxmemory-policy is noeviction")
    if facts.eviction != "noeviction":
        todo = "CONFIG SET maxmemory-policy noeviction, and in its configuration file: a full server would drop work"
        return Verdict.FAIL, facts.eviction, todo
    return _ok("noeviction")


def _persistence(facts: ServerFacts) -> _Found:
    if facts.appends is None:
        return _unsaid("make sure that appendonly is yes")
    if not facts.appends:
        todo = "CONFIG SET appendonly yes, and in its configuration file: a restart would lose everything"
        return Verdict.FAIL, "no append-only file", todo
    if facts.appends_well is False:
        return Verdict.FAIL, "writing the append-only file fails", "look at the server's log and its disk"
    fsync = facts.fsync or "unknown"
    if fsync == "no":
        return (
            Verdict.WARN,
            "append-only file, fsync no",
            "CONFIG SET appendfsync everysec: a crash loses more than a second",
        )
    return _ok(f"append-only file, fsync {fsync}")


def _memory(facts: ServerFacts) -> _Found:
    if facts.used_bytes is None or facts.limit_bytes is None:
        return _unsaid("keep an eye on its memory")
    if facts.limit_bytes == 0:
        return _ok(f"{size(facts.used_bytes)} used, no limit (maxmemory 0)")
    share = facts.used_bytes / facts.limit_bytes
    found = f"{size(facts.used_bytes)} of {size(facts.limit_bytes)} used ({share:.0%})"
    if share >= FULL_FAIL:
        return Verdict.FAIL, found, "give it more memory: new work is refused, finishing goes on"
    if share >= FULL_WARN:
        return Verdict.WARN, found, f"give it more memory soon: new work is refused from {FULL_FAIL:.0%} on"
    return _ok(found)


def _stream_nodes(facts: ServerFacts) -> _Found:
    if facts.node_bytes is None:
        return _unsaid(f"set stream-node-max-bytes to {NODE_BYTES_MAX}, which saves memory in small Missions")
    if not 0 < facts.node_bytes <= NODE_BYTES_MAX:
        todo = f"CONFIG SET stream-node-max-bytes {NODE_BYTES_MAX}: else each small Mission takes some kilobytes more"
        return Verdict.WARN, f"stream-node-max-bytes {facts.node_bytes}", todo
    return _ok(f"stream-node-max-bytes {facts.node_bytes}")


def _clock(facts: ServerFacts) -> _Found:
    if facts.skew_ms is None:
        return _unsaid("compare the clocks by hand")
    apart_ms = abs(facts.skew_ms)
    found = f"this machine is {span(apart_ms)} {'ahead of' if facts.skew_ms > 0 else 'behind'} the server"
    if apart_ms < 10:
        found = "this machine and the server agree"
    if apart_ms >= SKEW_WARN_MS:
        verdict = Verdict.FAIL if apart_ms >= SKEW_FAIL_MS else Verdict.WARN
        return (
            verdict,
            found,
            "run an NTP client on both: leases keep to the server's clock, deadlines you give to yours",
        )
    return _ok(found)


def _latency(facts: ServerFacts) -> _Found:
    if facts.latency_ms is None or facts.latency_worst_ms is None:
        return _unsaid("")
    found = f"{facts.latency_ms:.2f} ms in the middle, {facts.latency_worst_ms:.2f} ms at worst"
    if facts.latency_ms >= LATENCY_WARN_MS:
        return Verdict.WARN, found, "run Workers nearer to the server: each item takes some round trips"
    return _ok(found)


def _library(facts: ServerFacts) -> _Found:
    if facts.libraries is None:
        return _unsaid("nothing: it is loaded where it is missing")
    others = [name for name in facts.libraries if name != facts.library]
    loaded = (
        f"{facts.library} is loaded" if facts.library in facts.libraries else "not loaded yet, the first call does it"
    )
    if not others:
        return _ok(loaded)
    found = f"{loaded}; of other versions: {listed(others)}"
    todo = f"where no program of such a version runs any more: FUNCTION DELETE {others[0]}"
    return (Verdict.OK if len(others) < LIBRARIES_MAX else Verdict.WARN), found, todo


def _store(facts: ServerFacts) -> _Found:
    where = f"prefix {facts.prefix}"
    if facts.damage:
        todo = "find out who else writes to its keys; `redis-cli TYPE` and the text above say what is odd"
        return Verdict.FAIL, f"{where}: it cannot be read: {cut(facts.damage, 300)}", todo
    if facts.format_version is None:
        return Verdict.OK, f"{where}: no store there yet, the first program makes it", ""
    if facts.format_version != str(facts.format_wanted):
        found = f"{where}: format {facts.format_version}, this program speaks {facts.format_wanted}"
        return Verdict.FAIL, found, "use a program of that version, or another TREADLE_PREFIX"
    found = f"{where}: format {facts.format_version}, {facts.partitions} partitions"
    if facts.bound_elsewhere:
        todo = "nothing: the next program that connects binds them anew, and running Workers open new sessions"
        return Verdict.WARN, f"{found}; {facts.bound_elsewhere} still bound to the server before its restart", todo
    return _ok(found)


def _lineage(facts: ServerFacts) -> _Found:
    begun = ""
    if facts.incarnations:
        last = facts.incarnations[0]
        begun = f"a person's last new incarnation: {cut(last.actor, 80)}, {span(facts.now_ms - last.at_ms)} ago"
        begun += f" ({cut(last.reason, 200)})"
    left_ms = facts.quarantine_ms - facts.now_ms
    if facts.quarantine_ms >= NEVER_MS:
        who = f"Worker {shown(facts.doubt)}" if facts.doubt else "a Worker"
        found = f"it went back in time, as an old backup does, {who} found: QUARANTINE, nothing is accepted or started"
        return Verdict.FAIL, found, "make sure which data it has (docs/operations.md), then `treadle new-incarnation`"
    if left_ms > 0:
        found = f"QUARANTINE after a change of its server: nothing is accepted or started for the next {span(left_ms)}"
        return Verdict.WARN, f"{found}; {begun}" if begun else found, "nothing: it ends by itself"
    return _ok(begun or "no quarantine")


def _groups(facts: ServerFacts) -> _Found:
    if facts.halted:
        found = f"{len(facts.halted)} halted: {listed(facts.halted)}"
        return Verdict.FAIL, found, "find out who else writes to these keys, then `treadle repair MISSION`"
    return _ok("no Group is halted")


def _workers(facts: ServerFacts) -> _Found:
    live = [one for one in facts.workers if not one.is_silent(facts.now_ms)]
    silent = len(facts.workers) - len(live)
    slots = sum(one.slots for one in live)
    found = f"{len(live)} live" + (f", {slots} slots" if slots else "") + (f", {silent} silent" if silent else "")
    if facts.unserved:
        todo = f"start a Worker with a handler of {facts.unserved[0]}"
        return Verdict.WARN, f"{found}; work waits that none of them offers: {listed(facts.unserved)}", todo
    if facts.overdue_ms > OVERDUE_WARN_MS:
        todo = "start a Worker: without one no lapsed lease is offered again and no timer fires"
        return Verdict.WARN, f"{found}; something is due since {span(facts.overdue_ms)}", todo
    return _ok(found)


_CHECKS: tuple[tuple[str, Callable[[ServerFacts], _Found]], ...] = (
    ("version", _version),
    ("role", _role),
    ("eviction", _eviction),
    ("persistence", _persistence),
    ("memory", _memory),
    ("stream nodes", _stream_nodes),
    ("clock", _clock),
    ("latency", _latency),
    ("library", _library),
    ("store", _store),
    ("lineage", _lineage),
    ("groups", _groups),
    ("workers", _workers),
)


def worst(findings: tuple[Finding, ...]) -> Verdict:
    """The verdict on the whole: FAIL before WARN before OK; UNKNOWN only where nothing else is said."""
    said = {one.verdict for one in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.OK) if verdict in said), Verdict.UNKNOWN)
