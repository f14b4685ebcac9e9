"""What happens to the cluster in a trial, and what must hold of it: each item is done once all the same."""

from __future__ import annotations

import argparse
import hashlib
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from cluster import IMAGE, Broken, Cluster, Follower, first, last_of_firsts, running_on, staged
from engine import CannotRun, Failed, engine

PASSED, BROKEN, SKIPPED = 0, 1, 77
MISSION, STEPS, PACE_S = "trial", 25, 0.1
ITEMS_MIN, ITEMS_MAX = 160, 256
TTL_S, GRACE_S = 3.0, 5.0
STOP_S = int(TTL_S + GRACE_S) + 15
SETTINGS = {"TREADLE_SLOTS": "2", "TREADLE_LEASE_TTL_S": f"{TTL_S:g}", "TREADLE_GRACE_S": f"{GRACE_S:g}"}
HOST1, HOST2 = 4, 2
"""How many Workers each host has, once host 1 is scaled up."""
AWAY_S = 3.0
"""How long the store stays away, beyond what removing and making its container takes."""
NOT_ROOT, OUT_OF_REACH = "10001", ("gaierror", "TimeoutError")

FIRST_PROCESS = "print(*open('/proc/1/cmdline').read().split('\\0')[:2])"
USER = "import os; print(os.getuid())"
WRITE = "try: open('/opt/written', 'w')\nexcept OSError as error: print(error.strerror)\nelse: print('written')"
REACH = """
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, 6379), 2).close()
        print("reached")
    except OSError as error:
        print(type(error).__name__)
"""


@dataclass
class Report:
    """What was seen, a line each, in order; `faults` is empty where all of it holds."""

    began: float = field(default_factory=time.monotonic)
    rows: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {line}", flush=True)

    def check(self, what: str, figure: str, *, holds: bool = True) -> None:
        self.rows.append((what, figure if holds else f"{figure}  <-- DOES NOT HOLD"))
        self.say(": ".join(self.rows[-1]))
        if not holds:
            self.faults.append(f"{what}: {figure}")

    def text(self) -> str:
        width = max((len(what) for what, _ in self.rows), default=0)
        lines = [f"  {what:<{width}}  {figure}" for what, figure in self.rows]
        verdict = ["ALL OF IT HOLDS"] if not self.faults else ["DOES NOT HOLD:", *self.faults]
        return "\n".join(["", "The compose cluster, tried", *lines, "", *verdict])


