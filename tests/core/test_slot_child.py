"""What the process of a slot is before it runs anything: it knows the handlers, and nothing that speaks to the store."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any, cast

import pytest
from asking import given_to
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import Capability
from treadle.worker.handlers import Handler, handler
from treadle.worker.loading import collect, settle
from treadle.worker.slots import child
from treadle.worker.slots.environment import allowed
from treadle.worker.slots.failures import TEXT_MAX, exit_text
from treadle.worker.slots.given import given_of, parts_of
from treadle.worker.slots.limits import Limits
from treadle.worker.slots.piped import Line

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMED = st.dictionaries(st.text(max_size=8), PLAIN, max_size=3)


def test_the_process_of_a_slot_never_imports_what_speaks_to_the_store() -> None:
    code = """
import sys, treadle.worker.slots.child
print([name for name in sys.modules if name.split('.')[0] == 'redis' or name.startswith('treadle.shared.store')])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout == "[]\n"


@given(inputs=NAMED, results=NAMED, resolution=PLAIN)
def test_what_a_run_is_given_arrives_as_it_was(
    inputs: dict[str, Any], results: dict[str, Any], resolution: Any
) -> None:
    whole = given_to(**inputs)._replace(
        item="a/b",
        ownership_epoch=2,
        incarnation=3,
        results=results,
        resolution=resolution,
        contract={"timeout_s": 1.5},
    )
    assert given_of(dict(parts_of(whole))) == whole


async def test_br_95_a_secret_of_the_inputs_is_hidden_before_the_text_of_a_failure_is_cut() -> None:
    run = given_to(password="hunter2-of-the-inputs")

    async def fails(_: Any, inputs: dict[str, Any]) -> None:
        raise ValueError("x" * (TEXT_MAX - 10) + inputs["password"])

    ours, theirs = socket.socketpair()
    with ours, theirs:
        kind, raw = await child._run(Line(ours), Handler(Capability("fails"), "0", fails), run, {})
    failure = cast("dict[str, Any]", codec.unpack(raw, what="failure"))
    assert (kind, failure["type"]) == ("failure", "ValueError")
    assert "hunter" not in failure["text"]


def test_of_the_workers_environment_a_process_gets_what_is_on_the_list_only() -> None:
    """S17: the address of the store may hold a password."""
    got = allowed(
        {"PATH": "/bin", "LC_ALL": "C", "TREADLE_URL": "redis://:secret@host", "AWS_SECRET": "s", "LANG": "x"}
    )
    assert got == {"PATH": "/bin", "LC_ALL": "C", "LANG": "x", "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-9, "killed by signal 9 (SIGKILL): out of memory, or killed by somebody"),
        (-24, "killed by signal 24 (SIGXCPU): it used more processor time than its limit"),
        (-15, "killed by signal 15 (SIGTERM)"),
        (None, "it has ended, and nobody knows how"),
    ],
)
def test_an_end_is_said_by_its_status_or_signal(status: int | None, text: str) -> None:
    assert exit_text(status) == text


@handler("here", runtime="process", limits=Limits(cpu_s=1), environment=["A"])
def here(_context: Any, _inputs: Any) -> None: ...


@handler("unsaid")
def unsaid(_context: Any, _inputs: Any) -> None: ...


def mine() -> dict[Any, Handler]:
    return dict(collect(sys.modules[__name__]))


def test_a_handler_says_where_it_runs_or_its_worker_does() -> None:
    settled = settle(mine(), "task")
    assert {name: one.runtime for name, one in settled.items()} == {"here": "process", "unsaid": "task"}
    assert (settled[mine()["here"].capability].limits, settled[mine()["here"].capability].environment) == (
        Limits(cpu_s=1),
        ("A",),
    )
    assert {one.runtime for one in settle(mine(), "process").values()} == {"process"}


def test_a_handler_that_no_other_process_can_import_is_refused_before_it_runs() -> None:
    @handler("inner", runtime="process")
    def inner(_context: Any, _inputs: Any) -> None: ...

    holder = type(sys)("holder")
    vars(holder)["inner"] = inner
    with pytest.raises(Misuse, match=r"handler inner: .* cannot import it from"):
        settle(collect(holder), "task")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"runtime": "thread"}, "runtime='thread', must be 'task' or 'process'"),
        ({"limits": {"cpu_s": 1}}, r"must be Limits\("),
        ({"environment": "PATH"}, "environment='PATH', must be names"),
        ({"runtime": "task", "limits": Limits(cpu_s=1)}, "limits and environment are for runtime='process'"),
    ],
)
def test_what_a_handler_cannot_ask_for_is_refused_by_its_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        handler("x", **options)
