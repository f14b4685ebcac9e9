"""Settings: defaults, bounds, and messages that name the variable and never a password."""

from __future__ import annotations

import os
import traceback

import pytest
from treadle.shared.errors import Misuse
from treadle.shared.redaction import safe_url
from treadle.shared.settings import SLOTS_MAX, Settings, cpu_count, settings_table


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("TREADLE_"):
            monkeypatch.delenv(name)


def refused(**given: object) -> str:
    with pytest.raises(Misuse) as caught:
        Settings(**given)
    return str(caught.value)


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = Settings()
    assert settings.url == "redis://127.0.0.1:6379/0"
    assert (settings.prefix, settings.partitions) == ("treadle", None)
    assert (settings.lease_ttl_s, settings.grace_s, settings.slots) == (10, 20, cpu_count())
    assert 1 <= settings.slots <= SLOTS_MAX


def test_the_environment_is_read_and_a_given_value_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_SLOTS", "7")
    monkeypatch.setenv("TREADLE_PREFIX", "other.1_a-b")
    monkeypatch.setenv("TREADLE_PARTITIONS", "256")
    settings = Settings(slots=3, prefix=None)
    assert (settings.slots, settings.prefix, settings.partitions) == (3, "other.1_a-b", 256)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_LEASE_TTL_S", "")
    monkeypatch.setenv("TREADLE_PARTITIONS", "")
    assert (Settings().lease_ttl_s, Settings().partitions) == (10, None)


@pytest.mark.parametrize(
    ("variable", "least", "most"),
    [
        ("TREADLE_PARTITIONS", "1", "256"),
        ("TREADLE_LEASE_TTL_S", "0.5", "3600"),
        ("TREADLE_SLOTS", "1", "1024"),
        ("TREADLE_GRACE_S", "0", "3600"),
        ("TREADLE_PREFIX", "x", "x" * 64),
    ],
)
def test_both_ends_of_a_bound_are_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, least: str, most: str
) -> None:
    for value in (least, most):
        monkeypatch.setenv(variable, value)
        kept = getattr(Settings(), variable.removeprefix("TREADLE_").lower())
        assert kept == type(kept)(value)


@pytest.mark.parametrize(
    ("variable", "value", "bound"),
    [
        ("TREADLE_PARTITIONS", "0", "1 to 256"),
        ("TREADLE_PARTITIONS", "257", "1 to 256"),
        ("TREADLE_PARTITIONS", "many", "1 to 256"),
        ("TREADLE_LEASE_TTL_S", "0.49", "0.5 to 3600 s"),
        ("TREADLE_LEASE_TTL_S", "3601", "0.5 to 3600 s"),
        ("TREADLE_LEASE_TTL_S", "nan", "0.5 to 3600 s"),
        ("TREADLE_SLOTS", "0", "1 to 1024"),
        ("TREADLE_SLOTS", "1.5", "1 to 1024"),
        ("TREADLE_GRACE_S", "-1", "0 to 3600 s"),
        ("TREADLE_GRACE_S", "inf", "0 to 3600 s"),
        ("TREADLE_PREFIX", "a:b", "1 to 64 of A-Z"),
        ("TREADLE_PREFIX", "{a}", "1 to 64 of A-Z"),
        ("TREADLE_PREFIX", "a\n", "1 to 64 of A-Z"),
        ("TREADLE_PREFIX", "x" * 65, "1 to 64 of A-Z"),
        ("TREADLE_URL", "http://127.0.0.1", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "127.0.0.1:6379", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "redis://127.0.0.1:port/0", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "redis://127.0.0.1/zero", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "redis:///0", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "unix://", "redis://, rediss:// or unix://"),
        ("TREADLE_URL", "unix:///run/s.sock?db=x", "redis://, rediss:// or unix://"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable_itself_and_the_bound(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, bound: str
) -> None:
    monkeypatch.setenv(variable, value)
    message = refused()
    assert message.startswith(f"{variable}: {value!r} is not allowed")
    assert bound in message


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1",
        "redis://user:secret@host:6380/15",
        "rediss://host/",
        "redis://[::1]:6379/0",
        "unix:///run/s.sock?db=0",
        "unix:///run/a%20b/s.sock",
    ],
)
def test_urls_that_the_client_understands_are_taken_as_they_are(url: str) -> None:
    assert Settings(url=url).url == url


def test_a_given_value_is_named_as_given_and_every_wrong_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_GRACE_S", "soon")
    assert refused(slots=0).splitlines() == [
        "slots (TREADLE_SLOTS): 0 is not allowed; must be 1 to 1024 (default: number of CPUs)",
        "TREADLE_GRACE_S: 'soon' is not allowed; must be 0 to 3600 s (default: `20`)",
    ]


def test_an_unknown_setting_is_refused_without_its_value() -> None:
    message = refused(password="hunter2")
    assert message.startswith("password: there is no such setting; use one of url, prefix")
    assert "hunter2" not in message


HOSTILE = [
    "redis://user:hunter2@host:6379/0",
    "redis://:hunter2@host",
    "redis://hunter2@host",
    "redis://:p@hunter2@host:1/0",
    "redis://:a/hunter2@host:1/0",
    "redis://:a?hunter2@host:1/0",
    "redis://:a#hunter2@host:1/0",
    "redis://:hunter2?user=b@host/0",
    "redis://host/0?password=hunter2",
    "redis://host/0?db=1&username=hunter2&x=y",
    "redis://host/0?password=a@hunter2",
    "redis://host/0?ssl_PASSWORD=hunter2",
    "unix://user:hunter2@/run/s.sock?db=0",
    "user:hunter2@host",
    "://:hunter2@host",
    "redis://:hunter2@[host:x/0",
]


@pytest.mark.parametrize("url", HOSTILE)
def test_no_password_is_ever_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert "hunter2" not in safe_url(url)
    monkeypatch.setenv("TREADLE_URL", url)
    try:
        shown = repr(Settings()) + str(Settings())
    except Misuse:
        shown = traceback.format_exc()
    assert "hunter2" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:pw@host:6379/0?db=1", "redis://***@host:6379/0?db=1"),
        ("redis://host/0?password=pw&db=1", "redis://host/0?password=***&db=1"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///run/s.sock?db=0", "unix:///run/s.sock?db=0"),
        ("", ""),
    ],
)
def test_what_is_no_secret_stays_readable(url: str, shown: str) -> None:
    assert safe_url(url) == shown


def test_the_table_has_a_row_for_each_setting() -> None:
    head, rule, *rows = settings_table().splitlines()
    assert head == "| Variable | Unit | Bounds | Default | Meaning |"
    assert rule == "| --- | --- | --- | --- | --- |"
    assert [row.split("`")[1] for row in rows] == [f"TREADLE_{name.upper()}" for name in Settings.model_fields]
    assert rows[3].startswith("| `TREADLE_LEASE_TTL_S` | s | 0.5 to 3600 | `10` | How long an Execution Lease lives")
    assert all(cell.strip() for row in rows for cell in (row.split("|")[i] for i in (1, 3, 4, 5)))
