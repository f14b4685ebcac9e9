"""No known secret stands in text that leaves a process: a table of the forms, and what cutting, threads and bounds do to it."""

from __future__ import annotations

import base64
import copy
import json
import logging
import subprocess
import sys
import threading
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treadle.shared.errors import Misuse
from treadle.shared.redaction import (
    MASK,
    NODES_MAX,
    SECRET_CHARS_MIN,
    VALUES_MAX,
    HidingFormatter,
    Redactor,
    Secrets,
    hiding,
    store_name,
)
from treadle.worker.slots.failures import Failure, failure_of, printable, traceback_of

SECRET = "q7/k'\"\\ü&+ §"
KEY = "-----BEGIN KEY-----\nAAAABBBBCCCC\nDDDDEEEEFFFF\n-----END KEY-----\n"


def knowing(*secrets: str) -> Redactor:
    redactor = Redactor()
    redactor.learn(secrets)
    return redactor


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        ascii(SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        *(base64.b64encode(bytes(before) + SECRET.encode() + b"x").decode() for before in range(4)),
        *(base64.urlsafe_b64encode(b"user:"[before:] + SECRET.encode()).decode() for before in range(4)),
    ],
)
def test_s17_a_secret_is_hidden_however_it_is_written(written: str) -> None:
    hidden = knowing(SECRET).hide(f"before {written} after")
    assert MASK in hidden
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert len(hidden) < len(f"before {MASK} after") + 12, "what stood before it in the same code, and no more"


@given(st.text(min_size=SECRET_CHARS_MIN, max_size=40), st.text(max_size=20), st.text(max_size=20), st.integers(0, 99))
def test_s17_whatever_the_secret_is_no_text_with_it_shows_it(secret: str, before: str, after: str, most: int) -> None:
    assume("*" not in secret)
    redactor = knowing(secret)
    for written in (secret, json.dumps(secret), repr(secret)):
        text = f"{before}{written}{after}"
        assert secret not in redactor.hide(text)
        assert redactor.hide(text)[:most].startswith(redactor.hide(text, most)[: max(0, most - len(MASK))])


def test_each_line_of_a_key_is_hidden_where_it_stands_alone() -> None:
    assert knowing(KEY).hide("it has DDDDEEEEFFFF, twice: AAAABBBBCCCC") == f"it has {MASK}, twice: {MASK}"


def test_secrets_that_overlap_leave_nothing_of_each_other() -> None:
    assert knowing("abcdefgh", "fghijklm").hide("abcdefghijklm") == MASK


def test_a_secret_that_is_cut_off_by_the_bound_is_hidden_too() -> None:
    text = "x" * 15 + "sesame-open" + "y" * 100
    for most in range(10, 30):
        shown = knowing("sesame-open").hide(text, most)
        assert "ses" not in shown
        assert len(shown) <= most + len(MASK)


def test_what_is_too_short_to_be_told_from_words_is_no_secret_here() -> None:
    assert knowing("in", "").hide("in the beginning") == "in the beginning"


def test_the_last_secrets_are_known_and_the_oldest_is_forgotten() -> None:
    redactor = knowing(*(f"secret-{number:05}" for number in range(VALUES_MAX)))
    redactor.learn(["secret-00000"])  # it is in use
    redactor.learn(["another-one"])
    assert redactor.hide("secret-00000 another-one") == f"{MASK} {MASK}"
    assert redactor.hide("secret-00001") == "secret-00001"


