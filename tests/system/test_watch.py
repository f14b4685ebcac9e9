"""`treadle watch` on a terminal, as a person sees it: bars, a server that goes away in the middle, Ctrl-C, narrow windows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from fleet import Desk, Fleet, chain
from treadle.shared import codec
from treadle.shared.model import GroupId, ItemId
from treadle.shared.store import commands
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow
CLI = [sys.executable, "-m", "treadle.coordinator.cli"]
BAR = "━"
STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class Screen:
    """A program on a terminal of its own, and all that it wrote there so far."""

    child: subprocess.Popen[bytes]
    terminal: int
    raw: bytearray = field(default_factory=bytearray)

    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")

    def lines(self) -> list[str]:
        """What it wrote, without colours and movements of the cursor."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", STEERING.sub("", self.text())) if line.strip()]

    def read(self) -> None:
        while select.select([self.terminal], [], [], 0.02)[0]:
            try:
                piece = os.read(self.terminal, 65_536)
            except OSError:  # its other end was closed: the program has ended
                return
            if not piece:
                return
            self.raw += piece

    def until(self, wanted: Callable[[Screen], bool], *, within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not wanted(self):
            if time.monotonic() > deadline:
                pytest.fail(f"not seen within {within_s:g} s; the last lines:\n" + "\n".join(self.lines()[-20:]))
            self.read()

    def press(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def status(self) -> int:
        self.until(lambda _: self.child.poll() is not None)
        self.read()
        return self.child.wait()


def _take_terminal() -> None:
    """The terminal is its own, and Ctrl-C is heard: what runs these tests in the background may have it ignored."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def screen(server: EmbeddedServer) -> Iterator[Callable[..., Screen]]:
    """Starts a command on a terminal of the given size."""
    started: list[Screen] = []

    def start(*arguments: str, columns: int = 100, rows: int = 24, **environment: str) -> Screen:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        hidden = ("TREADLE_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM")
        env = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        env |= {"TREADLE_URL": server.url, "TERM": "xterm-256color", "PYTHONUTF8": "1"} | environment
        child = subprocess.Popen(
            [*CLI, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(theirs)
        started.append(Screen(child, ours))
        return started[-1]

    yield start
    for one in started:
        one.child.kill()
        one.child.wait()
        os.close(one.terminal)


async def test_bars_go_on_through_a_server_that_goes_away_and_end_with_the_mission(
    server: EmbeddedServer, fleet: Fleet, desk: Desk, screen: Callable[..., Screen]
) -> None:
    await desk.submit("日本語 😀", chain("a", steps=70, step_s=0.1), chain("b", steps=1, step_s=0.01))
    await fleet.ready(fleet.start())
    watch = screen("watch", "日本語 😀")
    watch.until(lambda seen: any(BAR in line and "1 running" in line and "1/2" in line for line in seen.lines()))
    assert "1 Worker, 1 Mission active" in watch.lines()[-1]
    server.kill()
    watch.until(lambda seen: "the store does not answer, since" in seen.lines()[-1])
    assert any(BAR in line for line in watch.lines()[-4:]), "what was last known stays to be seen"
    server.restart()
    watch.until(lambda seen: any("2/2" in line and "approved" in line for line in seen.lines()), within_s=40)
    assert watch.status() == 0
    assert "\x1b[?25h" in watch.text(), "the cursor is shown again"
    assert "Traceback" not in watch.text()


async def test_interrupted_it_leaves_the_terminal_as_it_was(desk: Desk, screen: Callable[..., Screen]) -> None:
    await desk.submit("m", chain("a"))
    watch = screen("watch")
    watch.until(lambda seen: "no live Worker" in seen.lines()[-1] if seen.lines() else False)
    watch.press(b"\x03")
    assert watch.status() == 130
    assert "\x1b[?25h" in watch.text()
    assert "Traceback" not in watch.text()
    watch = screen("watch")
    watch.until(lambda seen: "no live Worker" in seen.lines()[-1] if seen.lines() else False)
    watch.child.terminate()
    assert watch.status() == 143
    assert "\x1b[?25h" in watch.text()
    assert watch.lines()[-1] == "treadle: ended by SIGTERM"


@pytest.mark.parametrize("columns", [20, 40, 72, 200])
async def test_it_fits_every_width(columns: int, desk: Desk, screen: Callable[..., Screen]) -> None:
    for number in range(30):
        await desk.submit(f"m-{number:02}-" + "x" * 60, chain("a"))
    watch = screen("watch", "--timeout", "2", columns=columns, rows=12)
    assert watch.status() == 1
    seen = watch.lines()
    assert any(BAR in line for line in seen)
    frame = [line for line in seen if BAR in line]
    assert all(len(line) <= columns for line in frame)
    assert "not ended within 2 s" in seen[-1] or columns < 60


async def test_no_color_means_none_and_a_dumb_terminal_gets_lines(desk: Desk, screen: Callable[..., Screen]) -> None:
    await desk.submit("m", chain("a"))
    colour = re.compile(r"\x1b\[[0-9;]*m")

    def colours(watch: Screen) -> set[str]:
        assert watch.status() == 1
        codes = {code for found in colour.findall(watch.text()) for code in found[2:-1].split(";")}
        return {code for code in codes if re.fullmatch(r"[349][0-7]|38|48", code)}

    assert colours(screen("watch", "--timeout", "1"))
    assert not colours(screen("watch", "--timeout", "1", NO_COLOR="1"))
    dumb = screen("watch", "--timeout", "1", TERM="dumb")
    assert dumb.status() == 1
    assert "\x1b" not in dumb.text()
    assert "m  active  0/1 verified" in dumb.lines()[0]


@pytest.mark.parametrize("columns", [30, 80, 160])
async def test_tables_fit_and_hide_no_name(columns: int, desk: Desk, screen: Callable[..., Screen]) -> None:
    name = "mission-of-a-long-name-" + "z" * 20
    await desk.submit(name, chain("a"))
    shown = screen("missions", columns=columns)
    assert shown.status() == 0
    assert columns < 80 or shown.lines()[1].split()[0] == name
    assert all(len(line) <= columns for line in shown.lines())


async def test_requeue_asks_before_it_takes_everything(desk: Desk, screen: Callable[..., Screen]) -> None:
    await desk.submit("m", chain("a"), chain("b"))
    evidence = codec.pack({"type": "OSError", "text": "busy"}, field="evidence", limit=1_000)
    digest = codec.digest(evidence)
    await commands.fail_item(desk.store, GroupId("m"), ItemId("a"), actor="ann", digest=digest, evidence=evidence)
    for answer, status, saying in (("n", 2, "treadle: nothing was done"), ("y", 0, "1 item requeued")):
        asked = screen("requeue")
        asked.until(lambda seen: "requeue everything: 1 item? [y/N]" in seen.text())
        assert "m/a  failed" in asked.text()
        asked.press(f"{answer}\r".encode())
        assert asked.status() == status
        assert saying in asked.lines()[-1]


async def test_a_watch_that_names_none_shows_what_comes_and_ends_when_none_is_left(
    fleet: Fleet, desk: Desk, screen: Callable[..., Screen]
) -> None:
    await desk.submit("first", chain("a", steps=150, step_s=0.1))
    await fleet.ready(fleet.start())
    watch = screen("watch")
    watch.until(lambda seen: any(line.startswith("first") for line in seen.lines()))
    await desk.submit("second", chain("a", steps=40, step_s=0.1))
    watch.until(lambda seen: any(line.startswith("second") for line in seen.lines()))
    assert watch.status() == 0
    last = watch.lines()[-3:]
    assert [line.split()[0] for line in last[:2]] == ["first", "second"]
    assert all("approved" in line for line in last[:2])
