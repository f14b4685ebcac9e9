"""What nobody is to read is not in any text that leaves this process: known secrets, and the credentials in a URL.

A secret is learnt when it is obtained (`learn`). Two places hide what was learnt, and all text passes one of them: the
log's formatter, and `printable` of a Worker's failures, reasons and notes. What a handler prints itself passes neither.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, cast
from urllib.parse import parse_qs, quote, quote_plus, unquote, urlsplit

from .errors import Misuse

SECRET_CHARS_MIN, SECRET_BYTES_MAX = 6, 64 * 1024
"""A shorter one would be found in words that are none of it."""
VALUES_MAX = 1_024
LINES_MAX = 64
"""Of a secret of several lines, such as a private key, each of so many is hidden by itself too."""
MASK = "***"
SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|user|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
"""redis-py takes `?password=...` as well."""
_log = logging.getLogger("treadle")
_URL_SAFE = str.maketrans("+/", "-_")
SECRET_NAME = re.compile(r"pass|secret|token|credential|auth(?!or)|api[_-]?key|private|e[_-]?mail", re.IGNORECASE)
"""What in a payload is called so is not shown."""
NODES_MAX = 10_000
_USER = r"[^\s/?#'\"<>]*@"
_USERINFO = re.compile(rf"(?<=://){_USER}")
_UNTIL_HOST = re.compile(rf"://{_USER}")
_UNTIL_HOST_RAW = re.compile(_UNTIL_HOST.pattern.encode())
USERINFO_MAX = 1_024
"""User and password in a URL that nobody told us of are looked for so far around a cut."""


class Secrets(Mapping[str, str]):
    """The credentials of one run, by name. It shows names only, is never pickled, and is empty once the run is over."""

    __slots__ = ("__forms", "__values")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.__values = dict(values or {})
        self.__forms: list[tuple[str, bytes]] | None = None

    def __getitem__(self, name: str) -> str:
        try:
            return self.__values[name]
        except KeyError:
            has = ", ".join(self.__values) or "none"
            raise KeyError(
                f"credential {str(name)[:80]!r} is not granted to this work (it has: {has}); let a grant of its Mission and "
                "capability name it"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.__values)

    def __len__(self) -> int:
        return len(self.__values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.__values)})"

    def __copy__(self) -> Secrets:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Secrets:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(f"{self!r} is not pickled: a secret goes nowhere but where it is used")

    def forget(self) -> None:
        """Its run is over: whoever still holds it holds nothing."""
        self.__values.clear()
        self.__forms = []

    def refuse_in(self, raw: bytes, field: str) -> None:
        """Misuse where one of them stands in `raw`, in any form that would be hidden, by its name."""
        if not self.__values:
            return
        if self.__forms is None:
            self.__forms = [(name, form.encode()) for name, value in self.items() for form in forms(value)]
        for name, form in self.__forms:
            if form in raw:
                raise Misuse(f"{field}: holds the credential {name!r}, and would be kept and shown; leave it out")


def forms(secret: str) -> tuple[str, ...]:
    """The texts by which a secret is known: itself, its lines, and how JSON, Python, a URL and base64 write it."""
    lines = secret.splitlines() if 1 < secret.count("\n") + 1 <= LINES_MAX else []
    plain = [part for part in (secret, *lines) if len(part) >= SECRET_CHARS_MIN]
    found = dict.fromkeys(plain)
    for part in plain:
        written = (json.dumps(part), json.dumps(part, ensure_ascii=False), repr(part), ascii(part))
        found |= dict.fromkeys(text[1:-1] for text in written)
        raw = part.encode(errors="surrogatepass")
        found |= dict.fromkeys((quote(raw), quote(raw, safe=""), quote_plus(raw)))
    raw = secret.encode(errors="surrogatepass")
    for before in range(3):  # it need not begin where a group of three bytes does: "user:" may stand before it
        coded = base64.b64encode(bytes(before) + raw).decode()
        inner = coded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        found |= dict.fromkeys((inner, inner.translate(_URL_SAFE)))
    return tuple(found)


class Redactor:
    """Hides the secrets it has learnt, the last VALUES_MAX of them. Threads may use it at once; hiding takes no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, ...]] = {}
        self._forms: tuple[str, ...] = ()
        self.longest = 0
        """Bytes of the longest text that is hidden."""

    @property
    def reach(self) -> int:
        """How far beyond a cut a text has to be known, so that nothing in it that is to be hidden is cut in two."""
        return self.longest + USERINFO_MAX

    def learn(self, values: Iterable[str]) -> None:
        """From now on these are hidden; what is shorter than SECRET_CHARS_MIN is not."""
        with self._lock:
            known, is_new = self._known, False
            for value in values:
                if len(value) >= SECRET_CHARS_MIN:
                    is_new = is_new or value not in known
                    known[value] = known.pop(value, ()) or forms(value)  # the newest come last
            for oldest in list(known)[: max(0, len(known) - VALUES_MAX)]:
                del known[oldest]
            if is_new:
                self._forms = tuple({form for every in known.values() for form in every})
                self.longest = max(map(len, map(_bytes, self._forms)))

    def learn_url(self, url: str) -> None:
        """The credentials of a store's URL are hidden, wherever they stand."""
        try:
            password = urlsplit(url).password or ""
        except ValueError:  # no URL: whoever opens it says so
            return
        given = [found[0].partition("=")[2] for found in SECRET_PARAMETER.finditer(url)]
        whole = [url] if safe_url(url) != url else []
        self.learn([*whole, password, unquote(password), *given, *map(unquote, given)])

    def hide(self, text: str, most: int | None = None) -> str:
        """`text`, of which at most the first `most` characters are wanted, with a mask for each secret in it.

        One that is cut off by that bound is hidden too: it is looked for before it is cut.
        """
        also = _also.get()
        known = self._forms if also is None else (*self._forms, *also._forms)
        end = len(text) if most is None else _past_userinfo(text, min(most, len(text)))
        if known:
            seen = text if end == len(text) else text[: end + max(map(len, known))]
            text = _masked(
                seen, [(at, at + len(form)) for form in known if form in seen for at in _places(seen, form)], end
            )
        else:
            text = text[:end]
        return _USERINFO.sub(f"{MASK}@", text) if "://" in text and "@" in text else text

    def cut(self, raw: bytes, at: int) -> int:
        """Where to cut a text that is too long, at `at` or soon after, so that no secret in it is cut in two.

        Nor are the user and the password of a URL, known or not.
        """
        before = -1
        while before < at:
            before = at
            for form in map(_bytes, self._forms):
                found = raw.find(form, max(0, at - len(form) + 1), at + len(form) - 1)
                at = found + len(form) if found >= 0 else at
            at = _past_userinfo(raw, at)
        return at


