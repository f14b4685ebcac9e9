"""The contracts on top of the Lua files, as the tests of this folder read them."""

from __future__ import annotations

from functools import cache

from house import lua
from house.reading import the_house


@cache
def contracts() -> dict[str, lua.Contract]:
    """The contract of each function and each operation of a turn, by name."""
    paths = the_house().lua_files
    return {path.stem: lua.contract_of(path) for path in paths if not path.name.startswith("_")}


OPERATIONS = frozenset(name for name, contract in contracts().items() if "as turn" in contract.fields["keys"])
"""What a turn carries."""
