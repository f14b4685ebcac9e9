"""What nobody is to read: secrets of payloads in logs and tables, a store's password anywhere at all (BR-95).

In part: there is no page to show anything on. What a handler writes to its log itself is hidden only where it is a
credential; what an exception says of its inputs, where their names say that they are secret.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from commanding import Ran, run
from fleet import Desk, Fleet, until
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.coordinator.cli import app
from treadle.shared.errors import TreadleError
from treadle.shared.settings import Settings
from treadle.shared.store import RedisEndpoint, Store
from treadle.shared.store.embedded import EmbeddedServer
from typer.main import get_group

pytestmark = pytest.mark.slow

PASSWORD, WRONG = "hunter2", "hunter3"
SECRETS = {"password": "open-sesame", "token": "tok-4711", "e_mail": "ann@example.org"}
HANDLERS = """
from dataclasses import dataclass
from treadle.worker import Blocked, handler

@dataclass
class Login:
    password: int
    token: int
    e_mail: str

@handler("secret.kept")
async def kept(context, inputs):
    await context.checkpoint(inputs)
    return inputs

@handler("secret.misfit", inputs=Login)
async def misfit(context, inputs):
    return None

@handler("secret.refused")
async def refused(context, inputs):
    await context.checkpoint({"all": [inputs] * 400_000})

@handler("secret.raised")
def raised(context, inputs):
    given = dict(inputs)
    cause = KeyError(inputs["token"])
    raise ValueError(f"it cannot be used: {given} at https://ann:hunter2@example.org/?q={inputs['e_mail']}") from cause

@handler("secret.blocked")
async def blocked(context, inputs):
    if context.resolution is None:
        raise Blocked(f"somebody must look at {inputs['password']}")
"""


def assert_hidden(text: str, *secrets: str) -> None:
    for secret in secrets:
        at = text.find(secret)
        assert at < 0, f"{secret!r} is in it: ...{text[max(0, at - 200) : at + 50]}"


async def test_br_95_secrets_of_a_payload_are_in_no_log_no_table_and_no_event(
    fleet: Fleet, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    (fleet.folder / "secretive.py").write_text(HANDLERS)
    worker = fleet.start(arguments=("--handlers", "secretive", "--log-level", "debug"))
    work = [
        WorkSpec(id=what, capability=f"secret.{what}", inputs=SECRETS, retry=0)
        for what in ("kept", "misfit", "refused", "raised", "blocked")
    ]
    with caplog.at_level(logging.INFO):
        mission = await desk.submit("m", *work)

        async def has_ended() -> bool:
            return (await mission.view()).failed == 3 and worker.said("m/blocked: blocked")

        await until(has_ended, description="all have ended", of=(worker,))
        await mission.unblock("blocked", {"go": "on"})
        with pytest.raises(TreadleError) as failed:
            await mission.results(timeout=30)
    assert worker.said(r"it cannot be used: .*\*\*\*.* at https://\*\*\*@example.org"), worker.tail()
    assert worker.said("somebody must look at \\*\\*\\*"), worker.tail()
    for what in ("misfit", "refused", "raised"):
        assert worker.said(f"m/{what}: failed"), worker.tail()
    said = [worker.log_text(), caplog.text, "".join(traceback.format_exception(failed.value))]
    for command in ("missions", "workers", "groups --all", "why m/misfit", "watch m", "parked", "schedules", "doctor"):
        for form in ([], ["--json"]):
            ran = run(*command.split(), *form, folder=fleet.folder, environment={"TREADLE_URL": desk.url})
            said += [ran.stdout, ran.stderr]
    with redis.Redis.from_url(desk.url) as client:
        log = f"{desk.store.base(mission.receipt.partition)}{mission.group}:log"  # type: ignore[union-attr]
        events = client.xrange(log)
        assert events
        said += [str(events)]
    for text in said:
        assert_hidden(text, *SECRETS.values(), PASSWORD)


@pytest.fixture
def locked(server: EmbeddedServer) -> Iterator[str]:
    """The URL, password and all, of a server that wants one."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", PASSWORD)
    url = server.url.replace("unix://", f"unix://:{PASSWORD}@")
    yield url
    with redis.Redis.from_url(url) as client:
        client.config_set("requirepass", "")


