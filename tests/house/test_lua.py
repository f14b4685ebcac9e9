"""Every Lua file begins with its contract, keeps to what each kind of server can run, and has a Python door like it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from house import lua
from house.reading import the_house

GOOD = """\
-- renew: Extends a lease that is still live.
-- keys: the partition's @meta
-- args: replid agent lease ...
-- bound: 256 leases
-- flags: allow-oom
-- refusals: STORE_CHANGED
--   WORK_LEASE_EXPIRED
-- events: none
--
-- Idempotent by Lease ID: it has no lane.
T.calls.renew = function(keys, a) -- os.time() is not asked
  return redis.call('TIME')
end
"""


def files() -> tuple[Path, ...]:
    found = the_house().lua_files
    assert found, "shared/store/lua holds no Lua file: there is no function library to check"
    return found


def public() -> tuple[Path, ...]:
    found = tuple(path for path in files() if not path.name.startswith("_"))
    assert found, "shared/store/lua holds shared pieces only: no transaction to check"
    return found


def doors() -> Mapping[str, tuple[str, ...]]:
    """The Python side: each function's name with the names of its arguments."""
    library = importlib.import_module("treadle.shared.store.library")
    found: Mapping[str, tuple[str, ...]] = library.DOORS
    return found


def test_every_public_file_begins_with_its_contract() -> None:
    assert [fault for path in public() for fault in lua.contract_faults(path)] == []


def test_every_file_runs_on_every_server_and_stays_small() -> None:
    assert [fault for path in files() for fault in lua.code_faults(path)] == []


def test_at_most_one_pcall_stands_in_the_library() -> None:
    found = lua.pcalls(files())
    assert len(found) <= 1, found


def test_every_transaction_has_a_door_with_the_same_arguments() -> None:
    contracts = {path.stem: lua.contract_of(path).words("args") for path in public()}
    assert contracts == {name: lua.words(" ".join(arguments)) for name, arguments in doors().items()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-- renew:", "-- renewal:"),
        ("-- renew: Extends a lease that is still live.\n", ""),
        ("-- bound: 256 leases\n", ""),
        ("-- flags: allow-oom", "-- flags: allow-stale"),
        ("STORE_CHANGED", "STORE_CHANGE"),
        ("-- events: none", "-- events: work.renewed"),
    ],
)
def test_a_broken_contract_is_seen(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "renew.lua"
    path.write_text(GOOD)
    assert list(lua.contract_faults(path)) == []
    path.write_text(GOOD.replace(old, new))
    assert list(lua.contract_faults(path))


def test_a_contract_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "renew.lua"
    path.write_text(GOOD)
    contract = lua.contract_of(path)
    assert contract.words("args") == ("replid", "agent", "lease")
    assert contract.words("refusals") == ("STORE_CHANGED", "WORK_LEASE_EXPIRED")
    assert contract.words("events") == ()


@pytest.mark.parametrize(
    "line",
    [
        "local function f() return os.time() end",
        "local function f() io.write('x') end",
        "local function f(x) return loadstring(x) end",
        "local function f(x) return cjson.decode(x) end",
        "local function f(x) return cmsgpack.unpack(x) end",
        "local function f() return math.random() end",
        "local function f(a, b) return a // b end",
        "local call = redis.call",
        "local floor = math.floor",
        "local format = string.format",
        "local x = 1\n" * (lua.LINES_MAX + 1),
    ],
)
def test_broken_code_is_seen(line: str, tmp_path: Path) -> None:
    path = tmp_path / "_piece.lua"
    path.write_text(GOOD + "local function id(x)\n  if x then return '// os.x' end\nend\n")
    assert list(lua.code_faults(path)) == []
    path.write_text(GOOD + line + "\n")
    assert list(lua.code_faults(path))


def test_pcalls_are_counted_in_code_only(tmp_path: Path) -> None:
    path = tmp_path / "_piece.lua"
    path.write_text("-- the only pcall\nlocal ok = pcall(f)\nlocal text = 'pcall'\nlocal r = redis.pcall('GET', k)\n")
    assert lua.pcalls((path,)) == ["_piece.lua:2", "_piece.lua:4"]
