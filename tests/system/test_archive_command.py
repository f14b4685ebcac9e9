"""`treadle archive` on a real server: written, recorded, read back, and refused where it is not sound."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import anyio
import pytest
from commanding import Commands
from fleet import Desk, Fleet, chain
from treadle.coordinator import WorkSpec
from treadle.coordinator import archiving as files
from treadle.coordinator.commands import archive
from treadle.coordinator.commands.opening import opened
from treadle.shared.settings import Settings
from treadle.shared.store import archiving
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def run(server: EmbeddedServer, tmp_path: Path) -> Commands:
    return Commands(server.url, tmp_path)


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
async def ended(desk: Desk, fleet: Fleet) -> str:
    await fleet.ready(fleet.start())
    mission = await desk.submit("m/1 日本", chain("a", steps=1, step_s=0.01), chain("b", steps=1, step_s=0.01))
    await mission.results(timeout=20)
    return mission.id


async def test_an_ended_mission_is_written_once_verified_and_shown(
    run: Commands, desk: Desk, ended: str, tmp_path: Path
) -> None:
    await desk.submit("running", WorkSpec(id="a", capability="nobody"))
    to = tmp_path / "archive"
    to.mkdir()
    said = run("archive", "--to", str(to), "--json").document()
    (path,) = files_in(to)
    assert (said["mission"], said["file"], said["items"], said["error"]) == (ended, str(path), 2, None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "no Mission has ended that has no archive yet" in run("archive", "--to", str(to)).stderr
    again = run("archive", ended, "--to", str(to), "--json").document()
    assert (again["sha256"], files_in(to)) == (said["sha256"], [path]), "its file is there and is sound"
    sound = run("archive", "--verify", str(path), "--json").document()
    assert (sound["mission"], sound["state"], sound["sha256"]) == (ended, "approved", said["sha256"])
    assert sound["replayed"] is True
    shown = run("archive", "--read", str(path)).stdout
    assert "its Events, replayed, give what its records say: approved; 2 verified" in shown
    assert "sound" in shown
    assert "a     verified" in shown
    kinds = [next(iter(json.loads(line))) for line in run("archive", "--read", str(path), "--json").stdout.splitlines()]
    assert kinds == ["header", "mission", *["event"] * sound["events"], "item", "item", "end"]
    assert "is active; only one that has ended" in run("archive", "running", "--to", str(to), status=1).stderr


async def test_a_file_that_a_killed_run_left_is_made_up_for(
    run: Commands, desk: Desk, ended: str, tmp_path: Path
) -> None:
    """Killed while it wrote, or between its name and its record."""
    (view,) = await archiving.unarchived(desk.store, most=10)
    path = files.path_of(tmp_path, view)
    (tmp_path / f".{path.name}.part").write_bytes(b"half")
    path.write_bytes(gzip.compress(b'{"header"'))
    run("archive", "--to", str(tmp_path))
    assert not (tmp_path / f".{path.name}.part").exists()
    before = run("archive", "--verify", str(path)).stdout
    await desk.store.run(
        lambda client: client.hdel(desk.store.base(view.partition) + f"{view.group}:mission", "archive")
    )
    run("archive", ended, "--to", str(tmp_path))
    assert run("archive", "--verify", str(path)).stdout != before, "the log has gone on: it has an Event more"


async def test_a_file_that_is_not_sound_is_refused_with_its_place(run: Commands, ended: str, tmp_path: Path) -> None:
    run("archive", "--to", str(tmp_path))
    (path,) = files_in(tmp_path)
    raw = path.read_bytes()
    lines = gzip.decompress(raw).splitlines(keepends=True)
    cases = {
        raw[: len(raw) // 2]: "it is cut or altered",
        gzip.compress(b"".join(lines[:-1])): f"line {len(lines) - 1}: it is cut: it ends after sequence",
        gzip.compress(b"".join([lines[0].replace(b'"schema":1', b'"schema":2'), *lines[1:]])): "it has schema 2",
        b"no gzip": "it is cut or altered",
    }
    for content, said in cases.items():
        path.write_bytes(content)
        for how in ("--verify", "--read"):
            ran = run("archive", how, str(path), status=1)
            assert said in ran.stderr
            assert ran.stdout == ""
    del ended


async def test_what_cannot_be_asked_together_is_refused(run: Commands, tmp_path: Path) -> None:
    assert "--to DIR" in run("archive", status=2).stderr
    assert "is no folder" in run("archive", "--to", str(tmp_path / "no"), status=2).stderr
    assert "nothing else with it" in run("archive", "m", "--read", "f", status=2).stderr
    assert "cannot be read" in run("archive", "--verify", str(tmp_path / "no"), status=2).stderr
    assert run("archive", "--require", "--json").document() == {"required": True, "changed": True}
    assert run("archive", "--require", "--json").document() == {"required": True, "changed": False}
    assert run("archive", "--no-require").stdout == "ended Missions go when their time is over\n"
    assert "is not in this store" in run("archive", "absent", "--to", str(tmp_path), status=1).stderr


async def test_who_follows_writes_what_ends_later(
    desk: Desk, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archive, "FOLLOW_S", 0.05)
    async with anyio.create_task_group() as group, opened(Settings(url=desk.url)) as store:
        group.start_soon(partial(archive.write, store, tmp_path, (), follow=True, as_json=True))
        with anyio.fail_after(20):
            while len(files_in(tmp_path)) < 1:  # noqa: ASYNC110 - a folder sets no event
                await anyio.sleep(0.02)
            later = await desk.submit("later", chain("a", steps=1, step_s=0.01))
            await later.results(timeout=20)
            while len([path for path in files_in(tmp_path) if path.suffix == ".gz"]) < 2:  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.02)
        group.cancel_scope.cancel()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["mission"] for one in said] in ([ended, "later"], [ended])
    assert all(one["error"] is None for one in said)