ARGUMENTS = {
    "demo": ["--path", "/nowhere"],
    "submit": ["m.json"],
    "enqueue": ["index", "--key", "k"],
    "watch": ["m", "--timeout", "0"],
    "why": ["m/a"],
    "cancel": ["m/a"],
    "retry": ["m/a"],
    "requeue": ["--dry-run"],
    "pause": ["account:acme"],
    "resume": ["account:acme"],
    "unschedule": ["m", "nightly"],
    "offer": ["m/a"],
    "unblock": ["m/a"],
    "revoke": ["one", "--mission", "m"],
    "admit": ["one", "--mission", "m"],
    "snapshot": ["m"],
    "replay": ["m"],
    "verify": ["m"],
    "repair": ["m", "--yes"],
    "archive": ["--to", "archive"],
    "new-incarnation": ["--yes"],
}
COMMANDS = sorted(get_group(app).commands)


def commanded(folder: Path, url: str, *arguments: str) -> Ran:
    return run(*arguments, folder=folder, environment={"TREADLE_URL": url})


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "up"])
def test_br_95_no_command_shows_the_password_of_its_store_whatever_it_says(
    command: str, locked: str, tmp_path: Path
) -> None:
    """`--help`, an answer, a password that is wrong, a server that is not there, an option that is none."""
    item = {"id": "a", "capability": "index", "inputs": {}}
    (tmp_path / "m.json").write_text(json.dumps({"id": "m", "objective": "o", "work": [item]}))
    given = ARGUMENTS.get(command, [])
    gone = f"redis://user:{PASSWORD}@127.0.0.1:1/0"
    bad = f"redis://:{PASSWORD}@127.0.0.1:port/x?password={PASSWORD}"
    assert commanded(tmp_path, locked, command, "--help").status == 0
    for arguments in (
        [command, "--help"],
        [command, *given],
        [command, *given, "--no-such-option"],
        *([] if command == "demo" else [[command, *given, "--url", url] for url in (locked, gone, bad)]),
    ):
        for url in (locked, locked.replace(PASSWORD, WRONG), gone, bad):
            ran = commanded(tmp_path, url, *arguments)
            assert_hidden(ran.stdout + ran.stderr, PASSWORD, WRONG)


def test_br_95_no_process_shows_the_password_of_its_store_in_a_traceback_or_a_debug_log(
    locked: str, tmp_path: Path
) -> None:
    (tmp_path / "secretive.py").write_text(HANDLERS)
    python = [sys.executable, "-X", "dev", "-m"]
    worker = [*python, "treadle.worker.cli", "run", "--handlers", "secretive", "--log-level", "debug"]
    ask = [*python, "treadle.coordinator.cli", "missions"]
    wrong, gone = locked.replace(PASSWORD, WRONG), f"redis://user:{PASSWORD}@127.0.0.1:1/0"
    started = [
        subprocess.Popen(
            argv, cwd=tmp_path, env={"TREADLE_URL": url}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for argv, url in ((worker, wrong), ([*worker, "--url", gone], ""), (ask, wrong), (ask, gone))
    ]
    try:
        for process in started:
            said, _ = process.communicate(timeout=40)
            assert process.returncode == 2, said
            assert_hidden(said, PASSWORD, WRONG)
    finally:
        for process in started:
            process.kill()
            process.communicate()


async def test_br_95_a_worker_and_a_client_at_work_never_name_the_password_of_their_store(
    locked: str, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = place / "fleet"
    folder.mkdir()
    (folder / "secretive.py").write_text(HANDLERS)
    said: list[Any] = [Settings(url=locked)]
    with caplog.at_level(logging.DEBUG), Fleet(locked, folder) as fleet:
        worker = fleet.start(arguments=("--handlers", "secretive", "--log-level", "debug"))
        async with Client.connect(locked, actor="ann") as client:
            work = WorkSpec(id="a", capability="secret.kept", inputs={"n": 1})
            mission = await client.submit(MissionSpec(id="m", objective="o", work=[work]))
            assert await mission.results(timeout=30) == {"a": {"n": 1}}, fleet.tell()
            said += [client, mission, vars(client)]
        store = await Store.connect(locked)
        said += [store, store.endpoint, RedisEndpoint(locked), vars(store)]
        await store.aclose()
        for wrong in (locked.replace(PASSWORD, WRONG), f"redis://:{PASSWORD}@127.0.0.1:1/0"):
            with pytest.raises(TreadleError) as refused:
                await Store.connect(wrong)
            said += ["".join(traceback.TracebackException.from_exception(refused.value, capture_locals=False).format())]
    said += [worker.log_text(), caplog.text]
    for one in said:
        assert_hidden(f"{one} {one!r}", PASSWORD, WRONG)
