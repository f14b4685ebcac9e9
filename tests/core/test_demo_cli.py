"""What `treadle demo` says of options it cannot go by: the option, the value, the bound; exit status 2, nothing started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from treadle.coordinator.cli import main
from treadle.coordinator.demo import story


def said(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int | str | None, str]:
    def never(*_: object) -> None:
        raise AssertionError("a demo was started")

    monkeypatch.setattr(story, "run", never)
    monkeypatch.setattr(sys, "argv", ["treadle", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert captured.out == ""
    return ended.value.code, captured.err


@pytest.mark.parametrize("option", ["--workers", "--slots"])
@pytest.mark.parametrize("value", ["0", "-1", "33", "1.5", "x", ""])
def test_a_number_out_of_bounds_is_named_with_its_value_and_its_bounds(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = said(["demo", f"{option}={value}"], monkeypatch, capsys)
    most = {"--workers": 32, "--slots": 16}[option]
    assert status == 2
    assert f"'{option}': {value!r}, must be a whole number from 1 to {most}" in message


@pytest.mark.parametrize("value", ["0.1", "61", "nan", "inf", "2s"])
def test_a_ttl_out_of_bounds_likewise(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = said(["demo", "--ttl", value], monkeypatch, capsys)
    assert status == 2
    assert f"'--ttl': {value!r}, must be a number of seconds from 1 to 60" in message


@pytest.mark.parametrize("path", ["absent", "file.py"])
def test_a_path_that_is_no_folder_is_named(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.py").touch()
    status, message = said(["demo", "--path", str(tmp_path / path)], monkeypatch, capsys)
    assert status == 2
    assert "'--path'" in message
    assert path in message


def test_a_folder_without_python_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, message = said(["demo", "--path", str(tmp_path)], monkeypatch, capsys)
    assert status == 2
    assert message.startswith(f"treadle: --path: no *.py file below {tmp_path.resolve()}")
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = said(["demo", "--report", str(tmp_path / "absent" / "r.json")], monkeypatch, capsys)
    assert status == 2
    assert message.startswith("treadle: --report: ")
