"""The demo's handlers give what a plain single process gives, whatever the files hold and wherever a shard is cut."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from treadle.coordinator.demo import evidence, plain, shards
from treadle.shared import codec
from treadle.worker import Context, Fail
from treadle.worker.context import AsyncDoing, Keyed
from treadle.worker.examples import files
from treadle.worker.handlers import HandlerFunction
from treadle.worker.loading import collect

HOSTILE: dict[str, bytes] = {
    "a.py": b"class A:\n    def f(self): ...\n    async def g(self): ...\n",
    "empty.py": b"",
    "null.py": b"x = 1\0\n",
    "bad_syntax.py": b"def f(:\n",
    "bad_encoding.py": b"# \xff\xfe\nx = 1\n",
    "unknown_cookie.py": b"# -*- coding: nonsense -*-\nx = 1\n",
    "latin.py": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
    "deep.py": b"x = " + b"(" * 5000 + b")" * 5000 + b"\n",
    "chain.py": b"x = " + b"1 + " * 20_000 + b"1\n",
    "open.py": b"x = (1,\n",
    "escape.py": b"x = '\\d'\ny = 1if 1 else 2\n",
    "tabs.py": b"if 1:\n\tx = 1\n",
    "tab_in_text.py": b"x = 'a\tb'  # c\td\n",
    "tab_both.py": b"x =\t'a\tb'\n",
    "crlf.py": b"x = 1\r\ny = 2\r\n",
    "long.py": b"x = '" + b"y" * 5000 + b"'\n",
    "huge_int.py": b"x = " + b"9" * 10_000 + b"\n",
    "sub/folder/ünïcode name.py": "x = 'ß'\n".encode(),
    "emoji.py": "# 😀 \u2028 \x0c\nx = 1\n".encode(),
    **{f"many/{number:03}.py": b"def f(): ...\n" * number for number in range(120)},
}


@dataclass
class Given:
    """A Context that keeps what is saved, and cuts the run at the save numbered `cut_at`."""

    inputs: dict[str, Any]
    results: dict[str, Any] = field(default_factory=dict)
    checkpoint_state: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    resolution: Any = None
    cut_at: int = 0
    mission: str = "index"
    item: str = "shard-01"
    worker: str = "worker-1"
    attempt: int = 1
    cancelled: bool = False
    why_stopped: str = ""
    credentials: dict[str, str] = field(default_factory=dict)
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("test"))
    saves: int = 0

    async def checkpoint(self, state: dict[str, Any]) -> None:
        self.saves += 1
        if self.saves == self.cut_at:
            raise asyncio.CancelledError
        self.checkpoint_state = carried(state)

    def spend(self, dimension: str, amount: int) -> None:
        raise NotImplementedError

    def left(self, dimension: str) -> int | None:
        raise NotImplementedError

    def tool(self, name: str) -> Any:
        raise NotImplementedError

    def effect(self, operation: str, *, at: Any = None, key: Keyed = "item") -> AsyncDoing[Any]:
        raise NotImplementedError

    def progress(
        self, done: float, total: float = 1.0, *, note: str = "", phase: str = "", milestone: str = ""
    ) -> None:
        del phase, milestone
        assert 0 < done < total
        assert note


def carried(value: Any) -> Any:
    """A value as it comes out of the store."""
    return codec.unpack(codec.pack(value, field="state", limit=codec.RESULT_MAX), what="state")


def write(root: Path, contents: dict[str, bytes]) -> Path:
    for path, raw in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(raw)
    return root


def function(capability: str) -> HandlerFunction:
    return {str(name): one.function for name, one in collect(files).items()}[capability]


def call(context: Given, capability: str) -> Any:
    return carried(asyncio.run(function(capability)(context, context.inputs)))


def report_of(root: Path, name: str, dealt: tuple[tuple[str, ...], ...]) -> Any:
    results = {
        f"shard-{number:02}": call(Given({"root": str(root), "files": list(shard)}), f"demo.{name}")
        for number, shard in enumerate(dealt, start=1)
    }
    return call(Given({}, results=results), f"demo.{name}.merge")


@pytest.mark.parametrize(
    "count", [1, pytest.param(7, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow)]
)
def test_shards_and_merge_give_the_plain_report_byte_for_byte(count: int, tmp_path: Path) -> None:
    listing = shards.list_files(write(tmp_path, HOSTILE))
    dealt = shards.deal(listing.files, count)
    got = {name: report_of(listing.root, name, dealt) for name in ("index", "audit")}
    expected = plain.compute(listing.root, [file.path for file in listing.files])
    assert plain.difference(expected, got) == ""
    assert plain.canonical(got) == plain.canonical(expected)
    totals = expected["index"]["totals"]
    assert totals["files"] == len(HOSTILE)
    assert totals["unparsable"] >= 7
    assert expected["audit"]["files_with_tabs"] == ["tab_both.py", "tabs.py"]
    assert expected["audit"]["files_with_tabs_in_text_only"] == ["tab_in_text.py"]
    assert expected["audit"]["longest_lines"][0][:3] == ["chain.py", 1, 80_005]


def test_a_file_that_is_gone_is_counted_by_both(tmp_path: Path) -> None:
    paths = ("gone.py", "here.py")
    write(tmp_path, {"here.py": b"x = 1\n"})
    got = {name: report_of(tmp_path, name, (paths,)) for name in ("index", "audit")}
    expected = plain.compute(tmp_path, paths)
    assert plain.difference(expected, got) == ""
    assert expected["index"]["totals"]["unreadable"] == expected["audit"]["unreadable"] == 1


@pytest.mark.parametrize("capability", ["demo.index", "demo.audit"])
def test_a_cut_shard_goes_on_behind_its_last_save_with_the_same_result(
    capability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, folder = write(tmp_path / "files", HOSTILE), tmp_path / "evidence"
    folder.mkdir()
    paths = sorted(HOSTILE)
    inputs = {"root": str(root), "files": paths}
    whole = call(Given(inputs), capability)
    monkeypatch.setenv("TREADLE_DEMO_EVIDENCE", str(folder))
    first = Given(inputs, cut_at=4)
    with pytest.raises(asyncio.CancelledError):
        call(first, capability)
    done = first.checkpoint_state["next"]
    assert 0 < done < len(paths)
    second = Given(inputs, checkpoint_state=first.checkpoint_state, attempt=2, worker="worker-2")
    assert plain.canonical(call(second, capability)) == plain.canonical(whole)
    lines = [line for file in folder.iterdir() for line in evidence.read_lines(file.read_bytes(), name=file.name)]
    redone = [line.file for line in lines if line.attempt == 1][done:]
    assert [line.file for line in lines if line.attempt == 2] == paths[done:]
    assert evidence.redone(lines) == len(redone) <= files.SAVE_EACH_FILES


def test_a_shard_saves_every_few_files_and_not_at_its_end(tmp_path: Path) -> None:
    write(tmp_path, {f"{number:02}.py": b"x = 1\n" for number in range(8)})
    context = Given({"root": str(tmp_path), "files": [f"{number:02}.py" for number in range(8)]})
    call(context, "demo.index")
    assert context.saves >= 1
    assert context.checkpoint_state["next"] < 8


def test_a_worker_on_another_host_fails_plainly(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="no folder on this host"):
        call(Given({"root": str(tmp_path / "absent"), "files": ["a.py"]}), "demo.index")


def test_no_evidence_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREADLE_DEMO_EVIDENCE", raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"a.py": b""})
    call(Given({"root": str(tmp_path), "files": ["a.py"]}), "demo.index")
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


def test_a_context_of_ones_own_fits_the_protocol() -> None:
    context: Context = Given({})
    assert json.dumps(context.inputs) == "{}"
