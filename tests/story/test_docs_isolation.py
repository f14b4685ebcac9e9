"""docs/isolation.md does what it says: its grants, handlers, tools and budgets, at a Worker that is started with them."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fresh import FRESH
from treadle.coordinator import JobFailed, SyncClient
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker.credentials import Provider, secrets_of

from docs import page, written

PAGE = page("isolation.md")
ALL = "from invoices import send\nfrom render import render\nfrom research import research, search\n"
SECRETS = {"smtp": "of-smtp-0815", "api": "of-api-4711", "vault": "of-vault-1234"}


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


def prepared(folder: Path) -> dict[str, str]:
    """The files of the page in `folder`, with what its grants name; the environment of its Worker."""
    files = {path.name for path in written(PAGE, folder)}
    assert files == {"credentials.toml", "invoices.py", "vaults.py", "research.py", "question.py", "render.py"}
    (folder / "everything.py").write_text(ALL)
    (folder / "api").write_text(f"{SECRETS['api']}\n")
    vault = folder / "vault"
    vault.write_text(f'#!/bin/sh\n[ "$*" = "kv get -field=key billing" ] && echo {SECRETS["vault"]}\n')
    vault.chmod(0o755)
    grants = folder / "credentials.toml"
    grants.write_text(grants.read_text().replace("/run/secrets/api", "api"))
    path = f"{folder}:{FRESH['PATH']}"
    return {**FRESH, "PATH": path, "SMTP_PASSWORD": SECRETS["smtp"], "RENDER_CACHE": "/cache"}


@pytest.mark.slow
def test_the_examples_run_as_they_stand(
    tmp_path: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = prepared(tmp_path) | {"TREADLE_URL": server.url}
    argv = [sys.executable, "-m", "treadle.worker.cli", "run", "--handlers", "everything", "--slots", "2"]
    with (tmp_path / "log").open("wb") as log:
        argv += ["--credentials", "credentials.toml"]
        worker = subprocess.Popen(argv, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        with SyncClient.connect(server.url) as client:
            sent = client.enqueue("send-invoice", account="acme")
            kept = client.enqueue("send-invoice", account="other", retry=0)
            drawn = client.enqueue("render", {"page": 3})
            found = client.enqueue(imported("question", tmp_path, monkeypatch).question)
            assert sent.result(timeout=60) == {"given": ["api", "smtp", "vault"]}, (tmp_path / "log").read_text()
            assert found.result(timeout=60) == {"found": ["about looms"], "tokens left": 9_880, "calls left": 49}
            result = drawn.result(timeout=60)
            assert (result["page"], result["cache"], result["is mine"]) == (3, "/cache", True)
            with pytest.raises(JobFailed, match=r"credential 'smtp' is not granted to this work \(it has: none\)"):
                kept.result(timeout=60)
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    said = (tmp_path / "log").read_text()
    assert "sending with Secrets(smtp, api, vault): ***" in said
    assert not any(secret in said for secret in SECRETS.values())


def imported(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file of the page, imported here."""
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module(name)
    del sys.modules[name]
    return module


def test_the_provider_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(PAGE, tmp_path)
    provider: Provider = imported("vaults", tmp_path, monkeypatch).Vault()
    given = asyncio.run(secrets_of(provider, "acme/42", "send-invoice"))
    assert dict(given) == {"smtp": "password-of-acme/42"}
