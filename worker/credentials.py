"""The secrets a run is given: by a credentials file, or by a provider of one's own.

    provider.credentials(mission, capability) -> checked -> hidden from now on in all text (redaction) -> context.credentials

No error of this room holds a secret, nor what a program or a provider said: a secret may stand in it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol, cast

import anyio
from treadle.shared.errors import Misuse, TreadleError, Unavailable
from treadle.shared.redaction import SECRET_BYTES_MAX, SECRET_CHARS_MIN, Secrets, known

from .credential_grants import FILE_BYTES_MAX, NAME, NAME_FORM, SECRETS_MAX, Source, granted, parse

COMMAND_S, PROVIDER_S = 10.0, 30.0


class Provider(Protocol):
    """Where a Worker has the secrets of its runs from."""

    async def credentials(self, mission: str, capability: str, /) -> Mapping[str, str]:
        """The secrets of one run of such work, by name; asked at the start of each run, at most PROVIDER_S."""
        ...


class CredentialsFile:
    """The provider that a credentials file describes. It reads the file once; the sources of kind `file` at each run.

    What its `env` sources name is gone from this process's environment once it is made.
    """

    def __init__(self, path: Path) -> None:
        """Misuse for a file that is wrong, and for a variable or a file it names that is not there now."""
        self._name = str(path)
        self._folder = path.parent
        self._variables: dict[str, str] = {}
        try:
            self._grants = parse(_decoded(_read(path, self._name, FILE_BYTES_MAX), self._name), name=self._name)
            self._look()
        except Unavailable as error:
            raise Misuse(str(error)) from None

    def _look(self) -> None:
        for source in (source for grant in self._grants for source in grant.secrets.values()):
            where, word = f"{self._name}: {source.place}", source.words[0]
            if source.kind == "env" and word not in self._variables:
                self._variables[word] = _taken(word, where)
            elif source.kind == "file":
                checked("", _of_file(self._folder / word, where), where)
        known.learn(self._variables.values())

    async def credentials(self, mission: str, capability: str) -> Mapping[str, str]:
        found = granted(self._grants, mission, capability)
        return {name: await self._secret(source) for name, source in found.items()}

    async def _secret(self, source: Source) -> str:
        where = f"{self._name}: {source.place}"
        if source.kind == "env":
            return self._variables[source.words[0]]
        if source.kind == "file":
            path = self._folder / source.words[0]
            text = await anyio.to_thread.run_sync(_of_file, path, where, abandon_on_cancel=True)
        else:
            text = await anyio.to_thread.run_sync(_of_command, source.words, where, abandon_on_cancel=True)
        try:
            checked("", text, where)
        except Misuse as wrong:  # it was right when this Worker began: somebody is writing it anew just now
            raise Unavailable(str(wrong)) from None
        return text


async def secrets_of(provider: Provider, mission: str, capability: str) -> Secrets:
    """The secrets of one run, checked, and hidden from now on.

    Misuse for what no secret may be. Unavailable for what may be there at another attempt, a provider that fails included.
    """
    try:
        with anyio.fail_after(PROVIDER_S):
            given = await provider.credentials(mission, capability)
    except TreadleError:
        raise
    except TimeoutError:
        raise Unavailable(f"credentials: the provider took longer than {PROVIDER_S:g} s") from None
    except Exception as error:
        said = f"credentials: the provider raised {type(error).__name__}; its text is not shown, a secret may be in it"
        raise Unavailable(said) from None
    if not isinstance(given, Mapping):
        raise Misuse(f"credentials: the provider gave a {type(given).__name__}, must be a mapping of name to secret")
    if len(given) > SECRETS_MAX:
        raise Misuse(f"credentials: {len(given)} secrets for one run, at most {SECRETS_MAX}")
    for name, value in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Misuse(f"credentials: the provider gave a secret with a wrong name; must be {NAME_FORM}")
        checked(name, value, "credentials")
    known.learn(given.values())
    return Secrets(given)


def checked(name: str, value: object, where: str) -> None:
    """Misuse where `value` may be no secret, without showing it."""
    label = f"{where}: {name}" if name else where
    if not isinstance(value, str):
        raise Misuse(f"{label}: is a {type(value).__name__}, must be text")
    if len(value) < SECRET_CHARS_MIN:
        raise Misuse(
            f"{label}: has {len(value)} characters, must have at least {SECRET_CHARS_MIN}: a shorter secret cannot be kept out "
            "of logs; make a longer one"
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Misuse(f"{label}: is no UTF-8; encode it, as base64") from None
    if size > SECRET_BYTES_MAX:
        raise Misuse(f"{label}: {size:,} bytes, at most {SECRET_BYTES_MAX:,}")


# --- sources ---------------------------------------------------------------------------------------------------------


def _taken(variable: str, where: str) -> str:
    """The value of a variable, which neither this process's environment nor one of its children has from now on."""
    value = os.environ.get(variable)
    if value is None:
        raise Misuse(f"{where}: the variable {variable} is not set; set it for this process, or name another source")
    checked("", value, f"{where}: env:{variable}")
    _overwrite(variable)
    del os.environ[variable]
    return value


