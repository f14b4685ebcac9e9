"""A program as a handler: its arguments, its files, its end. No shell reads what an input says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.worker import Fail
from treadle.worker.slots import endings, files
from treadle.worker.slots.arguments import ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, check, filled

INPUTS: dict[str, Any] = {
    "size": 128,
    "name": "a b; rm -rf /",
    "ratio": 0.5,
    "deep": {"a": 1},
    "none": None,
    "on": True,
}


# --- arguments ---


def test_fields_are_filled_in_and_nothing_else_is_read_into_them() -> None:
    argv = ["./thumb", "{size}", "--out={name}.png", "{on}{ratio}", "${HOME}", "{print $1}", "{{size}}", "{}", "{0}"]
    found = filled([word for word in argv if word != "${HOME}"], INPUTS)
    assert found == ["./thumb", "128", "--out=a b; rm -rf /.png", "true0.5", "{print $1}", "{size}", "{}", "{0}"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{width}", r"inputs: \{width\} is asked for by the command and is not there; fields: deep, name, none, on"),
        ("{deep}", "inputs: deep is of type dict; an argument is text, a number or a truth value"),
        ("{none}", "inputs: none is of type NoneType"),
        ("${HOME}", r"\{HOME\} is asked for"),
    ],
)
def test_a_field_that_is_missing_or_nested_is_a_final_failure_that_names_it(word: str, said: str) -> None:
    with pytest.raises(Fail, match=said) as caught:
        filled(["x", word], INPUTS)
    assert not caught.value.retryable


def test_no_input_becomes_an_option_unless_the_command_says_where_options_end() -> None:
    inputs = {"file": "--output=/etc/passwd", "count": -5}
    with pytest.raises(Fail, match=r"file='--output=/etc/passwd' begins with '-' .* put '--' before \{file\}"):
        filled(["convert", "{file}"], inputs)
    assert filled(["convert", "--", "{file}"], inputs)[-1] == "--output=/etc/passwd"
    assert filled(["convert", "--in={file}", "{count}"], inputs)[1:] == ["--in=--output=/etc/passwd", "-5"]


def test_a_nul_and_what_is_too_long_for_an_argument_are_refused() -> None:
    with pytest.raises(Fail, match="inputs: x holds a NUL"):
        filled(["p", "{x}"], {"x": "a\0b"})
    with pytest.raises(Fail, match=r"argument 1 of the command is 100,001 bytes, at most 100,000; read it from"):
        filled(["p", "{x}"], {"x": "x" * (ARGUMENT_BYTES_MAX + 1)})
    assert filled(["p", "{x}"], {"x": "x" * ARGUMENT_BYTES_MAX})[1]


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text() | st.integers() | st.booleans(), min_size=3))
def test_however_odd_an_input_is_it_stays_within_its_argument(inputs: dict[str, Any]) -> None:
    if any("\0" in str(value) for value in inputs.values()):
        with pytest.raises(Fail, match="holds a NUL"):
            filled(["p", "--", "{a}", "x{b}y", "{c}"], inputs)
        return
    found = filled(["p", "--", "{a}", "x{b}y", "{c}"], inputs)
    assert len(found) == 5
    assert found[:2] == ["p", "--"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("echo {x}", "must be a list of arguments"),
        ([], "must be a list of arguments"),
        (["echo", 3], "holds a value that is no text"),
        (["{program}"], "inputs never choose the program"),
        (["x"] * (ARGUMENTS_MAX + 1), "257 arguments, at most 256"),
        (["x", "a\0b"], "argument 1 holds a NUL"),
        (["sh", "-c", "echo {x}"], r"\{x\} stands in the code that 'sh' runs"),
        (["/bin/bash", "-ec", "echo {x}"], r"\{x\} stands in the code"),
        (["python3", "-c", "print({x})"], r"\{x\} stands in the code"),
        (["awk", "{ print {x} }"], r"\{x\} stands in the code"),
    ],
)
def test_a_command_that_cannot_be_run_or_would_run_its_inputs_is_refused_when_it_is_written(
    argv: Any, said: str
) -> None:
    with pytest.raises(Misuse, match=said):
        check(argv, field="command x")


def test_an_input_may_be_an_argument_of_a_shells_program() -> None:
    argv = check(["sh", "-c", 'echo "$1"', "name", "{x}"], field="command x")
    assert filled(argv, {"x": "$(reboot)"})[-1] == "$(reboot)"
    assert check(["awk", "{print $1}", "{x}"], field="command x")


# --- files ---


def test_files_come_back_as_they_were_saved(tmp_path: Path) -> None:
    before, after = tmp_path / "a", tmp_path / "b"
    before.mkdir()
    after.mkdir()
    (before / "page").write_bytes(b"\0\xff")
    (before / "näme ü").write_text("x")
    (before / files.READY).touch()
    (before / files.STOP).touch()
    state = codec.unpack(codec.pack(files.packed(before), field="c", limit=codec.CHECKPOINT_MAX), what="c")
    files.unpacked(state, after)  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in after.iterdir()} == {"page": b"\0\xff", "näme ü": b"x"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in after.iterdir())


def _link(folder: Path) -> None:
    (folder / "x").symlink_to("/etc/passwd")


def _folder(folder: Path) -> None:
    (folder / "x").mkdir()


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "x")


def _many(folder: Path) -> None:
    for number in range(files.FILES_MAX + 1):
        (folder / str(number)).touch()


def _large(folder: Path) -> None:
    (folder / "small").write_bytes(b"s" * 1000)
    with (folder / "x").open("wb") as file:
        file.truncate(20_000_000)


def _odd_name(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff")).touch()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_link, "'x' is a link; only plain files are saved"),
        (_folder, "'x' is no plain file"),
        (_pipe, "'x' is no plain file"),
        (_many, "257 files, at most 256"),
        (_large, r"with 'x' \(20,000,000 bytes\) its files are more than 983,040 bytes together"),
        (_odd_name, "is no plain name of a file"),
    ],
)
def test_br_65_what_cannot_be_saved_is_said_with_its_size_and_bound(make: Any, said: str, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(Fail, match=said) as caught:
        files.packed(tmp_path)
    assert not caught.value.retryable


def test_as_much_as_the_bound_can_be_saved(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * (files.FOLDER_BYTES_MAX - 1))
    assert codec.pack(files.packed(tmp_path), field="checkpoint", limit=codec.CHECKPOINT_MAX)
    (tmp_path / "x").write_bytes(b"x" * files.FOLDER_BYTES_MAX)
    with pytest.raises(Fail, match="more than"):
        files.packed(tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", ".", "..", files.READY, "a\0b"])
def test_a_checkpoint_with_a_hostile_name_writes_nothing_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(Fail, match="no plain name"):
        files.unpacked({"files": {name: b"x"}}, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("state", [{"page": 3}, {"files": {"a": "text"}}, {"files": []}, {"files": {}, "more": 1}])
def test_a_checkpoint_of_another_kind_of_handler_is_said_to_be_one(state: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Fail, match="another kind of handler"):
        files.unpacked(state, tmp_path)


# --- ends ---


@pytest.mark.parametrize(
    ("status", "text", "retryable"),
    [
        (1, "exit status 1: no such file", True),
        (64, "exit status 64: no such file", False),
        (65, "exit status 65: no such file", False),
        (75, "exit status 75: no such file", True),
        (127, "exit status 127: no such file", True),
        (-9, r"killed by signal 9 \(SIGKILL\): no such file", True),
        (-200, "killed by signal 200: no such file", True),
    ],
)
def test_an_exit_status_says_what_comes_of_the_item(status: int, text: str, retryable: bool) -> None:
    found = endings.failure(status, b"\n  no such file\n")
    assert found is not None
    assert found.retryable is retryable
    with pytest.raises(Fail, match=text):
        raise found


def test_of_what_a_program_says_on_standard_error_the_last_words_are_kept() -> None:
    found = endings.failure(1, b"x" * 5_000 + b"\nlast\nwords \xff\n")
    assert found is not None
    assert found.message.endswith("x | last | words \ufffd")
    assert len(found.message) < endings.LAST_WORDS_MAX + 100
    assert endings.failure(0, b"words") is None


@pytest.mark.parametrize(
    ("output", "result"),
    [
        (b"", None),
        (b" \n", None),
        (b'{"a": [1, 2.5, null]}\n', {"a": [1, 2.5, None]}),
        (b"7\n", 7),
        (b"hello\nworld\n", "hello\nworld"),
        (b'{"half": ', '{"half": '),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_standard_output_is_the_result_as_json_or_as_text(output: bytes, result: object) -> None:
    assert endings.result_of(output) == result


def test_an_output_that_is_no_text_is_a_final_failure() -> None:
    with pytest.raises(Fail, match=r"neither JSON nor text in UTF-8 \(byte 2\)"):
        endings.result_of(b"ab\xff")


def test_the_mark_that_a_slot_is_asked_for_is_made_in_the_folder_and_through_no_link(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / files.STOP).symlink_to(elsewhere)
    assert files.mark_stop(folder) == ""
    assert files.mark_stop(folder) == "", "twice is fine"
    assert (folder / files.STOP).is_file()
    assert not (folder / files.STOP).is_symlink()
    assert not elsewhere.exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_mark_that_the_program_made_something_else_of_is_said(make: Any, tmp_path: Path) -> None:
    make(tmp_path / files.STOP)
    assert re.match(
        r"checkpoint: '\.stop' cannot be made: .*; leave that name to the Worker", files.mark_stop(tmp_path)
    )


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/nowhere"), os.mkfifo])
def test_whatever_file_is_called_ready_is_ready_and_can_be_removed(make: Any, tmp_path: Path) -> None:
    assert not files.is_ready(tmp_path)
    make(tmp_path / files.READY)
    assert files.is_ready(tmp_path)


def test_a_folder_called_ready_is_said_and_ends_the_run_for_good(tmp_path: Path) -> None:
    (tmp_path / files.READY).mkdir()
    with pytest.raises(
        Fail, match=r"'\.ready' is a folder; make a plain file of it, as `touch \.ready` does"
    ) as caught:
        files.is_ready(tmp_path)
    assert not caught.value.retryable
