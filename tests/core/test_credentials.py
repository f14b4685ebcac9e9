"""Which work is granted which secrets, where they are found, and that no fault shows one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from servers import wait_until
from treadle.shared.errors import Misuse, TreadleError, Unavailable
from treadle.shared.processes import Life, identity, life_of
from treadle.shared.redaction import MASK, SECRET_BYTES_MAX, Secrets, known
from treadle.worker import credentials
from treadle.worker.credential_grants import FAULTS_SHOWN_MAX, FILE_BYTES_MAX, GRANTS_MAX, granted, parse
from treadle.worker.credentials import CredentialsFile, secrets_of

GOOD = """
[[grant]]
missions = "*"
capabilities = ["send-*", "index"]
secrets = { smtp = "env:SMTP", api = "file:/run/secrets/api" }

[[grant]]
missions = ["acme/*", "beta/*"]
capabilities = "send-invoice"
secrets.smtp = 'command:vault kv get -field="the key" billing'
"""


def test_a_secret_goes_to_the_missions_and_capabilities_it_is_granted_to_and_later_grants_decide() -> None:
    grants = parse(GOOD, name="c.toml")
    found = granted(grants, "acme/1", "send-invoice")
    assert {name: (source.kind, source.words) for name, source in found.items()} == {
        "smtp": ("command", ("vault", "kv", "get", "-field=the key", "billing")),
        "api": ("file", ("/run/secrets/api",)),
    }
    assert granted(grants, "other", "send-invoice")["smtp"].words == ("SMTP",)
    assert granted(grants, "acme/1", "index").keys() == {"smtp", "api"}
    assert granted(grants, "acme/1", "thumbnails") == {}
    assert parse("", name="c.toml") == ()


def grant(**fields: str) -> str:
    usual = {"missions": '"*"', "capabilities": '"*"', "secrets": '{ a = "env:A" }'} | fields
    return "[[grant]]\n" + "".join(f"{name} = {value}\n" for name, value in usual.items() if value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = hunter2", "c.toml:1: is no TOML"),
        ("[grants]", "c.toml:1: 'grants' is no table of it; write [[grant]]"),
        ("grant = 7", "c.toml:1: grant: must be a list of tables; write [[grant]]"),
        ("grant = [7]", "c.toml:1: grant[0]: must be a table"),
        (grant(missions=""), "c.toml:1: grant[0]: missions is required"),
        (grant(capabilities=""), "grant[0]: capabilities is required"),
        (grant(secrets=""), "grant[0]: secrets is required"),
        (grant(mission='"*"'), "c.toml:5: grant[0]: 'mission' is no field of it; did you mean missions?"),
        (grant(password='"hunter2"'), "grant[0]: 'password' is no field of it; known: missions, capabilities, secrets"),
        (
            grant(missions="7"),
            "c.toml:2: grant[0].missions: 7 is not allowed; must be a pattern as of a shell, 1 to 512",
        ),
        (grant(missions='["a", ""]'), "c.toml:2: grant[0].missions[1]: '' is not allowed"),
        (grant(missions="[]"), "grant[0].missions: 0 patterns, must be 1 to 64"),
        (grant(capabilities=str(["a"] * 65)), "grant[0].capabilities: 65 patterns, must be 1 to 64"),
        (grant(secrets='"hunter2"'), 'grant[0].secrets: must be a table, as { smtp = "env:NAME" }'),
        (grant(secrets="{}"), "grant[0].secrets: 0 secrets, must be 1 to 64"),
        (
            grant(secrets='{ "a b" = "env:A" }'),
            "c.toml:4: grant[0].secrets: 'a b' is no name of a secret; must be 1 to 64",
        ),
        (grant(secrets='{ a = "hunter2" }'), 'grant[0].secrets.a: must be "env:NAME", "file:PATH" or "command:'),
        (grant(secrets='{ a = "hunter2:x" }'), "the secret itself does not belong here"),
        (grant(secrets="{ a = 7 }"), 'grant[0].secrets.a: must be "env:NAME"'),
        (grant(secrets='{ a = "env:A-B" }'), "grant[0].secrets.a: env: must name a variable, as env:SMTP_PASSWORD"),
        (grant(secrets='{ a = "file: " }'), "grant[0].secrets.a: file: must name a file"),
        (grant(secrets='{ a = "file:a\\u0000" }'), "grant[0].secrets.a: file: must name a file"),
        (grant(secrets='{ a = "command:" }'), "grant[0].secrets.a: command: must name a program"),
        (grant(secrets='{ a = "command:a \'hunter2" }'), "command: cannot be read as words (No closing quotation)"),
        (grant() + grant(), "c.toml:8: grant[1].secrets.a: repeats grant[0].secrets.a, for the same missions and"),
        (grant() + grant(secrets='{ a = "env:B" }'), "grant[1].secrets.a: contradicts grant[0].secrets.a"),
        (grant() * (GRANTS_MAX + 1), f"{GRANTS_MAX + 1} grants, at most {GRANTS_MAX}"),
        ("#" * (FILE_BYTES_MAX + 1), f"c.toml: {FILE_BYTES_MAX + 1:,} bytes, at most {FILE_BYTES_MAX:,}"),
    ],
)
def test_a_wrong_credentials_file_names_the_line_the_field_and_the_bound_and_shows_no_source(
    text: str, said: str
) -> None:
    with pytest.raises(Misuse) as refused:
        parse(text, name="c.toml")
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_all_faults_of_a_file_come_at_once_up_to_a_bound() -> None:
    with pytest.raises(Misuse) as refused:
        parse(grant(missions="7") * (FAULTS_SHOWN_MAX + 5), name="c.toml")
    lines = str(refused.value).splitlines()
    assert len(lines) == FAULTS_SHOWN_MAX + 1
    assert lines[-1].startswith("and ")


def test_the_same_secret_for_other_work_is_no_contradiction() -> None:
    assert len(parse(grant() + grant(missions='"acme/*"', secrets='{ a = "env:B" }'), name="c.toml")) == 2


# --- sources ---------------------------------------------------------------------------------------------------------


def file_of(folder: Path, **secrets: str) -> CredentialsFile:
    path = folder / "c.toml"
    path.write_text(
        grant(secrets="{ " + ", ".join(f"{name} = {json.dumps(source)}" for name, source in secrets.items()) + " }")
    )
    return CredentialsFile(path)


async def obtained(provider: credentials.Provider) -> dict[str, str]:
    return dict(await secrets_of(provider, "m", "c"))


async def test_s17_a_variable_is_given_to_the_runs_and_leaves_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMTP_OF_TEST", "sesame-open")
    provider = file_of(tmp_path, smtp="env:SMTP_OF_TEST", again="env:SMTP_OF_TEST")
    assert "SMTP_OF_TEST" not in os.environ
    assert await obtained(provider) == {"smtp": "sesame-open", "again": "sesame-open"}
    assert known.hide("sesame-open") == MASK
    inherited = await anyio.run_process([sys.executable, "-c", "import os; print(os.environ)"])
    assert b"sesame" not in inherited.stdout


OWN_ENVIRONMENT = """
import sys
from pathlib import Path
from treadle.worker.credentials import CredentialsFile
was = Path("/proc/self/environ").read_bytes()
CredentialsFile(Path(sys.argv[1]))
now = Path("/proc/self/environ").read_bytes()
assert b"sesame-open" in was and b"OTHER_OF_TEST=stays" in now
assert b"sesame-open" not in now, "it is still where the kernel shows it"
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here")
def test_s17_the_kernel_does_not_show_the_variable_either(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(grant(secrets='{ a = "env:SMTP_OF_TEST" }'))
    environment = os.environ | {"SMTP_OF_TEST": "sesame-open", "OTHER_OF_TEST": "stays"}
    command = [sys.executable, "-c", OWN_ENVIRONMENT, str(tmp_path / "c.toml")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr


async def test_a_file_is_read_at_each_run_so_that_a_secret_may_change(tmp_path: Path) -> None:
    (tmp_path / "api").write_text("the-first-one\n")
    provider = file_of(tmp_path, api="file:api")
    assert await obtained(provider) == {"api": "the-first-one"}
    (tmp_path / "api").write_text("the-second-one\r\n")
    assert await obtained(provider) == {"api": "the-second-one"}
    assert known.hide("the-first-one the-second-one") == f"{MASK} {MASK}"
    (tmp_path / "api").unlink()
    with pytest.raises(Unavailable, match=r"grant\[0\].secrets.api: file:.*/api: cannot be read \(No such file"):
        await obtained(provider)


async def test_a_command_is_run_without_a_shell_and_what_it_says_beside_is_thrown_away(tmp_path: Path) -> None:
    program = "import sys; sys.stderr.write('beside'); print(sys.argv[1])"
    provider = file_of(tmp_path, key=f'command:{sys.executable} -c "{program}" $HOME;x')
    assert await obtained(provider) == {"key": "$HOME;x"}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('hunter2'); sys.exit('hunter2')", r"failed \(exit status 1\); run it by hand to see"),
        ("import os; print('hunter2', flush=True); os.kill(os.getpid(), 9)", r"failed \(signal 9\)"),
        (f"print('x' * {SECRET_BYTES_MAX})", r"writes more than 65,536 bytes"),
        ("import sys; sys.stdout.buffer.write(b'hunter2' + bytes([255]))", r"is no UTF-8 at byte 7"),
        ("import time; print('hunter2', flush=True); time.sleep(600)", r"has not ended after 0.2 s, it was killed"),
        ("import os, time; os.close(1); time.sleep(600)", r"has not ended after 0.2 s, it was killed"),
        ("print('short')", r"key: has 5 characters, must have at least 6"),
    ],
)
async def test_a_command_that_fails_is_named_without_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    if "0.2 s" in said:
        monkeypatch.setattr(credentials, "COMMAND_S", 0.2)
    provider = file_of(tmp_path, key=f'command:{sys.executable} -c "{program}"')
    with pytest.raises(TreadleError, match=said) as refused:
        await obtained(provider)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_what_a_command_leaves_behind_is_killed_where_it_keeps_the_secret_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "COMMAND_S", 0.5)
    provider = file_of(tmp_path, key=f'command:sh -c "sleep 600 & echo $! > {tmp_path}/pid; echo the-secret"')
    with pytest.raises(Unavailable, match=r"has not ended after 0\.5 s, it was killed"):
        await obtained(provider)
    left = identity(int((tmp_path / "pid").read_text()))
    if left is not None:
        wait_until(lambda: life_of(left) is Life.GONE, description="what it left behind is gone")