def _overwrite(variable: str) -> None:
    """Fills the value with zeros where the kernel shows it: /proc/PID/environ is the memory that a program began with."""
    if not Path("/proc/self/environ").exists():
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.argtypes, getenv.restype = [ctypes.c_char_p], ctypes.c_void_p
    place = getenv(os.fsencode(variable))
    if place:
        ctypes.memset(place, 0, len(os.fsencode(os.environ[variable])))


def _of_file(path: Path, where: str) -> str:
    label = f"{where}: file:{path}"
    return _without_end(_decoded(_read(path, label, SECRET_BYTES_MAX), label))


def _read(path: Path, label: str, most: int) -> bytes:
    try:
        # Without waiting: a pipe that nobody writes to would keep its reader for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unavailable(f"{label}: is no file")
            raw = file.read(most + 1)
    except OSError as error:
        raise Unavailable(f"{label}: cannot be read ({error.strerror})") from None
    if len(raw) > most:
        raise Unavailable(f"{label}: is larger than {most:,} bytes")
    return raw


def _decoded(raw: bytes, label: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unavailable(
            f"{label}: is no UTF-8 at byte {error.start}; save it as UTF-8, a key of bytes as base64"
        ) from None


def _of_command(words: tuple[str, ...], where: str) -> str:
    """What a program writes, without the line's end: no shell, within COMMAND_S. What it says beside is thrown away."""
    label = f"{where}: command {words[0]}"
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb", buffering=0) as output:
        try:
            program = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise Unavailable(f"{label}: cannot be started ({error.strerror})") from None
        finally:
            os.close(theirs)
        try:
            raw, status = _heard(program, output, label)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise Unavailable(f"{label}: has not ended after {COMMAND_S:g} s, it was killed") from None
        finally:
            # Not asked whether it has ended, which would give its pid away: what it left behind is of its group too.
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise Unavailable(f"{label}: failed ({how}); run it by hand to see what it says")
    return _without_end(_decoded(raw, label))


def _heard(program: subprocess.Popen[bytes], output: IO[bytes], label: str) -> tuple[bytes, int]:
    ends_s = time.monotonic() + COMMAND_S
    raw, something = b"", select.poll()
    something.register(output, select.POLLIN)
    while True:
        if not something.poll(max(0.0, ends_s - time.monotonic()) * 1000):
            raise TimeoutError
        more = output.read(SECRET_BYTES_MAX + 1 - len(raw))
        raw += more
        if len(raw) > SECRET_BYTES_MAX:
            raise Unavailable(f"{label}: writes more than {SECRET_BYTES_MAX:,} bytes")
        if not more:
            return raw, program.wait(max(0.0, ends_s - time.monotonic()))


def _without_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