@dataclass(frozen=True)
class Trial:
    """One trial: each method does one thing to the cluster and reports what came of it."""

    cluster: Cluster
    report: Report
    items: int

    def run(self) -> None:
        self.build()
        self.bring_up()
        self.look_inside()
        mission = (MISSION, str(self.items), str(STEPS), str(PACE_S))
        follower = Follower(self.cluster, *mission)
        try:
            follower.until(lambda events: first(events, "work.submitted"), "a first result")
            self.scale(follower)
            self.stop_one(follower)
            self.kill_host(follower)
            self.take_the_store_away(follower)
            self.report.say("waiting for the rest of the Mission")
            follower.end()
            again = Follower(self.cluster, *mission)
            try:
                again.end()
            finally:
                again.close()
            self.all_done_once(follower, again)
        finally:
            follower.close()
        self.stop_all()

    def build(self) -> None:
        began = time.monotonic()
        self.cluster.compose("build", "worker1", timeout_s=900)
        size = int(self.cluster.inspected("{{.Size}}", IMAGE)[0])
        base = self.cluster.engine.environment.get("TREADLE_BASE")
        own = f", {(size - int(self.cluster.inspected('{{.Size}}', base)[0])) / 1e6:.0f} MB of it ours" if base else ""
        self.report.check("image built", f"{time.monotonic() - began:.1f} s, {size / 1e6:.0f} MB{own}")

    def bring_up(self) -> None:
        began = time.monotonic()
        self.cluster.up(worker1=1, worker2=HOST2)
        self.report.check(f"cluster up: the store, 1 Worker and {HOST2}", f"{time.monotonic() - began:.1f} s")

    def look_inside(self) -> None:
        one, other = self.cluster.containers("worker1")[0], self.cluster.containers("worker2")[0]
        program = self.cluster.inside(one, FIRST_PROCESS)
        is_worker = re.fullmatch(r"\S*python3\S* \S*/treadle-worker", program) is not None
        self.report.check("process 1 of a container", program, holds=is_worker)
        user = self.cluster.inside(one, USER)
        self.report.check("its user", user, holds=user == NOT_ROOT)
        wrote = self.cluster.inside(one, WRITE)
        self.report.check("writing to its file system", wrote.lower(), holds=wrote != "written")
        address = self.cluster.inspected("{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", other)[0]
        store, by_name, by_address = self.cluster.inside(one, REACH, "redis", "worker2", address).split()
        self.report.check("from host 1, the store", store, holds=store == "reached")
        alone = by_name in OUT_OF_REACH and by_address in OUT_OF_REACH
        self.report.check("from host 1, host 2 by name and by address", f"{by_name}, {by_address}", holds=alone)
        shown = self.cluster.compose("run", "--rm", "--no-deps", "-T", "coordinator", "--help")
        usage = next((line.strip() for line in shown.splitlines() if "Usage:" in line), "nothing")
        self.report.check("the coordinator's own command", usage, holds="treadle" in usage)

    def scale(self, follower: Follower) -> None:
        before = self.cluster.containers("worker1")
        asked_s = time.time()
        self.cluster.up(worker1=HOST1, worker2=HOST2)
        new = [one for one in self.cluster.containers("worker1") if one not in before]
        took = self._at_work(follower, new, asked_s)
        self.report.check(f"host 1 scaled from 1 to {HOST1}: all at work", took, holds=len(new) == HOST1 - 1)

    def stop_one(self, follower: Follower) -> None:
        """`docker stop` of a Worker at work: its items go back at once, and none waits for its lease to lapse."""
        one = self.cluster.containers("worker1")[0]
        follower.until(lambda events: 0.0 if running_on(events, [one]) else None, "the Worker to be stopped is at work")
        held = running_on(tuple(follower.events), [one])
        began, began_s = time.monotonic(), time.time()
        self.cluster.engine.docker("stop", "--time", str(STOP_S), one)
        took_s = time.monotonic() - began
        status = self.cluster.inspected("{{.State.ExitCode}}", one)[0]
        follower.until(lambda events: None if running_on(events, [one]) else 0.0, "its items are given back")
        lapsed = {e.item for e in follower.events if e.kind == "work.lease_lapsed" and e.at_s > began_s} & held
        figure = f"{took_s:.1f} s, status {status}, {len(held)} items given back, {len(lapsed)} lapsed"
        self.report.check("a Worker at work, `docker stop`", figure, holds=status == "0" and not lapsed)

    def kill_host(self, follower: Follower) -> None:
        victims = self.cluster.containers("worker2")
        busy = "each Worker of host 2 is at work"
        follower.until(lambda events: 0.0 if all(running_on(events, [one]) for one in victims) else None, busy)
        killed_s = time.time()
        self.cluster.engine.docker("kill", *victims)
        time.sleep(TTL_S / 3)  # what they said last is still on its way
        held = running_on(tuple(follower.events), victims)
        elsewhere_s = follower.until(
            lambda events: last_of_firsts([first(events, "work.started", after_s=killed_s, item=one) for one in held]),
            "the items of the killed host run elsewhere",
        )
        figure = f"{elsewhere_s - killed_s:.1f} s ({len(held)} items of {len(victims)} Workers; lease TTL {TTL_S:g} s)"
        self.report.check("host 2 killed: its items at work elsewhere", figure, holds=bool(held))
        asked_s = time.time()
        self.cluster.up(worker1=HOST1, worker2=HOST2)
        again = self.cluster.containers("worker2")
        took = self._at_work(follower, again, asked_s)
        self.report.check("host 2 started again: all at work", took, holds=len(again) == HOST2)

    def take_the_store_away(self, follower: Follower) -> None:
        """Kill Redis and remove its container: only the volume is left, and another container goes on from it."""
        killed_s = time.time()
        self.cluster.engine.docker("kill", *self.cluster.containers("redis"))
        self.cluster.compose("rm", "--force", "redis")
        time.sleep(AWAY_S)
        asked_s = time.time()
        self.cluster.up("redis")
        figure = f"{asked_s - killed_s:.1f} s (killed, its container removed, its volume kept)"
        self.report.check("the store away", figure)
        began_s = follower.until(lambda events: first(events, "work.started", after_s=asked_s), "work starts again")
        self.report.check("the store asked for again: work starts", f"{began_s - asked_s:.1f} s")
        result_s = follower.until(lambda events: first(events, "work.submitted", after_s=asked_s), "results come again")
        self.report.check("the store asked for again: a result", f"{result_s - asked_s:.1f} s")

    def all_done_once(self, follower: Follower, again: Follower) -> None:
        events, results = follower.events, follower.results or {}
        wanted = {f"chain-{number}" for number in range(self.items)}
        verified = Counter(event.item for event in events if event.kind == "work.result.accepted")
        submitted = Counter(event.item for event in events if event.kind == "work.submitted")
        once = sum(verified[item] == submitted[item] == 1 for item in wanted)
        only = verified.keys() == results.keys() == wanted
        self.report.check("items done exactly once", f"{once} of {self.items}", holds=once == self.items and only)
        right = sum(results.get(item) == chain_of(item) for item in wanted)
        self.report.check("results equal to a plain computation", f"{right} of {self.items}", holds=right == self.items)
        whole = [event.seq for event in events] == list(range(1, len(events) + 1))
        self.report.check("the log, followed live through all of it", f"Events 1 to {events[-1].seq}", holds=whole)
        same = again.events == events and again.results == results
        self.report.check("the log, read again from its beginning", "the same" if same else "differs", holds=same)
        kinds = Counter(event.kind for event in events)
        given_back = sum(kinds[kind] for kind in ("work.checkpointed", "work.released", "work.requeued"))
        lapsed = kinds["work.lease_lapsed"]
        self.report.check("runs", f"{kinds['work.started']}: {lapsed} lapsed with a lease, {given_back} given back")
        agents = {event.by.rpartition("@")[0] for event in events if event.kind == "work.started"}
        self.report.check("Workers that took part", str(len(agents)))

    def stop_all(self) -> None:
        every = [one for service in ("worker1", "worker2") for one in self.cluster.containers(service)]
        began = time.monotonic()
        self.cluster.compose("stop", "worker1", "worker2")
        took_s = time.monotonic() - began
        statuses = self.cluster.inspected("{{.State.ExitCode}}", *every)
        figure = f"{took_s:.1f} s, statuses {' '.join(statuses)}"
        self.report.check("all Workers stopped", figure, holds=set(statuses) == {"0"})

    def _at_work(self, follower: Follower, containers: list[str], asked_s: float) -> str:
        """How long until each of these containers has started an item."""
        began_s = follower.until(
            lambda events: last_of_firsts(
                [first(events, "work.started", after_s=asked_s, by=one) for one in containers]
            ),
            f"{len(containers)} Workers have each started an item",
        )
        return f"{began_s - asked_s:.1f} s"


