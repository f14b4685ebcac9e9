"""Tools by name: what `@tool` takes, what a module holds, and which an item may use."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, cast

import pytest
from treadle.shared.errors import Misuse
from treadle.shared.model import Capability
from treadle.worker import Fail, tool
from treadle.worker.handlers import Handler
from treadle.worker.slots.tools import TOOLS_MAX, allowed, collect_tools, tools_of


def module(**functions: object) -> ModuleType:
    made = ModuleType("handlers")
    vars(made).update(functions)
    return made


def plain(query: str) -> str:
    return query


async def awaited(context: Any, query: str) -> str:
    return f"{query} {context}"


def test_a_module_gives_the_tools_that_stand_in_it() -> None:
    search, index = tool("search")(plain), tool("index")(awaited)
    found = collect_tools(module(search=search, index=index, again=search, number=7, kind=ModuleType))
    assert {name: (one.function, one.is_sync, one.takes_context) for name, one in found.items()} == {
        "search": (plain, True, False),
        "index": (awaited, False, True),
    }
    assert search is plain


def test_functions_by_name_are_tools_too() -> None:
    marked = collect_tools(module(search=tool("search")(plain)))["search"]
    found = tools_of({"find": plain, "size": len, "look": marked})
    assert [(one.name, one.function) for one in found.values()] == [("find", plain), ("size", len), ("look", plain)]


def test_an_object_that_is_awaited_is_a_tool_that_is_awaited() -> None:
    class Search:
        async def __call__(self, query: str) -> str:
            return query

    class Finer(Search): ...

    found = tools_of({"search": Search(), "finer": Finer()})
    assert [one.is_sync for one in found.values()] == [False, False]
    assert not Handler(Capability("find"), "0", cast("Any", Finer())).is_sync


def test_what_is_no_tool_is_refused_by_name() -> None:
    with pytest.raises(Misuse, match=r'write @tool\("search"\), not @tool'):
        tool(plain)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="tool: 'A b' is not a capability name; use 1 to 64"):
        tool("A b")
    with pytest.raises(Misuse, match="tool search: 7 is no function"):
        tool("search")(7)  # type: ignore[type-var]

    def yields() -> Any:
        yield 1

    with pytest.raises(Misuse, match="tool search: has a `yield`"):
        tool("search")(yields)
    with pytest.raises(Misuse, match=f"tools: {TOOLS_MAX + 1:,}, at most {TOOLS_MAX:,}"):
        tools_of({f"t{number}": plain for number in range(TOOLS_MAX + 1)})


def test_two_tools_of_one_name_and_one_that_is_wrapped_are_refused() -> None:
    def first() -> None: ...
    def second() -> None: ...

    tool("search")(first)
    tool("search")(second)
    with pytest.raises(Misuse, match="two tools are called 'search'; keep one"):
        collect_tools(module(first=first, second=second))

    @functools.wraps(first)
    def wrapper() -> None: ...

    with pytest.raises(Misuse, match="tool 'search' is wrapped after @tool; put @tool above the others"):
        collect_tools(module(wrapper=wrapper))


def test_a_tool_that_the_contract_does_not_list_is_refused_by_name_for_good() -> None:
    tools = tools_of({"search": plain, "mail": plain})
    assert allowed("search", {"tools": ["search"]}, tools).function is plain
    for contract, lists in (({}, "none"), ({"tools": ["search", "index"]}, "search, index"), ({"tools": 7}, "none")):
        with pytest.raises(
            Fail, match=rf"tool 'mail': the item's contract does not list it \(it lists: {lists}\)"
        ) as no:
            allowed("mail", contract, tools)
        assert not no.value.retryable
    with pytest.raises(Fail, match="tool 7: the item's contract does not list it"):
        allowed(7, {"tools": ["search"]}, tools)


def test_a_tool_that_this_worker_has_not_may_be_at_another() -> None:
    with pytest.raises(Fail, match=r"tool 'index': is not at this Worker \(it has: search\); mark it with @tool") as no:
        allowed("index", {"tools": ["index"]}, tools_of({"search": plain}))
    assert no.value.retryable
