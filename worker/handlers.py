"""The user's face: `@handler` marks what a Worker can do; `loading.py` finds what is marked.

A handler never sees the store. What it returns is its result; what it saves with `context.checkpoint` is where it goes
on after a crash, elsewhere.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call, Form, as_it_is, is_form
from treadle.shared.model import Capability
from treadle.shared.names import check_capability

from .context import Context as Context
from .context import Fail as Fail
from .context import Stopped as Stopped
from .context import SyncContext as SyncContext
from .slots.limits import Limits

VERSION = re.compile(r"(?:0|[1-9]\d{0,8})(?:\.(?:0|[1-9]\d{0,8})){2}(?:-[0-9A-Za-z.-]{1,32})?")
_MARK = "__treadle_handlers__"

HandlerFunction = Callable[[Any, Any], Any]
"""`async def` with a Context, or `def` with a SyncContext; and the inputs."""
Runtime = Literal["task", "process"]
"""`task`: in the Worker's own process, on its event loop or in a thread. `process`: in a process of its own."""
P = ParamSpec("P")
Inputs = TypeVar("Inputs")
Inputs_contra = TypeVar("Inputs_contra", contravariant=True)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that does the work of one capability."""

    capability: Capability
    version: str
    function: HandlerFunction
    inputs: Form[Any] | None = None
    """What its second parameter is; None: the plain data."""
    result: Form[Any] | None = None
    """What it returns, where it says so."""
    runtime: Runtime | None = None
    """Where it runs; None: where its Worker has those run that say nothing."""
    limits: Limits | None = None
    """What its process may use."""
    environment: tuple[str, ...] = ()
    """Variables of the Worker's environment that its process gets besides the usual few."""
    home: str = ""
    """The module that holds it, for a process of its own to import; '' where that is not known."""
    is_sync: bool = field(init=False)
    """Whether it runs in a thread: a plain `def`."""

    def __post_init__(self) -> None:
        # Of an object with an `async def __call__`, its own or inherited.
        called = inspect.getattr_static(type(self.function), "__call__", None)
        is_async = inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)
        object.__setattr__(self, "is_sync", not is_async)

    @property
    def ends_with_its_run(self) -> bool:
        """Whether nothing of it can go on when its run is over: a thread may, and a process is first proved to be gone."""
        return not self.is_sync and self.runtime != "process"

    @property
    def is_cut_off(self) -> bool:
        """Whether its time-out ends it whatever it does: a thread cannot be stopped."""
        return self.runtime == "process" or not self.is_sync

    @property
    def place(self) -> str:
        """Where the function stands, for messages: file:line and name."""
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name} ({self.line})" if self.line else str(name)

    @property
    def line(self) -> str:
        """Where the function stands, as file:line; '' where nobody knows."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""

    def spec(self, *args: Any, **fields: Any) -> Call[Any]:
        """One piece of work for this handler. Misuse where the fields are not those of its inputs."""
        if self.inputs is None and args:
            raise Misuse(f"handler {self.capability}: spec takes the inputs by name, spec(files=[...])")
        inputs = fields if self.inputs is None else self.inputs.write(*args, **fields)
        # A return type that only people and type checkers understand says nothing of what is stored.
        typed = self.result if self.result is not None and self.result.is_readable else None
        return Call(self.capability, self.version, inputs, as_it_is if typed is None else typed.read)


class AsyncMarked(Protocol[P, Inputs_contra, R]):
    """An `async def` function as `@handler` gives it back: the function itself, and `spec`."""

    def __call__(self, context: Context, inputs: Inputs_contra, /) -> Coroutine[Any, Any, R]: ...

    def spec(self, *args: P.args, **fields: P.kwargs) -> Call[R]:
        """One piece of work for it, to be submitted; its fields are those of the inputs' type."""
        ...


class SyncMarked(Protocol[P, Inputs_contra, R]):
    """A plain function as `@handler` gives it back: the function itself, and `spec`."""

    def __call__(self, context: SyncContext, inputs: Inputs_contra, /) -> R: ...

    def spec(self, *args: P.args, **fields: P.kwargs) -> Call[R]:
        """One piece of work for it, to be submitted; its fields are those of the inputs' type."""
        ...


class _Mark(Protocol):
    @overload
    def __call__(
        self, function: Callable[[Context, Inputs], Coroutine[Any, Any, R]], /
    ) -> AsyncMarked[..., Inputs, R]: ...
    @overload
    def __call__(self, function: Callable[[SyncContext, Inputs], R], /) -> SyncMarked[..., Inputs, R]: ...


class _TypedMark(Protocol[P, Inputs]):
    @overload
    def __call__(
        self, function: Callable[[Context, Inputs], Coroutine[Any, Any, R]], /
    ) -> AsyncMarked[P, Inputs, R]: ...
    @overload
    def __call__(self, function: Callable[[SyncContext, Inputs], R], /) -> SyncMarked[P, Inputs, R]: ...