def chain_of(item: str) -> str:
    """What the handler must have come to, computed here."""
    value = item
    for number in range(1, STEPS + 1):
        value = hashlib.sha256(f"{value} {number}".encode()).hexdigest()
    return value


def main(description: str) -> int:
    """The exit status: PASSED, BROKEN or SKIPPED."""
    parser = argparse.ArgumentParser(description=description, epilog="deploy/README.md says more.")
    bounds = f"{ITEMS_MIN} to {ITEMS_MAX}"
    parser.add_argument("--items", type=int, default=ITEMS_MIN, help=f"WorkItems of the Mission, {bounds}")
    parser.add_argument("--install", action="store_true", help="get what is missing from Debian's packages, as root")
    given = parser.parse_args()
    if not ITEMS_MIN <= given.items <= ITEMS_MAX:
        parser.error(f"--items: must be {bounds}; fewer would be done before all of it has happened to them")
    # So that a CI's time limit, too, leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    report = Report()
    try:
        with engine(report.say, install=given.install) as found, staged(found, SETTINGS, report.say) as cluster:
            try:
                Trial(cluster, report, given.items).run()
            except (Broken, Failed) as broken:
                report.faults.append(str(broken))
                print(cluster.compose("logs", "--tail", "25", "--no-color"), file=sys.stderr)
    except CannotRun as reason:
        line = "=" * 78
        print(f"\n{line}\nSKIPPED, nothing was tried: {reason}\n{line}", file=sys.stderr)
        return SKIPPED
    except Failed as failed:
        report.faults.append(str(failed))
    print(report.text(), flush=True)
    return BROKEN if report.faults else PASSED
