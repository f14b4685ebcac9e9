"""deploy/redis.conf on a real server: accepted, and in force."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from house.deployed import conf_of
from house.reading import ROOT
from servers import LEGS, binary_of, wait_until
from treadle.shared.processes import spawn

pytestmark = pytest.mark.slow

CONF = ROOT / "deploy/redis.conf"


@pytest.mark.parametrize("leg", LEGS)
def test_a_server_runs_with_the_file(leg: str, place: Path) -> None:
    folder = place / "fleet"
    folder.mkdir()
    socket = folder / "s.sock"
    # Only where it listens and where it keeps its data differ from a container's.
    text = CONF.read_text(encoding="utf-8")
    assert "\ndir /data\n" in text
    (folder / "redis.conf").write_text(text.replace("\ndir /data\n", f"\ndir {folder}\n"))
    argv: list[str | Path] = [binary_of(leg), folder / "redis.conf", "--port", "0", "--unixsocket", socket]
    with (folder / "log").open("wb") as log:
        server = spawn(argv, stdout=log, stderr=log)
    try:
        wait_until(lambda: socket.exists() or server.poll() is not None, description="it listens")
        assert server.poll() is None, (folder / "log").read_text()
        with redis.Redis(unix_socket_path=str(socket), decode_responses=True) as client:
            given = conf_of(text)
            for name in ("appendonly", "appendfsync", "maxmemory-policy", "stream-node-max-bytes", "save"):
                assert client.config_get(name) == {name: given[name]}
            assert client.config_get("maxmemory") == {"maxmemory": str(1 << 30)}
    finally:
        server.stop(grace_s=5)