@overload
def handler(
    capability: str,
    *,
    version: str = ...,
    runtime: Runtime | None = ...,
    limits: Limits | None = ...,
    environment: Sequence[str] = ...,
) -> _Mark: ...
@overload
def handler(
    capability: str,
    *,
    version: str = ...,
    inputs: Callable[P, Inputs],
    runtime: Runtime | None = ...,
    limits: Limits | None = ...,
    environment: Sequence[str] = ...,
) -> _TypedMark[P, Inputs]: ...
def handler(
    capability: str,
    *,
    version: str = "1.0.0",
    inputs: Any = None,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    environment: Sequence[str] = (),
) -> Any:
    """Register a function of (context, inputs) as what does the work of `capability`.

    An `async def` runs on the Worker's event loop, a plain `def` in a thread; with `runtime="process"` both run in a
    process of their own, with `limits`, and with the variables named in `environment` besides the usual few. `inputs` is
    a pydantic model or a dataclass: the function is called with a value of it, and `spec` is checked by type checkers; a
    parameter annotated with one does the same at run time. The function itself is returned, so a test may call it.
    Misuse for a malformed capability or version, and for a function that cannot be called so.
    """
    if not isinstance(capability, str):
        raise Misuse('handler: needs the capability\'s name: write @handler("thumbnails"), not @handler')
    name = Capability(check_capability(capability, field="handler: capability"))
    check_version(name, version)
    if inputs is not None and not is_form(inputs):
        raise Misuse(f"handler {name}: inputs={str(inputs)[:80]} is neither a pydantic model nor a dataclass")

    check_process(name, runtime, limits, environment)

    def register(function: Any) -> Any:
        made = Handler(name, version, function)
        _check_function(made)
        given, result = _annotations(function)
        form = inputs if inputs is not None else given if is_form(given) else None
        made = Handler(
            name,
            version,
            function,
            None if form is None else Form(form, what=f"inputs of {name}"),
            None if result in (Any, None, type(None)) else Form(result, what=f"result of {name}"),
            runtime,
            limits,
            tuple(environment),
        )
        return marked(function, made)

    return register


def marked(function: Any, made: Handler) -> Any:
    """The function itself, found by `collect` from now on, with the handler's `spec`."""
    setattr(function, _MARK, (*getattr(function, _MARK, ()), made))
    function.spec = made.spec
    return function


def marks_of(value: object) -> tuple[Handler, ...]:
    """The handlers that a value was marked as."""
    try:
        marks = vars(value).get(_MARK, ())
    except TypeError:  # has no __dict__: nothing can be registered on it
        return ()
    return cast("tuple[Handler, ...]", marks) if isinstance(marks, tuple) else ()


def check_version(name: str, version: object) -> None:
    """Misuse where it is none."""
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise Misuse(f"handler {name}: version {str(version)[:80]!r} is not of the form '1.0.0'")


def check_process(name: str, runtime: object, limits: object, environment: object) -> None:
    """Misuse for a runtime that is none, and for what only a process of its own has."""
    if runtime not in (None, "task", "process"):
        raise Misuse(f"handler {name}: runtime={str(runtime)[:80]!r}, must be 'task' or 'process'")
    if limits is not None and not isinstance(limits, Limits):
        raise Misuse(f"handler {name}: limits={str(limits)[:80]}, must be Limits(memory_mb=..., cpu_s=...)")
    if isinstance(environment, str) or not all(isinstance(one, str) for one in cast("Sequence[object]", environment)):
        raise Misuse(f"handler {name}: environment={str(environment)[:80]!r}, must be names, as ('DATA_DIR',)")
    if runtime == "task" and (limits is not None or environment):
        raise Misuse(f"handler {name}: limits and environment are for runtime='process'; the Worker's own are shared")


def _check_function(made: Handler) -> None:
    function, name = made.function, made.capability
    if isinstance(function, type) or not callable(function):
        raise Misuse(f"handler {name}: {made.place} is no function; write `async def` or `def`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misuse(f"handler {name}: {made.place} has a `yield`; save with `checkpoint` and return the result")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise Misuse(f"handler {name}: {made.place} must take (context, inputs): {error}") from None


def _annotations(function: Any) -> tuple[Any, Any]:
    """What the second parameter and the return value are declared as; Any where that is not said, or not known here."""
    inner = inspect.unwrap(function)
    names = list(inspect.signature(function).parameters)[1:2]
    found: list[Any] = []
    for name in (*names, "return"):
        # One by one: a name that only type checkers import must not hide the other.
        said = getattr(inner, "__annotations__", {}).get(name, Any)
        try:
            hints = typing.get_type_hints(
                SimpleNamespace(__annotations__={name: said}), globalns=getattr(inner, "__globals__", {})
            )
        except Exception:
            hints = {}
        found.append(hints.get(name, Any))
    return found[0] if names else Any, found[-1]
