"""Pause, resume and schedules on a real server: what is said of them, and that it is so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_new_item, a_new_mission
from commanding import Commands
from fleet import Desk, Fleet, chain, until
from treadle.shared.names import token
from treadle.shared.schedules import Cron, Interval, NewSchedule, ScheduleId
from treadle.shared.store import timetable
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


async def test_pause_and_resume_say_what_is_paused_since_when_by_whom(run: Commands, desk: Desk, fleet: Fleet) -> None:
    await desk.submit("m", chain("a", steps=1, step_s=0.01), account="acme")
    assert "nothing is paused" in run("pause").stderr
    assert run("pause", "account:acme").stdout.splitlines()[0] == "account:acme: paused"
    assert run("pause", "account:acme").stdout.splitlines()[0] == "account:acme: was paused before"
    gate, *_ = run("why", "m/a", "--json").document()["gates"]
    assert (gate["code"], gate["change"]) == ("PAUSED", "`treadle resume account:acme`")
    (one,) = run("pause", "--json").document()["paused"]
    assert one["what"] == "account:acme"
    assert one["actor"]
    (group,) = run("groups", "--json").document()["groups"]
    assert group["state"] == "paused"
    await fleet.ready(fleet.start())
    said = run("resume", "account:acme", "--json").document()
    assert (said["changed"], said["paused"]) == (True, [])
    await until(lambda: fleet.lines("a", "return"), description="it runs when it is resumed")
    assert run("resume", "account:acme").stdout == "account:acme: was not paused\n"
    assert "write all, account:acme, capability:acme or mission:acme" in run("pause", "acme", status=2).stderr
    assert "there is no such Mission in this store" in run("pause", "mission:absent", status=1).stderr


async def test_schedules_are_listed_and_deleted(run: Commands, desk: Desk) -> None:
    assert "no schedule" in run("schedules").stderr
    mission = replace(a_new_mission("jobs:acme"), items=(), open=True)
    group = (await desk.store.create(mission)).group
    for name, spec in (("nightly 日", Cron("0 3 * * *", "Europe/Berlin")), ("often", Interval(90_000))):
        schedule = ScheduleId(token(name, field="schedule"))
        await timetable.schedule(desk.store, NewSchedule(schedule, group, "ann", spec, a_new_item("tick")))
    one, two = run("schedules", "--json").document()["schedules"]
    assert (one["mission"], one["schedule"], one["when"]) == ("jobs:acme", "nightly 日", "0 3 * * * (Europe/Berlin)")
    assert (two["when"], two["fired"], two["last_ms"]) == ("every 1 min 30 s", 0, None)
    shown = run("schedules").stdout
    assert "nightly 日" in shown
    assert "every 1 min 30 s" in shown
    assert run("schedules", "--mission", "other", "--json").document()["schedules"] == []
    assert run("unschedule", "jobs:acme/nightly 日").stdout == "jobs:acme/nightly 日: deleted\n"
    again = run("unschedule", "jobs:acme/nightly 日", status=1)
    assert '"jobs:acme/nightly 日" is no schedule of this store' in again.stderr
