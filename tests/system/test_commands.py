"""The commands of `treadle` on a real server: what people see, what programs read, and what is refused, how."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import redis
from commanding import Commands
from fleet import Desk, Fleet, chain, sleeper, until
from treadle.coordinator.cli import app
from treadle.shared.damage import Damage
from treadle.shared.disclosure import Disclosure
from treadle.shared.progress import Said
from treadle.shared.store.embedded import EmbeddedServer
from typer.testing import CliRunner

pytestmark = pytest.mark.slow
CLI = [sys.executable, "-m", "treadle.coordinator.cli"]
GONE = "unix:///tmp/treadle-nobody-listens-here.sock"
UNTOLD = {"said_ms", "unlogged"}
"""Of what a run said, what `treadle why` alone says."""
NAME = "\u65e5\u672c\u8a9e \U0001f600 \u05e9\u05dc\u05d5\u05dd \x1b[31m\u202e[b]x[/b]"


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


def keys_of(value: object) -> set[str]:
    """Every key in a document, however deep."""
    if isinstance(value, dict):
        return {*value, *(key for inner in value.values() for key in keys_of(inner))}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


def documented(command: str) -> set[str]:
    """The keys that `--help` names for `--json`."""
    said = (
        CliRunner()
        .invoke(app, [command, "--help"])
        .output.partition("--json")[2]
        .partition("Options:")[0]
        .partition("Arguments:")[0]
    )
    kinds = {"progress", "run", "store", "gone"} if command == "watch" else set[str]()
    return set(re.findall(r'"(\w+)"', said)) - kinds


def mission(id: str, *work: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"id": id, "objective": f"test {id}", "work": list(work)} | fields)


def item(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "capability": "fleet.chain", "inputs": {"steps": 1, "pace_s": 0.01, "again_s": 0.01}} | fields


async def test_a_mission_file_is_submitted_watched_and_listed(run: Commands, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(mission(NAME, item("a"), item("b", after=["a"]), account="acme"))
    ran = run("submit", "m.json")
    assert ran.stdout.startswith("mission 日本語 😀 שלום \\x1b[31m\\u202e[b]x[/b]: submitted, 2 items")
    assert "NO_WORKER: no live Worker offers fleet.chain" in ran.stderr
    assert json.loads(run("submit", "m.json", "--json").stdout) == {
        **{
            "mission": NAME,
            "items": 2,
            "repeated": True,
            "no_worker": ["fleet.chain"],
            "unschedulable": {},
            "lacking": {},
        },
        "created_ms": json.loads(run("missions", "--json").stdout)["missions"][0]["created_ms"],
    }
    gates = json.loads(run("why", f"{NAME}/b", "--json").stdout)
    assert [gate["code"] for gate in gates["gates"]] == ["DEPENDENCY", "NO_WORKER"]
    await fleet.ready(fleet.start("w-1"))
    watched = run("watch", NAME)
    assert "approved  2/2 verified, 0 running, 0 waiting, 0 failed" in watched.stdout.splitlines()[-1]
    rows = run("missions").stdout.splitlines()
    assert rows[0].split() == ["MISSION", "STATE", "ACCOUNT", "VERIFIED", "RUNNING", "FAILED", "AGE", "OBJECTIVE"]
    assert "approved" in rows[1]
    assert "[b]x[/b]" in rows[1]
    (worker,) = json.loads(run("workers", "--json").stdout)["workers"]
    assert (worker["worker"], worker["state"], worker["load"]) == ("w-1", "live", "idle")
    assert "w-1" in run("workers").stdout
    assert json.loads(run("why", f"{NAME}/b", "--json").stdout)["gates"][0]["code"] == "VERIFIED"


async def test_json_has_just_the_keys_that_help_names(run: Commands, fleet: Fleet, desk: Desk) -> None:
    await fleet.ready(fleet.start(slots=1))
    await desk.submit("m", chain("a", steps=1, step_s=0.01))
    bad = mission("bad", item("a", inputs={"steps": "none"}, retry=0))
    answers = {
        "submit": run("submit", "-", "--wait", "--json", stdin=bad, status=1),
        "missions": run("missions", "--json"),
        "workers": run("workers", "--json"),
        "groups": run("groups", "--all", "--json"),
        "why": run("why", "m/a", "--json"),
        "doctor": run("doctor", "--json"),
    }
    found = run("results", "m", "a", "--json").document()
    assert found.keys() | {"results"} == documented("results")
    # Null, or not there, of an item that is sound and ran for less than a second.
    said = {field.name for field in fields(Said)}
    unsaid = {
        "why": said | {field.name for told in (Disclosure, Damage) for field in fields(told)},
        "missions": {*(said - UNTOLD), "item", "attempt", "worker", "started_ms"},
    }
    for command, ran in answers.items():
        kept_out = unsaid.get(command, set[str]())
        assert keys_of(json.loads(ran.stdout)) | kept_out == documented(command), command
    lines = [json.loads(line) for line in run("watch", "m", "--json").stdout.splitlines()]
    of_runs = {"item", "attempt", "worker", "started_ms", *(said - UNTOLD - {"total"})}
    assert keys_of(lines) == documented("watch") - {"answers", *of_runs}


async def test_a_watch_into_a_pipe_says_what_runs_and_once_is_a_snapshot(
    run: Commands, fleet: Fleet, desk: Desk
) -> None:
    await desk.submit("m", chain("a", steps=1_000, step_s=0.05), chain("b"))
    looked = run("watch", "m", "--once").stdout.splitlines()
    assert looked == [
        "m  active  0/2 verified, 0 running, 2 waiting, 0 failed",
        "no live Worker: `treadle-worker run --handlers MODULE` starts one",
    ]
    await fleet.ready(fleet.start("w-1", slots=1))
    await until(lambda: fleet.lines("a", "step"), description="it runs")
    looked = run("watch", "--once").stdout.splitlines()
    assert [line.partition("  ")[0] for line in looked] == ["m", "m/a"]
    assert re.fullmatch(r"m/a  runs since \S+ \S+ on w-1", looked[1])
    (said,) = [
        one for one in map(json.loads, run("watch", "m", "--once", "--json").stdout.splitlines()) if "item" in one
    ]
    assert (said["kind"], said["item"], said["attempt"], said["worker"], said["done"]) == ("run", "a", 1, "w-1", None)
    followed = run("watch", "m", "--timeout", "3", status=1).stdout.splitlines()
    assert len([line for line in followed if line.startswith("m/a  runs since ")]) == 1
    run("watch", "none", "--once", status=1)
    assert "--once: looks once" in run("watch", "m", "--once", "--stay", status=2).stderr
    run("cancel", "m")
    assert run("watch", "m", "--once", status=1).stdout.startswith("m  cancelled  ")


async def test_submit_waits_and_says_how_it_ended(run: Commands, fleet: Fleet) -> None:
    await fleet.ready(fleet.start())
    ran = run("submit", "-", "--wait", "--json", stdin=mission("good", item("a")))
    said = json.loads(ran.stdout)
    assert (said["state"], said["verified"], said["timed_out"], said["failures"]) == ("approved", 1, False, [])
    bad = mission("bad", item("a", inputs={"steps": "none"}, retry=0))
    said = json.loads(run("submit", "-", "--wait", "--json", stdin=bad, status=1).stdout)
    assert (said["state"], said["failed"]) == ("failed", 1)
    (failure,) = said["failures"]
    assert failure["item"] == "a"
    assert failure["type"]
    assert "failed: a: " in run("submit", "-", "--wait", stdin=bad, status=1).stderr
    slow = mission("slow", item("a", capability="nobody.has.it"))
    ran = run("submit", "-", "--wait", "--timeout", "0.7", stdin=slow, status=1)
    assert "not ended within 0.7 s; it goes on: treadle watch slow" in ran.stderr


async def test_results_are_printed_for_people_and_programs(run: Commands, fleet: Fleet) -> None:
    await fleet.ready(fleet.start())
    run("submit", "-", "--wait", stdin=mission("m", item("a"), item("b", after=["a"])))
    said = run("results", "m", "--json").document()
    assert (said["mission"], list(said["results"])) == ("m", ["a", "b"])
    assert run("results", "m").stdout.splitlines()[0] == f"a  {json.dumps(said['results']['a'])}"
    assert json.loads(run("results", "m", "b").stdout) == said["results"]["b"]
    one = run("results", "m", "b", "--json").document()
    assert one == {"mission": "m", "item": "b", "result": said["results"]["b"]}
    run("submit", "-", "--wait", stdin=mission("bad", item("a", inputs={"steps": "none"}, retry=0)), status=1)
    assert "bad" in run("results", "bad", status=1).stderr
    assert "is failed: treadle why says more" in run("results", "bad", "a", status=1).stderr
    run("submit", "-", stdin=mission("slow", item("a", capability="nobody.has.it")))
    assert "has not ended" in run("results", "slow", "--timeout", "0.2", status=1).stderr
    assert "not in this store" in run("results", "m", "c", status=1).stderr


async def test_a_job_is_enqueued_waited_for_and_done_once(run: Commands, fleet: Fleet) -> None:
    said = run("enqueue", "fleet.chain", "--account", "acme", "--key", "k/1", "--json").document()
    assert said == {
        **{"job": "k/1", "mission": "jobs:acme", "address": "jobs:acme/k/1", "repeated": False},
        **{"no_worker": ["fleet.chain"], "unschedulable": {}, "lacking": {}},
    }
    assert run("enqueue", "fleet.chain", "--account", "acme", "--key", "k/1", "--json").document()["repeated"] is True
    gates = run("why", "jobs:acme/k/1", "--json").document()
    assert (gates["mission"], gates["item"], gates["gates"][0]["code"]) == ("jobs:acme", "k/1", "NO_WORKER")
    ran = run("enqueue", "fleet.chain", "--wait", "--timeout", "0.5", status=1)
    assert "has not ended within 0.5 s" in ran.stderr
    await fleet.ready(fleet.start())
    inputs = '{"steps": 1, "pace_s": 0.01, "again_s": 0.01}'
    ran = run("enqueue", "fleet.chain", "--inputs", inputs, "--wait")
    assert json.loads(ran.stdout), "its result"
    assert ran.stderr.startswith("jobs:")
    (fleet.folder / "bad.json").write_text('{"steps": "none"}')
    ran = run("enqueue", "fleet.chain", "--inputs", f"@{fleet.folder}/bad.json", "--retry", "0", "--wait", status=1)
    assert "treadle: job " in ran.stderr
    assert ran.stdout == ""
    later = run("enqueue", "fleet.chain", "--inputs", "@-", "--not-before", "+1h", "--json", stdin=inputs).document()
    assert run("why", later["address"], "--json").document()["gates"][0]["code"] == "NOT_BEFORE"


async def test_groups_show_shares_and_why_shows_capacity(run: Commands, fleet: Fleet, desk: Desk) -> None:
    await fleet.ready(fleet.start(slots=1))
    await desk.submit("m", sleeper("a", 30), sleeper("b", 30), account="acme", weight=2.0)
    await until(lambda: fleet.lines(what="begin"), description="one of them runs")
    (group,) = json.loads(run("groups", "--json").stdout)["groups"]
    assert (group["mission"], group["takeable"], group["running"], group["due"]) == ("m", 1, 1, 1.0)
    assert (group["weight"], group["attainable"], group["share"]) == (2.0, 1.0, 1.0)
    lately = run("groups", "--over", "0.1", "--json").document()
    assert (lately["over_s"], lately["groups"][0]["share"]) == (0.1, 1.0)
    assert run("workers", "--json").document()["workers"][0]["load"] == "busy"
    codes = {gate["code"] for name in "ab" for gate in json.loads(run("why", f"m/{name}", "--json").stdout)["gates"]}
    assert "RUNNING" in codes
    assert codes <= {"RUNNING", "NEXT", "CAPACITY"}


async def test_a_hundred_thousand_items_are_read_and_what_is_wrong_with_one_is_found(run: Commands) -> None:
    work = [item(f"i{number}") for number in range(100_000)]
    work[99_998]["colour"] = "red"
    text = json.dumps({"id": "m", "objective": "o", "work": work}, indent=0)
    line = text.count("\n", 0, text.index('"colour"')) + 1
    ran = run("submit", "-", stdin=text, status=2)
    assert f'standard input: line {line}: work[99998] (id "i99998"): colour: is not a field' in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "saying"),
    [
        (["submit", "absent.toml"], 2, "absent.toml: cannot be read (No such file or directory); name a TOML or JSON"),
        (["submit", "."], 2, "cannot be read"),
        (["submit", "-", "--timeout", "3"], 2, "--timeout: goes with --wait"),
        (["submit", "-", "--wait", "--timeout", "nan"], 2, "must be a number of seconds from 0 to "),
        (["submit", "-"], 2, "standard input: line 1: objective: is required; work: is required"),
        (["enqueue", "A B"], 2, "is not a capability name"),
        (["enqueue", "a", "--inputs", "[1]"], 2, "--inputs: holds a list, must be an object"),
        (["enqueue", "a", "--inputs", "{"], 2, "--inputs: is no JSON"),
        (["enqueue", "a", "--inputs", "@absent"], 2, "--inputs: absent: cannot be read (No such file"),
        (["enqueue", "a", "--not-before", "soon"], 2, '--not-before: "soon" is no moment; write +90s'),
        (["enqueue", "a", "--retry", "101"], 2, "must be a whole number from 0 to 100"),
        (["watch", "absent"], 1, 'mission "absent" is not in this store; check its id'),
        (["watch", ""], 2, "MISSION: 0 bytes, must be 1 to 256"),
        (["why", "absent/a"], 1, 'mission of "absent/a" is not in this store; check its id'),
        (["why", "absent"], 2, "is no address of a WorkItem; write MISSION/ITEM"),
        (["missions", "--state", "odd"], 2, "odd"),
        (["missions", "--most", "0"], 2, "must be a whole number from 1 to "),
        (["missions", "--url", "http://a:secret@b"], 2, "must be redis://, rediss:// or unix://"),
        (["missions", "--prefix", "a:b"], 2, "TREADLE_PREFIX"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_what_cannot_be_done_as_asked_is_said_in_a_sentence(
    arguments: list[str], status: int, saying: str, run: Commands
) -> None:
    ran = run(*arguments, status=status, stdin="")
    assert saying in " ".join(ran.stderr.split())
    assert ran.stdout == ""
    assert "secret" not in ran.stderr


@pytest.mark.parametrize("command", [["missions"], ["workers"], ["groups"], ["watch"], ["why", "m/a"], ["submit", "-"]])
@pytest.mark.parametrize("url", [GONE, "redis://user:secret@127.0.0.1:1/0"])
def test_a_server_out_of_reach_is_named_without_its_password(command: list[str], url: str, run: Commands) -> None:
    ran = run(*command, "--url", url, status=2, stdin=mission("m", item("a")))
    assert ran.stderr.startswith("treadle: --url or TREADLE_URL: store ")
    assert "start that server or name another" in ran.stderr
    assert "secret" not in ran.stderr


def test_a_wrong_password_is_said_and_never_shown(server: EmbeddedServer, run: Commands) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "right-secret")
    for url in (server.url, server.url + "&password=wrong-secret"):
        ran = run("missions", "--url", url, status=2)
        assert "access denied" in ran.stderr
        assert "check user and password in TREADLE_URL" in ran.stderr
        ran = run("doctor", "--url", url, status=1)
        assert "secret" not in ran.stdout + ran.stderr


def test_doctor_says_what_is_wrong_with_a_server_and_what_to_do(server: EmbeddedServer, run: Commands) -> None:
    said = json.loads(run("doctor", "--json").stdout)
    assert said["verdict"] == "OK"
    assert {one["verdict"] for one in said["checks"]} == {"OK"}
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
        client.config_set("stream-node-max-bytes", 4096)
    ran = run("doctor", status=1)
    checks = {line.split()[0]: line.split() for line in ran.stdout.splitlines() if not line.startswith(" ")}
    assert checks["eviction"][1:] == ["FAIL", "allkeys-lru"]
    assert checks["persistence"][1] == "FAIL"
    assert "-> CONFIG SET maxmemory-policy noeviction" in ran.stdout
    assert "WARN" in ran.stdout
    said = json.loads(run("doctor", "--json", "--url", GONE, status=1).stdout)
    assert [one["check"] for one in said["checks"]] == ["connection"]


def test_up_gives_a_server_until_it_is_told_to_end(place: Path) -> None:
    argv = [*CLI, "up"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        line = child.stdout.readline()
        assert line.startswith("export TREADLE_URL=")
        (_, url) = shlex.split(line)
        with redis.Redis.from_url(url.partition("=")[2]) as client:
            assert client.ping()
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 0
        assert "treadle submit FILE" in child.stderr.read()
        assert child.stdout.read() == ""


def test_up_says_where_its_server_ends_by_itself(place: Path) -> None:
    argv = [*CLI, "up", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        os.kill(json.loads(child.stdout.readline())["pid"], signal.SIGKILL)
        assert child.wait(10) == 2
        said = child.stderr.read()
        assert said.startswith("treadle: embedded server: it has ended by itself")
        assert "Traceback" not in said


async def test_a_watch_survives_a_server_that_goes_away_in_the_middle(
    server: EmbeddedServer, fleet: Fleet, desk: Desk
) -> None:
    await desk.submit("m", chain("a", steps=150, step_s=0.1))
    await fleet.ready(fleet.start())
    child, log = fleet.run([*CLI, "watch", "--json"])

    def said() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    try:
        await until(lambda: any(one.get("running") for one in said()), description="it is seen to run")
        server.kill()
        await until(lambda: said()[-1]["kind"] == "store", description="the watch says that the store is away")
        assert said()[-1]["answers"] is False
        server.restart()
        await until(lambda: child.poll() is not None, description="the watch ends with the Mission", timeout_s=40)
        assert child.wait(1) == 0
        assert [one["answers"] for one in said() if one["kind"] == "store"] == [False, True]
        assert said()[-1]["state"] == "approved"
    finally:
        child.stop(grace_s=1)
