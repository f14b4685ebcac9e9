"""What a Worker is given and cannot go by: one message that names it and says what to do, exit status 2, nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import redis
from fleet import TESTS
from treadle.shared.store.embedded import EmbeddedServer

GONE = "unix:///tmp/treadle-nobody-listens-here.sock"
HANDLERS = ("--handlers", "fleet_handlers", "--app-dir", str(TESTS))


def worker(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs `treadle-worker` in a process of its own: one that refuses to start still ends the process that it is in."""
    argv = [sys.executable, "-m", "treadle.worker.cli", *arguments]
    return subprocess.run(
        argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=45, check=False
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with nothing of the tester's own settings."""
    for name in os.environ:
        if name.startswith("TREADLE_"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def refused(folder: Path) -> Callable[..., str]:
    """Runs `treadle-worker run`, which must refuse to start; what it says."""

    def run(*arguments: str) -> str:
        ran = worker("run", *arguments, folder=folder)
        assert ran.returncode == 2, ran.stderr
        assert ran.stdout == ""
        assert "Traceback (most recent call last)" not in ran.stderr
        return ran.stderr

    return run


Refused = Callable[..., str]


def test_a_handlers_module_that_does_not_import_shows_its_own_traceback_and_no_more(
    refused: Refused, folder: Path
) -> None:
    (folder / "broken.py").write_text("def inner():\n    return 1 / 0\n\n\ninner()\n")
    said = refused("--handlers", "broken", "--url", GONE).splitlines()
    assert said[0] == "treadle-worker: --handlers: module 'broken' does not import:"
    assert said[-1] == "ZeroDivisionError: division by zero"
    assert [line.strip() for line in said if "File " in line] == [
        f'File "{folder}/broken.py", line 5, in <module>',
        f'File "{folder}/broken.py", line 2, in inner',
    ], "its own frames, none of ours and none of importlib's"


@pytest.mark.parametrize(
    ("module", "text", "saying"),
    [
        ("absent", None, "--handlers: no module 'absent' in "),
        ("handlers.py", "", "--handlers: no module"),
        ("no module", None, "--handlers: 'no module' is not a module name"),
        ("syntax", "def f(:\n", "SyntaxError"),
        ("empty", "x = 1\n", "holds no handler; mark a function with @handler"),
        ("exits", "import sys\nsys.exit('no licence')\n", "SystemExit: no licence"),
        ("imports", "import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("many", "from treadle.worker import handler\n@handler('a')\ndef f(c, i): yield\n", "has a `yield`"),
        ("bad", "from treadle.worker import handler\n@handler('A B')\nasync def f(c, i): ...\n", "'A B'"),
    ],
)
def test_a_handlers_module_that_is_none(
    module: str, text: str | None, saying: str, refused: Refused, folder: Path
) -> None:
    if text is not None:
        (folder / f"{module.removesuffix('.py')}.py").write_text(text)
    assert saying in refused("--handlers", module, "--url", GONE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TREADLE_URL", "http://127.0.0.1"),
        ("TREADLE_PREFIX", "a:b"),
        ("TREADLE_LEASE_TTL_S", "0"),
        ("TREADLE_LEASE_TTL_S", "soon"),
        ("TREADLE_SLOTS", "0"),
        ("TREADLE_GRACE_S", "-1"),
        ("TREADLE_PARTITIONS", "1000"),
    ],
)
def test_a_setting_out_of_bounds_is_named_with_its_value(
    name: str, value: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert f"treadle-worker: {name}: {value!r} is not allowed; must be " in refused(*HANDLERS)


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (["--name", ""], "--name: 0 bytes, must be 1 to 256"),
        (["--name", "n" * 300], "--name: 300 bytes, must be 1 to 256"),
        (["--slots", "0"], "TREADLE_SLOTS"),
        (["--slots", "x"], "--slots"),
        (["--url", "http://a:secret@b"], "TREADLE_URL"),
        (["--handlers", ""], "--handlers: '' is not a module name"),
        (["--app-dir", "/nowhere/at/all"], "--app-dir: '/nowhere/at/all' is not a folder"),
        (["--groups", ""], "--groups: is empty and would match no Mission"),
        (["--groups", "["], "--groups: '[' has a '[' without its ']'"),
        (["--groups", "team/[a-"], "without its ']'"),
        (["--log-level", "loud"], "--log-level: 'loud', must be debug, info, warning or error"),
        (["--runtime", "thread"], "--runtime: 'thread', must be task or process"),
    ],
)
def test_an_option_out_of_bounds_is_named(arguments: list[str], saying: str, refused: Refused) -> None:
    said = refused(*HANDLERS, "--url", GONE, *arguments)
    assert saying in said
    assert "secret" not in said


@pytest.mark.parametrize("url", [GONE, "redis://user:secret@127.0.0.1:1/0"])
def test_a_server_that_cannot_be_reached_is_named_without_its_password(url: str, refused: Refused) -> None:
    said = refused(*HANDLERS, "--url", url)
    assert "TREADLE_URL or --url: " in said
    assert "start that server or name another" in said
    assert "secret" not in said


def test_the_version_is_shown(folder: Path) -> None:
    ran = worker("--version", folder=folder)
    assert (ran.returncode, ran.stdout) == (0, f"treadle-worker {metadata.version('treadle')}\n")


@pytest.mark.slow
@pytest.mark.parametrize("database", ["16", "99999"])
def test_a_database_that_the_server_has_not_got_is_named(
    database: str, server: EmbeddedServer, refused: Refused
) -> None:
    said = refused(*HANDLERS, "--url", server.url.replace("db=0", f"db={database}"))
    assert "DB index is out of range; name a database that the server has, in TREADLE_URL" in said


@pytest.mark.slow
def test_a_store_of_another_format_or_number_of_partitions_is_refused_and_left_as_it_was(
    server: EmbeddedServer, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_URL", server.url)
    with redis.Redis.from_url(server.url) as client:

        def everything() -> dict[bytes, bytes]:
            return {key: client.dump(key) for key in client.scan_iter()}

        client.hset("treadle:{org}:@store", mapping={"version": "99", "partitions": "16"})
        before = everything()
        assert "it has format version 99, this program speaks 1" in refused(*HANDLERS)
        assert everything() == before

        client.hset("treadle:{org}:@store", mapping={"version": "1", "partitions": "8"})
        before = everything()
        monkeypatch.setenv("TREADLE_PARTITIONS", "4")
        said = refused(*HANDLERS)
        assert "TREADLE_PARTITIONS: 4" in said
        assert "was created with 8" in said
        assert everything() == before