async def test_a_secret_that_is_being_written_anew_is_there_at_another_attempt(tmp_path: Path) -> None:
    """A Misuse would fail its item for good."""
    (tmp_path / "api").write_text("the-first-one\n")
    provider = file_of(tmp_path, api="file:api")
    (tmp_path / "api").write_text("")
    with pytest.raises(Unavailable, match=r"grant\[0\].secrets.api: has 0 characters"):
        await secrets_of(provider, "m", "index")
    (tmp_path / "api").write_text("the-second-one\n")
    assert await obtained(provider) == {"api": "the-second-one"}


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    provider = file_of(tmp_path, key="command:no-such-program-of-ours --token hunter2")
    with pytest.raises(Unavailable, match=r"command no-such-program-of-ours: cannot be started \(No such file"):
        await obtained(provider)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("env:NOT_SET_OF_TEST", "the variable NOT_SET_OF_TEST is not set; set it for this process, or name another"),
        (
            "env:SHORT_OF_TEST",
            "env:SHORT_OF_TEST: has 5 characters, must have at least 6: a shorter secret cannot be kept",
        ),
        ("file:gone", "cannot be read (No such file or directory)"),
        ("file:.", "cannot be read (Is a directory)"),
        ("file:pipe", "is no file"),
        ("file:short", "has 5 characters, must have at least 6"),
        ("file:bytes", "is no UTF-8 at byte 7; save it as UTF-8, a key of bytes as base64"),
        ("file:large", "is larger than 65,536 bytes"),
    ],
)
def test_a_source_that_is_wrong_when_a_worker_starts_is_named_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.setenv("SHORT_OF_TEST", "hunte")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "short").write_text("hunte")
    (tmp_path / "bytes").write_bytes(b"hunter2\xff")
    (tmp_path / "large").write_text("x" * (SECRET_BYTES_MAX + 1))
    with pytest.raises(Misuse) as refused:
        file_of(tmp_path, a=source)
    assert said in str(refused.value)
    assert "grant[0].secrets.a" in str(refused.value)
    assert "hunte" not in str(refused.value)


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"c\.toml: cannot be read \(No such file or directory\)"):
        CredentialsFile(tmp_path / "c.toml")


