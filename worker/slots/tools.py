"""Functions that a handler may use by name, as far as its item's contract lists them; each call spends one tool call.

    @tool("search")
    async def search(query: str) -> list[str]: ...

    found = await context.tool("search")("treadle")     # in a plain `def` handler: context.tool("search")("treadle")

A tool that is named `context` in its first parameter gets the context of the run; any other gets what it is called with.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar, cast

from treadle.shared.codec import shown
from treadle.shared.errors import Misuse
from treadle.shared.names import check_capability

from ..context import Fail

F = TypeVar("F", bound=Callable[..., Any])

TOOLS_MAX = 1_024
_MARK = "__treadle_tool__"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function under the name that contracts list."""

    name: str
    function: Callable[..., Any]
    is_sync: bool = field(init=False)
    takes_context: bool = field(init=False)

    def __post_init__(self) -> None:
        try:
            parameters = list(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # no function, or one of a library that says nothing of itself
            parameters = []
        called = inspect.getattr_static(type(self.function), "__call__", None)  # of an object that is awaited
        is_async = inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)
        object.__setattr__(self, "is_sync", not is_async)
        object.__setattr__(self, "takes_context", parameters[:1] == ["context"])


def tool(name: str) -> Callable[[F], F]:
    """Mark a function, `def` or `async def`, as the tool of that name; it is returned as it is. Misuse for a malformed name."""
    if not isinstance(name, str):
        raise Misuse('tool: needs its name: write @tool("search"), not @tool')
    checked = check_capability(name, field="tool")

    def register(function: F) -> F:
        setattr(function, _MARK, _made(checked, function))
        return function

    return register


def collect_tools(module: ModuleType) -> dict[str, Tool]:
    """The tools that stand in `module`, defined or imported there, by name; Misuse where two share one."""
    found: dict[str, Tool] = {}
    for value in list(vars(module).values()):
        one = getattr(value, "__dict__", {}).get(_MARK) if callable(value) else None
        if isinstance(one, Tool):
            if one.function is not value:  # functools.wraps copies the mark: the wrapper would be passed over
                raise Misuse(f"{module.__name__}: tool {one.name!r} is wrapped after @tool; put @tool above the others")
            if found.setdefault(one.name, one) is not one:
                raise Misuse(f"{module.__name__}: two tools are called {one.name!r}; keep one")
    return found


def tools_of(functions: Mapping[str, Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Tools of functions by name; what is a tool already is taken under this name."""
    if len(functions) > TOOLS_MAX:
        raise Misuse(f"tools: {len(functions):,}, at most {TOOLS_MAX:,}")
    return {
        name: _made(check_capability(name, field="tools"), given.function if isinstance(given, Tool) else given)
        for name, given in functions.items()
    }


def check_enclosed(tools: Mapping[str, Tool], modules: Set[str]) -> None:
    """Misuse for a tool that handlers in processes of their own would not have, or would have another of.

    Such a process imports these modules, and has the tools that are marked in them.
    """
    marked: dict[str, Tool] = {}
    for module in modules:
        marked |= collect_tools(sys.modules[module])
    for name, one in tools.items():
        if modules and (name not in marked or marked[name].function is not one.function):
            raise Misuse(
                f"tools: {name!r}: a handler in a process of its own has only the tools that are marked in its module: mark "
                f'it with @tool("{name}") in {" or ".join(sorted(modules)[:4])}, or import it there; or give it to a Worker '
                "whose handlers all have runtime='task'"
            )


def _made(name: str, function: object) -> Tool:
    if isinstance(function, type) or not callable(function):
        raise Misuse(f"tool {name}: {shown(function)} is no function; write `async def` or `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misuse(f"tool {name}: has a `yield`; return what it gives")
    return Tool(name, function)


def allowed(name: object, contract: Mapping[str, Any], tools: Mapping[str, Tool]) -> Tool:
    """The tool of that name. Fail where the item's contract does not list it, or no such tool is here."""
    listed = contract.get("tools", [])
    if not isinstance(name, str) or not isinstance(listed, list) or name not in cast("list[object]", listed):
        has = ", ".join(map(str, cast("list[object]", listed))) if isinstance(listed, list) and listed else "none"
        raise Fail(
            f"tool {shown(name)}: the item's contract does not list it (it lists: {has}); name it in its `tools`"
        )
    if name not in tools:
        has = ", ".join(sorted(tools)[:16]) or "none"
        raise Fail(
            f'tool {name!r}: is not at this Worker (it has: {has}); mark it with @tool("{name}")', retryable=True
        )
    return tools[name]