def _bytes(form: str) -> bytes:
    return form.encode(errors="surrogatepass")


def _past_userinfo(text: str | bytes, at: int) -> int:
    """`at`; or the end of what stands before the host of a URL, where it lies within."""
    first, last = max(0, at - USERINFO_MAX), at + USERINFO_MAX
    if isinstance(text, str):
        ends = (found.span() for found in _UNTIL_HOST.finditer(text, first, last))
    else:
        ends = (found.span() for found in _UNTIL_HOST_RAW.finditer(text, first, last))
    return next((end for start, end in ends if start < at < end), at)


def _places(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)  # it may overlap itself


def _masked(text: str, spans: list[tuple[int, int]], end: int) -> str:
    pieces, at = list[str](), 0
    for start, stop in sorted(spans):
        if start >= end:
            break
        if start >= at:
            pieces += [text[at:start], MASK]
        at = max(at, stop)
    return "".join([*pieces, text[at:end]])


known = Redactor()
"""What this process knows to be secret."""
_also: ContextVar[Redactor | None] = ContextVar("_also", default=None)


@contextmanager
def hiding(payload: object) -> Generator[None]:
    """Within it all texts hide also what stands in `payload`, plain data, under a name such as `password` (BR-95)."""
    redactor = Redactor()
    redactor.learn(_named(payload))
    token = _also.set(redactor)
    try:
        yield
    finally:
        _also.reset(token)


def _named(payload: object) -> Iterator[str]:
    """The texts below secret names, of the first NODES_MAX values."""
    waiting: deque[tuple[object, bool]] = deque([(payload, False)])
    for _ in range(NODES_MAX):
        if not waiting:
            return
        value, is_secret = waiting.popleft()
        if isinstance(value, dict):
            fields = cast("dict[object, object]", value)
            waiting += [(one, is_secret or bool(SECRET_NAME.search(str(name)))) for name, one in fields.items()]
        elif isinstance(value, list):
            waiting += [(one, is_secret) for one in cast("list[object]", value)]
        elif is_secret and isinstance(value, str):
            yield value


def safe_url(url: str) -> str:
    """`url` without credentials, for logs and messages; of a malformed one it hides too much, never too little."""
    scheme_match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url)
    scheme = scheme_match[0] if scheme_match else ""
    # Up to the LAST @: an unencoded password may hold '@', '/', '?' and '#'.
    at = url.rfind("@")
    secret = SECRET_PARAMETER.search(url)
    if secret and secret.start() < at:
        return f"{scheme}{MASK}"  # Either a password holds '?', or a parameter holds '@': no telling where it ends.
    shown = f"{scheme}{MASK}{url[at:]}" if at >= 0 else url
    return SECRET_PARAMETER.sub(rf"\1{MASK}", shown)


def store_name(url: str) -> str:
    """Which store a URL means, without credentials or options: two that name one server alike have one name."""
    shown = safe_url(url)
    if not re.match(r"(redis|rediss|unix)://", shown):
        return MASK  # nobody can tell what of it is an address
    try:
        parts = urlsplit(shown)
        host, port = parts.hostname or "localhost", parts.port or 6379
    except ValueError:
        return MASK
    path = parts.path.strip("/")
    db = (parse_qs(parts.query).get("db") or [path if parts.scheme != "unix" else ""])[0] or "0"
    if parts.scheme == "unix":
        return f"unix://{parts.path}?db={db}"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}/{db}"


# --- what leaves a process ------------------------------------------------------------------------------------------


class HidingFormatter(logging.Formatter):
    """A formatter whose whole line, traceback and all, whichever library wrote it, shows no known secret."""

    def format(self, record: logging.LogRecord) -> str:
        return known.hide(super().format(record))


def install(level: str) -> None:
    """Has this process write its log to stderr without secrets, and there too what Python itself says of an error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
    sys.excepthook = lambda _kind, error, _trace: show(error)
    sys.unraisablehook = lambda said: _log.error("%s", said.err_msg or "ignored", exc_info=said.exc_value)
    threading.excepthook = _of_a_thread


def show(error: BaseException) -> None:
    """Writes its traceback to stderr."""
    sys.stderr.write(known.hide("".join(traceback.format_exception(error))))


def _of_a_thread(said: threading.ExceptHookArgs) -> None:
    if not issubclass(said.exc_type, SystemExit):
        name = said.thread.name if said.thread is not None else "that is gone"
        _log.error("thread %s ended by an error", name, exc_info=said.exc_value)