# --- providers -------------------------------------------------------------------------------------------------------


class Gives:
    """A provider that gives, or raises, one thing."""

    def __init__(self, given: object) -> None:
        self.given = given
        self.asked: list[tuple[str, str]] = []

    async def credentials(self, mission: str, capability: str) -> Mapping[str, str]:
        self.asked.append((mission, capability))
        if isinstance(self.given, Exception):
            raise self.given
        if isinstance(self.given, float):
            await asyncio.sleep(self.given)
        return self.given  # type: ignore[return-value]


async def test_a_provider_is_asked_for_the_work_and_what_it_gives_is_hidden_from_then_on() -> None:
    provider = Gives({"smtp": "given-by-a-provider"})
    secrets = await secrets_of(provider, "acme/1", "send-invoice")
    assert isinstance(secrets, Secrets)
    assert dict(secrets) == {"smtp": "given-by-a-provider"}
    assert provider.asked == [("acme/1", "send-invoice")]
    assert known.hide("given-by-a-provider") == MASK


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ("hunter2", Misuse, "the provider gave a str, must be a mapping of name to secret"),
        ({f"a{number}": "hunter2" for number in range(65)}, Misuse, "65 secrets for one run, at most 64"),
        ({7: "hunter2"}, Misuse, "gave a secret with a wrong name; must be 1 to 64"),
        ({"hunter2!": "hunter2"}, Misuse, "gave a secret with a wrong name"),
        ({"a": b"hunter2"}, Misuse, "credentials: a: is a bytes, must be text"),
        ({"a": "hunte"}, Misuse, "credentials: a: has 5 characters, must have at least 6"),
        ({"a": "hunter2\udcff"}, Misuse, "credentials: a: is no UTF-8; encode it, as base64"),
        ({"a": "é" * SECRET_BYTES_MAX}, Misuse, "credentials: a: 131,072 bytes, at most 65,536"),
        (ValueError("hunter2"), Unavailable, "the provider raised ValueError; its text is not shown"),
        (600.0, Unavailable, "the provider took longer than 0.05 s"),
    ],
)
async def test_what_no_secret_may_be_is_refused_by_name_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, given: object, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(credentials, "PROVIDER_S", 0.05 if isinstance(given, float) else 30.0)
    with pytest.raises(kind) as refused:
        await secrets_of(Gives(given), "m", "c")
    assert said in str(refused.value)
    assert "hunte" not in str(refused.value)
    assert refused.value.__cause__ is None
