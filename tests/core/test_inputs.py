"""Typed inputs and results: what becomes plain data and back, and what is said of what does not fit."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, SecretStr, field_validator
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call, Form, Misfit, plain
from treadle.worker import Context, SyncContext, handler
from treadle.worker.handlers import Handler


class Size(enum.Enum):
    SMALL = "small"
    LARGE = 1000


class Thumbs(BaseModel):
    files: list[str]
    size: int = 64


@dataclass(frozen=True)
class Made:
    count: int
    sizes: dict[int, Size] = field(default_factory=dict)


@dataclass
class Everything:
    """One field of each kind that pydantic reads back."""

    made: Made
    thumbs: Thumbs
    id: UUID
    price: Decimal
    path: PurePosixPath
    url: AnyUrl
    host: ipaddress.IPv4Address
    at: datetime
    naive: datetime
    day: date
    clock: time
    wait: timedelta
    tags: set[str]
    raw: bytes
    pair: tuple[int, str]
    none: int | None = None


EVERYTHING = Everything(
    made=Made(3, {1: Size.SMALL, 2: Size.LARGE}),
    thumbs=Thumbs(files=["a"]),
    id=UUID(int=7),
    price=Decimal("1.10"),
    path=PurePosixPath("/a/b"),
    url=AnyUrl("https://example.org/x"),
    host=ipaddress.IPv4Address("127.0.0.1"),
    at=datetime(2030, 1, 2, 3, 4, 5, 6, UTC),
    naive=datetime(2030, 1, 2, 3, 4),
    day=date(2030, 1, 2),
    clock=time(3, 4),
    wait=timedelta(minutes=1.5),
    tags={"b", "a", "c"},
    raw=b"\xff\x00",
    pair=(1, "x"),
)


def stored(value: object) -> object:
    """What the store gives back of a value."""
    return codec.unpack(codec.pack(plain(value), field="result", limit=codec.RESULT_MAX), what="result")


def test_a_typed_value_comes_back_from_the_store_as_it_was() -> None:
    assert Form(Everything, what="x").read(stored(EVERYTHING)) == EVERYTHING
    assert Form(list[Thumbs], what="x").read(stored([Thumbs(files=[])])) == [Thumbs(files=[])]


def test_the_same_value_is_always_the_same_bytes() -> None:
    tags = set("hgfedcba")
    assert plain(Holder(tags)) == {"tags": sorted(tags)}


@dataclass
class Holder:
    tags: set[str]


def test_a_model_inside_plain_data_becomes_plain_and_what_is_beside_it_stays_as_it_is() -> None:
    value = {"a": [Thumbs(files=["x"]), 3], "b": UUID(int=1)}
    assert plain(value) == {"a": [{"files": ["x"], "size": 64}, 3], "b": UUID(int=1)}
    with pytest.raises(Misuse, match=r"result\.b: a value of type uuid\.UUID cannot be stored; use str"):
        stored(value)


def test_a_model_is_kept_under_its_aliases_and_without_what_it_computes() -> None:
    class Aliased(BaseModel):
        kind: str = Field(alias="type")

        @property
        def loud(self) -> str:
            return self.kind.upper()

    assert plain(Aliased(type="a")) == {"type": "a"}
    assert Form(Aliased, what="x").write(type="a") == {"type": "a"}


def test_a_secret_is_not_stored_as_stars() -> None:
    class Login(BaseModel):
        key: SecretStr

    with pytest.raises(Misuse, match=r"result\.key: a value of type pydantic\.types\.SecretStr cannot be stored"):
        stored(Login(key=SecretStr("s3cret")))


def test_a_value_that_holds_itself_is_refused_and_ends() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(Misuse, match="nested deeper"):
        stored(circle)


# --- what does not fit ---


class Login(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: str
    password: str
    pin: SecretStr
    port: int = 1
    size: Any = None
    nested: dict[str, list[int]] = Field(default_factory=dict)

    @field_validator("user")
    @classmethod
    def _known(cls, user: str) -> str:
        if user == "odd":
            raise KeyError(user)
        if user == "nobody":
            raise ValueError(f"{user} is not known here")
        return user


GOOD: dict[str, Any] = {"user": "ann", "password": "pw", "pin": "1"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({**GOOD, "port": "x"}, "^inputs of a: port: 'x': must be a valid integer"),
        ({**GOOD, "port": "y" * 10_000}, r"port: '" + "y" * 76 + r"\.\.\.: must be"),
        ({"user": "ann"}, "^inputs of a: password: is required; pin: is required$"),
        ({**GOOD, "tags": 1}, "tags: is not a field"),
        ({**GOOD, "nested": {"a": [1, {"k": "v"}]}}, r"nested\.a\[1\]: a dict: must be a valid integer"),
        ({**GOOD, "user": "nobody"}, "user: 'nobody': Value error, nobody is not known here"),
        ({**GOOD, "user": "odd"}, "inputs of a: KeyError: "),
        ("text", "inputs of a: 'text': must be a valid dictionary"),
        (None, "inputs of a: None: must be"),
    ],
)
def test_what_does_not_fit_names_field_value_and_what_was_expected(raw: object, said: str) -> None:
    with pytest.raises(Misfit, match=said) as caught:
        Form(Login, what="inputs of a").read(raw)
    assert len(str(caught.value)) < 1_000
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("field_", ["password", "pin"])
def test_a_secret_that_does_not_fit_is_not_shown(field_: str) -> None:
    with pytest.raises(Misfit, match=rf"{field_}: a list \(not shown\): must be") as caught:
        Form(Login, what="inputs of a").read({**GOOD, field_: ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_a_whole_container_is_never_shown() -> None:
    with pytest.raises(Misfit) as caught:
        Form(Thumbs, what="x").read({"files": {"deep": "hunter2"}})
    assert "hunter2" not in str(caught.value)


def test_many_faults_are_counted_not_listed() -> None:
    with pytest.raises(Misfit, match=r"files\[4\].*; and 95 more$"):
        Form(Thumbs, what="x").read({"files": list(range(100))})


def test_a_dataclass_takes_no_field_that_it_has_not_got() -> None:
    with pytest.raises(Misfit, match=r"^x: 'cuont' is not a field; known: count, sizes$"):
        Form(Made, what="x").read({"count": 1, "cuont": 2})


def test_a_type_that_pydantic_cannot_read_is_said_before_any_work() -> None:
    @dataclass
    class Odd:
        what: Callable[..., Any] | Unreadable

    with pytest.raises(Misuse, match="pydantic cannot read"):
        Form(Odd, what="inputs of a").check()


class Unreadable:
    pass


# --- spec ---


@handler("thumbnails", version="2.1.0", inputs=Thumbs)
async def thumbnails(context: Context, inputs: Thumbs) -> Made:  # noqa: ARG001
    return Made(len(inputs.files))


@handler("count", inputs=Made)
def count(context: SyncContext, inputs: Made) -> int:  # noqa: ARG001
    return inputs.count


@handler("plain")
async def untyped(context: Context, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
    return inputs


@handler("inferred")
async def inferred(context: Context, inputs: Thumbs) -> list[Made]:  # noqa: ARG001
    return [Made(len(inputs.files))]


def handler_of(function: object) -> Handler:
    (made,) = vars(function)["__treadle_handlers__"]
    assert isinstance(made, Handler)
    return made


def test_spec_gives_a_call_with_plain_inputs_that_knows_how_to_read_its_result() -> None:
    call = thumbnails.spec(files=["a"])
    assert call == Call(handler_of(thumbnails).capability, "2.1.0", {"files": ["a"], "size": 64}, call.result_of)
    assert call.result_of({"count": 1, "sizes": {"3": "small"}}) == Made(1, {3: Size.SMALL})
    assert count.spec(4).inputs == {"count": 4, "sizes": {}}
    assert count.spec(4).result_of(4) == 4
    assert untyped.spec(a=1).inputs == {"a": 1}
    assert untyped.spec(a=1).result_of([1]) == [1]
    with pytest.raises(Misfit, match="result of thumbnails: count: is required"):
        call.result_of({})


def test_spec_refuses_what_does_not_fit_where_it_is_written() -> None:
    with pytest.raises(Misfit, match="inputs of thumbnails: files: 3: must be a valid list"):
        thumbnails.spec(files=3)  # type: ignore[arg-type]  # that it is refused is the test
    with pytest.raises(Misfit, match=r"inputs of count: .*unexpected keyword argument 'cuont'"):
        count.spec(cuont=1)  # type: ignore[call-arg]  # as above
    with pytest.raises(Misfit, match="inputs of count: count: 'x': must be a valid integer"):
        count.spec(count="x")  # type: ignore[arg-type]  # as above: a dataclass itself would take it
    with pytest.raises(Misuse, match="takes the inputs by name"):
        untyped.spec({"a": 1})


def test_a_parameter_annotated_with_a_type_of_its_own_is_typed_as_well() -> None:
    form = handler_of(inferred).inputs
    assert form is not None
    assert form.kind is Thumbs
    assert inferred.spec(files=["a"]).result_of([{"count": 1}]) == [Made(1)]
    assert handler_of(untyped).inputs is None


def test_a_return_type_that_pydantic_cannot_read_leaves_the_result_as_it_is() -> None:
    @handler("odd")
    async def odd(context: Context, inputs: dict[str, Any]) -> Unreadable: ...  # type: ignore[empty-body]

    assert odd.spec().result_of({"a": 1}) == {"a": 1}  # type: ignore[comparison-overlap]  # its type is a wrong promise


def test_what_is_neither_a_model_nor_a_dataclass_is_refused_as_inputs() -> None:
    with pytest.raises(Misuse, match="is neither a pydantic model nor a dataclass"):
        handler("thumbnails", inputs=dict)
    with pytest.raises(Misuse, match="is neither a pydantic model nor a dataclass"):
        handler("thumbnails", inputs=Made(1))  # type: ignore[call-overload]  # that it is refused is the test


async def test_a_marked_function_is_itself_and_can_be_called() -> None:
    assert await thumbnails(None, Thumbs(files=["a", "b"])) == Made(2)  # type: ignore[arg-type]  # it needs none
    assert count(None, Made(5)) == 5  # type: ignore[arg-type]  # as above
