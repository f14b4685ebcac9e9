"""Which files the demo takes, and how they are dealt."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator.demo import plain, shards
from treadle.coordinator.demo.shards import SourceFile, changed_since, deal, list_files


def test_only_regular_python_files_outside_the_skipped_folders_are_listed(tmp_path: Path) -> None:
    for path in ("b.py", "a/z.py", "a/test/t.py", "tests/t.py", "x/site-packages/p.py", "__pycache__/c.py", "n.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x = 1\n")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "broken.py").symlink_to("nowhere.py")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "link.py").symlink_to("b.py")
    listing = list_files(tmp_path)
    assert [file.path for file in listing.files] == ["a/z.py", "b.py", "link.py"]
    assert listing.left_out == ""


def test_what_is_too_large_or_cannot_be_named_is_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "ok.py").write_text("")
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(shards.FILE_BYTES_MAX + 1)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("")
    listing = list_files(tmp_path)
    assert [file.path for file in listing.files] == ["ok.py"]
    assert listing.left_out == "1 larger than 1 MiB, 1 whose names are not valid Unicode"


def test_no_more_files_are_taken_than_one_report_has_room_for(tmp_path: Path) -> None:
    name = "x" * 200
    for number in range(2_400):
        (tmp_path / f"{name}{number:04}.py").touch()
    listing = list_files(tmp_path)
    assert 0 < listing.beyond_report == 2_400 - len(listing.files)
    assert "no room" in listing.left_out
    report = plain.compute(listing.root, [file.path for file in listing.files])
    assert len(plain.canonical(report["index"])) < 1 << 20


def test_a_folder_without_python_files_lists_none(tmp_path: Path) -> None:
    assert list_files(tmp_path).files == ()
    assert deal(()) == ()


def test_a_file_that_changed_or_went_is_told(tmp_path: Path) -> None:
    for name in ("same.py", "changed.py", "gone.py"):
        (tmp_path / name).write_text("x = 1\n")
    listing = list_files(tmp_path)
    (tmp_path / "changed.py").write_text("x = 12\n")
    (tmp_path / "gone.py").unlink()
    assert changed_since(listing) == ["changed.py", "gone.py"]


SIZES = st.lists(st.integers(0, shards.FILE_BYTES_MAX), max_size=200)


@given(sizes=SIZES, count=st.integers(1, 64))
def test_each_file_is_dealt_to_one_shard_and_no_shard_is_empty(sizes: list[int], count: int) -> None:
    files = [SourceFile(f"{number:04}.py", size, 0) for number, size in enumerate(sizes)]
    dealt = deal(files, count)
    assert sorted(path for shard in dealt for path in shard) == [file.path for file in files]
    assert len(dealt) == min(count, len(files))
    assert all(shard == tuple(sorted(shard)) and shard for shard in dealt)


@given(sizes=SIZES, count=st.integers(1, 64))
def test_no_shard_is_heavier_than_the_lightest_by_more_than_one_file(sizes: list[int], count: int) -> None:
    files = [SourceFile(f"{number:04}.py", size, 0) for number, size in enumerate(sizes)]
    weight = {file.path: file.size + 1 for file in files}
    loads = [sum(weight[path] for path in shard) for shard in deal(files, count)]
    if loads:
        assert max(loads) - min(loads) <= max(weight.values())


def test_the_same_files_are_dealt_the_same_way_in_any_order() -> None:
    files = [SourceFile(f"{number}.py", number % 7, 0) for number in range(50)]
    assert deal(files) == deal(files[::-1])
