"""docs/keys.md lists every key: those that Python names, those that Lua writes, and no other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from house.reading import the_house
from owned_keys import owned_keys
from treadle.shared.store import keys

SHAPES = {key.shape for key in owned_keys()}
NO_KEYS = frozenset({"hash_tag", "partition_of", "base", "checkpoint_name"})
PARTITION_KEY = re.compile(r"'(@[a-z]+:?)'")
GROUP_KEY = re.compile(r"'(:[a-z0-9]+:?)'")


def named_in_python() -> Iterator[str]:
    for name, function in inspect.getmembers(keys, inspect.isfunction):
        if function.__module__ != keys.__name__ or name in NO_KEYS:
            continue
        arguments = ["" if number == 0 else "<>" for number in range(len(inspect.signature(function).parameters))]
        if name == "body":
            yield from (function("", "<>", "<>", body) for body in ("in", "ck0", "ck1", "rs", "fl", "nd", "rv"))
        else:
            yield function(*arguments).removeprefix(":{org}:")


def named_in_lua() -> Iterator[str]:
    for path in the_house().lua_files:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("--")]
        for line in lines:
            yield from (name + ("<>" if name.endswith(":") else "") for name in PARTITION_KEY.findall(line))
            yield from ("<>" + name + ("<>" if name.endswith(":") else "") for name in GROUP_KEY.findall(line))


def test_every_key_that_python_names_has_its_row() -> None:
    assert sorted(set(named_in_python()) - SHAPES) == []


def test_every_key_that_lua_writes_has_its_row() -> None:
    found = set(named_in_lua())
    assert len(found) > 30, "the keys in Lua are not found any more"
    assert sorted(found - SHAPES) == []


def test_every_row_is_a_key_that_is_named_somewhere() -> None:
    assert sorted(SHAPES - set(named_in_python()) - set(named_in_lua())) == []


def test_every_key_has_an_owner_a_bound_and_an_end() -> None:
    assert [key.name for key in owned_keys() if not (key.owner and key.bound and key.until)] == []