def test_threads_may_learn_and_hide_at_once() -> None:
    redactor = knowing("known-from-the-start")
    faults: list[str] = []

    def work(number: int) -> None:
        for each in range(50):
            redactor.learn([f"secret-{number}-{each}"])
            faults.extend(
                text for text in (f"secret-{number}-{each}", "known-from-the-start") if redactor.hide(text) != MASK
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_br_95_the_credentials_of_any_url_are_hidden() -> None:
    assert Redactor().hide("at https://ann:hunter2@host/x?y, then a@b") == f"at https://{MASK}@host/x?y, then a@b"
    redactor = Redactor()
    redactor.learn_url("redis://:hun%2Fter2@host/0?password=else-where")
    assert (
        redactor.hide("hun/ter2 hun%2Fter2 else-where redis://:hun%2Fter2@host/0")
        == f"{MASK} {MASK} {MASK} redis://{MASK}@host/0"
    )


URL = "redis://ann:hunter2-of-the-store@host/0"


def test_s17_the_credentials_of_a_url_that_nobody_told_us_of_are_hidden_where_a_text_is_cut_too() -> None:
    text = "x" * 5 + URL + "y" * 50
    for most in range(len(text)):
        shown = Redactor().hide(text, most)
        assert "ann" not in shown
        assert "hunter" not in shown
        assert "store" not in shown
        assert len(shown) <= most + len(f"//{MASK}@")


@pytest.mark.parametrize("written", [URL, f"x{URL} {URL}", f"{URL}{'y' * 2_000}@"])
def test_s17_no_line_is_cut_within_the_credentials_of_a_url(written: str) -> None:
    raw = written.encode()
    for at in range(len(raw)):
        cut = Redactor().cut(raw, at)
        assert at <= cut <= at + len(URL)
        shown = Redactor().hide(raw[:cut].decode()) + Redactor().hide(raw[cut:].decode())
        assert shown == Redactor().hide(written)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:sesame@host", "redis://host:6379/0"),
        ("redis://host:6379/?db=2&password=sesame", "redis://host:6379/2"),
        ("rediss://ann:a/b?c#d@[::1]:7000/1", "rediss://[::1]:7000/1"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("unix://ann:sesame@/run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
        ("redis://host:port", MASK),
        ("sesame", MASK),
    ],
)
def test_a_store_has_one_name_however_its_url_is_written_and_no_credentials_in_it(url: str, name: str) -> None:
    assert store_name(url) == name


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Redactor:
    redactor = knowing(SECRET, "sesame-open")
    for module in ("treadle.shared.redaction", "treadle.worker.slots.failures"):
        monkeypatch.setattr(f"{module}.known", redactor)
    return redactor


@pytest.mark.usefixtures("known")
def test_s17_a_failure_shows_no_secret_in_its_text_its_evidence_or_its_traceback() -> None:
    try:
        try:
            raise ValueError(f"{'x' * 1990} {SECRET}")
        except ValueError as cause:
            raise ExceptionGroup("all of sesame-open", [cause, KeyError(SECRET)]) from cause
    except ExceptionGroup as error:
        failure = failure_of(error, retryable=True)
        said = f"{failure} {failure.text} {failure.evidence()!r} {traceback_of(error)}"
    assert "sesame" not in said
    assert "q7/k" not in said
    assert MASK in said


@pytest.mark.usefixtures("known")
def test_s17_printable_text_shows_no_secret_before_it_is_made_printable() -> None:
    assert printable("a\x00 sesame-open \x1b") == f"a\\x00 {MASK} \\x1b"


@pytest.mark.usefixtures("known")
def test_s17_a_line_of_the_log_shows_no_secret_in_message_arguments_or_traceback() -> None:
    try:
        raise ValueError("sesame-open")
    except ValueError:
        record = logging.LogRecord("redis", logging.INFO, "", 1, "%s and %r", ("sesame-open", SECRET), sys.exc_info())
    line = HidingFormatter().format(record)
    assert "sesame" not in line
    assert "q7/k" not in line
    assert "ValueError" in line


UNHANDLED = """
import threading, warnings
from treadle.shared import redaction
redaction.install("info")
redaction.known.learn(["sesame-open"])
class Bad:
    def __del__(self): raise ValueError("deleted sesame-open")
def work(): raise ValueError("thread sesame-open")
Bad()
thread = threading.Thread(target=work); thread.start(); thread.join()
warnings.warn("warned of sesame-open")
raise ValueError("main sesame-open")
"""


def test_s17_what_python_itself_says_of_an_error_shows_no_secret() -> None:
    ran = subprocess.run([sys.executable, "-c", UNHANDLED], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    assert ran.stdout == ""
    for said in ("deleted", "thread", "warned of", "main"):
        assert f"{said} {MASK}" in ran.stderr
    assert "sesame" not in ran.stderr.replace('"', "").replace("raise ValueError(main sesame-open)", "")


def test_s17_secrets_show_their_names_only_and_go_nowhere() -> None:
    secrets = Secrets({"smtp": "sesame-open", "api": SECRET})
    for shown in (repr(secrets), str(secrets), f"{secrets}", f"{secrets!r:>80}", " ".join(map(str, [secrets]))):
        assert "smtp, api" in shown
        assert "sesame" not in shown
    for protocol in range(6):
        with pytest.raises(TypeError, match=r"Secrets\(smtp, api\) is not pickled"):
            secrets.__reduce_ex__(protocol)
    assert copy.deepcopy(secrets) is copy.copy(secrets) is secrets
    assert not hasattr(secrets, "__dict__")


def test_a_secret_that_is_not_granted_is_asked_for_by_name() -> None:
    secrets = Secrets({"smtp": "sesame-open"})
    assert (secrets["smtp"], dict(secrets)) == ("sesame-open", {"smtp": "sesame-open"})
    with pytest.raises(KeyError, match=r"credential 'api' is not granted to this work \(it has: smtp\)"):
        secrets["api"]
    assert secrets.get("api") is None


def test_secrets_are_gone_once_their_run_is_over() -> None:
    secrets = Secrets({"smtp": "sesame-open"})
    secrets.forget()
    assert dict(secrets) == {}
    secrets.refuse_in(b"sesame-open", "result")


def test_s17_a_secret_in_bytes_is_found_by_its_name() -> None:
    secrets = Secrets({"smtp": "sesame-open", "api": SECRET})
    for raw, name in ((b"\x81\xa1a" + SECRET.encode(), "api"), (base64.b64encode(b"user:sesame-open"), "smtp")):
        with pytest.raises(Misuse, match=f"^result: holds the credential '{name}', and would be kept") as refused:
            secrets.refuse_in(raw, "result")
        assert "sesame" not in str(refused.value)
    secrets.refuse_in(b"nothing of it", "result")


def test_br_95_what_a_payload_calls_secret_is_hidden_where_an_error_tells_of_it() -> None:
    payload = {
        "password": "open-sesame",
        "deep": [{"API-Key": ["key-4711-x"], "e_mail": {"home": "ann@example.org"}}],
        "author": "Shakespeare",
        "tokens": 120,
        "pass": "short",
    }
    text = f"cannot use {payload}"
    with hiding(payload):
        hidden = printable(text)
    for secret in ("open-sesame", "key-4711-x", "ann@example.org"):
        assert secret not in hidden
    for shown in ("Shakespeare", "120", "'pass': 'short'"):
        assert shown in hidden
    assert printable(text) == text, "only there"


def test_br_95_a_huge_payload_is_looked_through_to_a_bound() -> None:
    with hiding({"password": [f"secret-{number:06}" for number in range(2 * NODES_MAX)]}):
        assert printable(f"secret-{NODES_MAX - VALUES_MAX:06}") == MASK
        assert printable(f"secret-{2 * NODES_MAX - 1:06}") == f"secret-{2 * NODES_MAX - 1:06}"


def test_s17_what_another_process_says_of_a_failure_is_hidden_here_too() -> None:
    said = Failure(kind="ValueError", text="with open-sesame", place="open-sesame.py:1", code="", retryable=True)
    with hiding({"password": "open-sesame"}):
        assert str(said.hidden()) == f"{MASK}.py:1: ValueError: with {MASK}"
