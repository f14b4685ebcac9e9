"""The user's face: what is registered, and what is said of a handlers module that is wrong."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from treadle.shared.errors import Misuse
from treadle.worker import Context, Fail, SyncContext, handler
from treadle.worker.loading import collect, load


@pytest.fixture(autouse=True)
def _path_and_modules() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@handler("thumbnails", version="2.0.1")
async def thumbnails(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"count": len(inputs), "attempt": context.attempt}


def module_of(**names: object) -> ModuleType:
    module = ModuleType("made")
    vars(module).update(names)
    return module


def test_a_handler_is_found_with_its_capability_and_version_and_cannot_be_changed() -> None:
    found = collect(module_of(one=thumbnails, alias=thumbnails, other=7))
    assert list(found) == ["thumbnails"]
    (made,) = found.values()
    assert (made.version, made.function) == ("2.0.1", thumbnails)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.version = "3.0.0"  # type: ignore[misc]  # that it cannot is the test


def test_one_function_may_serve_two_capabilities() -> None:
    @handler("large")
    @handler("small")
    async def scale(context: Context, inputs: dict[str, Any]) -> None: ...

    assert list(collect(module_of(scale=scale))) == ["large", "small"]


@pytest.mark.parametrize("capability", ["", "Thumbnails", "a b", "-a", "a" * 65, "naïve", "a/b"])
def test_a_malformed_capability_is_refused_where_it_is_written(capability: str) -> None:
    with pytest.raises(Misuse, match="not a capability name"):
        handler(capability)


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "1.0.0 ", "01.0.0"])
def test_a_malformed_version_is_refused_and_named(version: str) -> None:
    with pytest.raises(Misuse, match="handler thumbnails: version"):
        handler("thumbnails", version=version)


def test_a_plain_function_is_a_handler_for_a_thread() -> None:
    @handler("count")
    def count(context: SyncContext, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return len(inputs)

    (made,) = collect(module_of(count=count)).values()
    assert made.is_sync
    assert not collect(module_of(thumbnails=thumbnails))[made.capability.__class__("thumbnails")].is_sync


class AsyncCallable:
    async def __call__(self, context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG002
        return 1


@pytest.mark.parametrize("function", [AsyncCallable(), functools.partial(thumbnails)])
def test_what_is_called_like_an_async_function_runs_on_the_loop(function: Any) -> None:
    (made,) = collect(module_of(function=handler("thumbnails")(function))).values()
    assert not made.is_sync


def test_what_is_no_function_is_refused_with_its_place() -> None:
    def many(context: SyncContext, inputs: dict[str, Any]) -> Iterator[int]:  # noqa: ARG001
        yield 1

    class Work: ...

    with pytest.raises(Misuse, match=r"many \(.*test_handlers\.py:\d+\) has a `yield`"):
        handler("thumbnails")(many)
    with pytest.raises(Misuse, match="is no function"):
        handler("thumbnails")(Work)  # type: ignore[arg-type]  # that it is refused is the test


def test_a_function_that_does_not_take_context_and_inputs_is_refused() -> None:
    async def narrow(context: Context) -> None: ...

    with pytest.raises(Misuse, match=r"must take \(context, inputs\)"):
        handler("thumbnails")(narrow)  # type: ignore[arg-type]  # that it is refused is the test


def test_the_decorator_without_its_name_says_how_to_write_it() -> None:
    async def bare(context: Context, inputs: dict[str, Any]) -> None: ...

    with pytest.raises(Misuse, match="write @handler"):
        handler(bare)  # type: ignore[call-overload]  # that it is refused is the test


def test_two_handlers_of_one_capability_are_refused_with_both_places() -> None:
    @handler("thumbnails")
    async def second(context: Context, inputs: dict[str, Any]) -> None: ...

    with pytest.raises(Misuse, match=r"two handlers for capability 'thumbnails': .*thumbnails.* and .*second"):
        collect(module_of(thumbnails=thumbnails, second=second))


def test_a_decorator_above_handler_is_refused_for_it_would_be_passed_over() -> None:
    @functools.wraps(thumbnails)
    async def timed(context: Context, inputs: dict[str, Any]) -> Any:
        return await thumbnails(context, inputs)

    with pytest.raises(Misuse, match="put @handler above"):
        collect(module_of(thumbnails=timed))


def test_fail_carries_its_message_and_whether_to_try_again() -> None:
    assert (str(Fail("no such photo")), Fail("x").retryable) == ("no such photo", False)
    assert Fail("busy", retryable=True).retryable


GOOD = "from treadle.worker import handler\n@handler({0!r})\nasync def work(context, inputs): ...\n"


def test_the_current_folder_is_searched_before_the_app_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, app = tmp_path / "here", tmp_path / "app"
    for folder, capability in ((here, "from.here"), (app, "from.app")):
        folder.mkdir()
        (folder / "both_places.py").write_text(GOOD.format(capability))
    (app / "only_app.py").write_text(GOOD.format("only.app"))
    monkeypatch.chdir(here)
    assert list(load("both_places", app)) == ["from.here"]
    assert list(load("only_app", app)) == ["only.app"]
    assert sys.path[:2] == [str(here), str(app)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import not_there_at_all\n", r'broken\.py", line 1, in <module>\n.*\n.*No module named \'not_there_at_all\''),
        ("x = 1\ndef f(:\n", r'broken\.py", line 2\n(.|\n)*SyntaxError'),
        ("def f():\n    1 / 0\nf()\n", r"line 3, in <module>(.|\n)*line 2, in f(.|\n)*ZeroDivisionError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("from treadle.worker import handler\n@handler('A b')\nasync def f(c, i): ...\n", "line 2(.|\n)*capability"),
        ("raise ValueError('x' * 100_000)\n", r"xxx \.\.\.$"),
    ],
)
def test_a_module_that_does_not_import_shows_its_own_traceback_short(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=said) as caught:
        load("broken")
    message = str(caught.value)
    assert message.startswith("--handlers: module 'broken' does not import:\n")
    assert "importlib" not in message
    assert "handlers.py" not in message
    assert len(message) < 4_000


def test_a_long_traceback_is_cut_to_its_last_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep.py").write_text(
        "def f(n):\n    if n == 0:\n        raise OSError('at last')\n    f(n - 1)\nf(50)\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match="at last") as caught:
        load("deep")
    assert str(caught.value).count("File ") <= 6


def test_a_missing_module_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=r"no module 'absent_module' in .*--app-dir") as caught:
        load("absent_module")
    assert str(tmp_path) in str(caught.value)


def test_a_module_without_handlers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_handlers.py").write_text("async def work(context, inputs): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match="holds no handler"):
        load("empty_handlers")


@pytest.mark.parametrize(
    ("name", "hint"), [("work.py", "write 'work'"), ("./work.py", "write 'work'"), ("", "not a"), (".x", "not a")]
)
def test_what_is_no_module_name_is_refused(name: str, hint: str) -> None:
    with pytest.raises(Misuse, match=hint):
        load(name)


def test_an_app_dir_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="--app-dir"):
        load("anything", tmp_path / "absent")
