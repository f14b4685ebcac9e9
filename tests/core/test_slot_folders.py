"""The folder of a Worker is its own, each run has one in it, and what a dead Worker left is removed by the next."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import wait_until
from treadle.shared import keeper, processes
from treadle.shared.errors import Misuse
from treadle.shared.processes import Life
from treadle.worker.slots.folders import Folders, sweep


def test_a_run_has_an_empty_folder_that_nobody_else_may_read(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    one, other = folders.new(), folders.new()
    assert one != other
    for folder in (folders.root, one, other):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(one.iterdir()) == []
    (one / "kept from its owner").mkdir(mode=0)
    (one / "elsewhere").symlink_to(tmp_path)
    folders.remove(one)
    assert not one.exists()
    folders.close()
    folders.close()
    assert list(tmp_path.iterdir()) == []


LEFT = """
import signal, subprocess, sys
from pathlib import Path
from treadle.worker.slots.folders import Folders
folders = Folders(Path(sys.argv[1]))
HARM
folders.new()
argv = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
child = subprocess.Popen(argv, env={"TREADLE_SLOT": folders.mark + "0."})
print(child.pid, flush=True)
signal.pause()
"""


HARMS = {
    "nothing": "",
    "its root": "import shutil; shutil.rmtree(folders.root)",
    "what tells its owner": "(folders.root / 'owner').unlink()",
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_a_dead_worker_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path, harm: str) -> None:
    """Also where what clears old files away has taken some of it meanwhile."""
    mine = Folders(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", LEFT.replace("HARM", HARMS[harm]), str(tmp_path)], stdout=subprocess.PIPE
    ) as dead:
        assert dead.stdout is not None
        child = processes.identity(int(dead.stdout.readline()))
        assert child is not None
        assert sweep(tmp_path) == []
        dead.send_signal(signal.SIGKILL)
    (swept,) = sweep(tmp_path)
    assert not swept.exists()
    assert mine.root.exists()
    # What was killed has lost its environment, by which it is found, a moment before it counts as ended.
    wait_until(lambda: processes.life_of(child) is Life.GONE, description="it has ended")
    mine.close()


def test_what_is_no_root_of_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "treadle-slots-other").mkdir()
    (tmp_path / "treadle-slots-file").touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / "owner").touch()
    (tmp_path / "treadle-slots-link").symlink_to(target)
    assert sweep(tmp_path) == []
    assert target.exists()


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"TREADLE_SLOT_DIR: '.*/none': no folder .* \(No such file or directory\)"):
        Folders(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    assert keeper.remove(str(tmp_path / "none"))


def test_where_a_root_is_half_made_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fcntl, "flock", full)
    with pytest.raises(Misuse, match="No space left on device"):
        Folders(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_has_put_in_the_place_of_a_root_is_not_used(tmp_path: Path) -> None:
    folders = Folders(tmp_path / ".")
    folders.remove(folders.root)
    (tmp_path / "target").mkdir()
    folders.root.symlink_to(tmp_path / "target")
    with pytest.raises(PermissionError, match=r"somebody else has put another in the place of it: '.*treadle-slots-"):
        folders.new()
    folders.close()
    assert [one.name for one in tmp_path.iterdir()] == ["target"]


def test_a_folder_is_removed_however_deep_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Folders(tmp_path)
    folder = folders.new()
    monkeypatch.chdir(folder)
    for _ in range(1_500):
        Path("file").touch()
        Path("d").mkdir()
        os.chdir("d")
    monkeypatch.undo()
    folders.remove(folder)
    assert not folder.exists()
    folders.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folder, target = folders.new(), tmp_path / "target"
    (target / "kept").mkdir(parents=True)
    (target / "kept").chmod(0o755)
    folder.rmdir()
    folder.symlink_to(target)
    folders.remove(folder)
    assert not folder.is_symlink()
    assert (target / "kept").stat().st_mode & 0o777 == 0o755
    folders.close()
