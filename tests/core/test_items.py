"""An item reaches the store as it was written: instants, waits, retries; and its digest tells two contents apart."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator.core.items import BATCH_BYTES_MAX, BATCH_MAX, batches, plan_items
from treadle.coordinator.specs import Retry, WorkSpec
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import NewItem
from treadle.shared.names import name_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW_MS = 1_893_456_000_000


def planned(*, now_ms: int | None = NOW_MS, **fields: Any) -> NewItem:
    (item,) = plan_items([WorkSpec(**{"id": "a", "capability": "index", **fields})], now_ms=now_ms)
    return item


def refusal(**fields: Any) -> str:
    with pytest.raises(Misuse) as caught:
        planned(**fields)
    return str(caught.value)


# --- time (BR-53) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2031, 3, 30, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # skipped by the clocks that day
        datetime(2031, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # there twice: the first
        datetime(2031, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2031, 1, 1, 12, 0, 0, 7_000, tzinfo=ZoneInfo("Asia/Kathmandu")),
    ],
)
def test_an_instant_is_the_same_instant_in_the_store(moment: datetime) -> None:
    item = planned(deadline=moment, not_before=moment)
    for milliseconds in (item.deadline_ms, int(item.not_before)):
        assert EPOCH + timedelta(milliseconds=milliseconds) == moment.astimezone(UTC)


def test_a_wait_counts_from_the_store_s_now_and_is_never_shorter_than_asked() -> None:
    assert planned(not_before=timedelta(seconds=5)).not_before == "+5000"
    assert planned(not_before=timedelta(microseconds=1)).not_before == "+1"
    assert planned(not_before=timedelta(0)).not_before == ""
    assert planned(not_before=datetime(2031, 1, 1, 0, 0, 0, 1, tzinfo=UTC)).not_before == "1924992000001"
    assert planned(not_before=datetime(1960, 1, 1, tzinfo=UTC)).not_before == ""
    assert planned(not_before=None).not_before == ""


def test_what_is_too_far_away_or_past_is_refused_by_its_name() -> None:
    far = datetime(9999, 1, 1, tzinfo=UTC)
    assert refusal(not_before=far).startswith('work[0] (id "a"): not_before: 9999-01-01T00:00:00+00:00 is too far away')
    assert refusal(deadline=EPOCH + timedelta(days=1)).startswith(
        'work[0] (id "a"): deadline: 1970-01-02T00:00:00+00:00'
    )
    assert planned(deadline=EPOCH + timedelta(days=1), now_ms=None).deadline_ms == 86_400_000


# --- retry and time-out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "packed"),
    [
        (3, ""),
        (Retry(), ""),
        (Retry(retries=3), ""),
        (0, "0 1000 300000"),
        (100, "100 1000 300000"),
        (Retry(retries=5, first_s=0.5, most_s=60), "5 500 60000"),
        ({"first_s": 0.0015}, "3 2 300000"),
    ],
)
def test_a_retry_is_said_only_where_it_is_not_the_default(retry: int | Retry, packed: str) -> None:
    assert planned(retry=retry).retry == packed


def test_the_time_out_is_the_worker_s_to_know() -> None:
    assert planned().contract == b""
    assert codec.unpack(planned(timeout_s=2).contract, what="contract") == {"timeout_s": 2.0}


def test_tools_and_budgets_are_the_worker_s_to_know_in_one_order() -> None:
    contract = planned(tools=["b", "a", "b"], budgets={"tokens": 10**12, "cents": 0}).contract
    assert codec.unpack(contract, what="contract") == {"tools": ["a", "b"], "budgets": {"cents": 0, "tokens": 10**12}}
    assert contract == planned(tools=["a", "b"], budgets={"cents": 0, "tokens": 10**12}).contract


# --- payloads (BR-59, BR-61, BR-65) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-(2**63), 2**63, 2**64 - 1])
def test_the_whole_numbers_that_fit_round_trip(number: int) -> None:
    inputs = {"items": [{"id": 0}, {"id": [number]}]}
    assert codec.unpack(planned(inputs=inputs).inputs, what="inputs") == inputs


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64])
def test_the_whole_numbers_that_do_not_are_refused_with_their_path(number: int) -> None:
    said = refusal(inputs={"items": [0, 0, 0, {"id": number}]})
    assert said.startswith(f'work[0] (id "a"): inputs.items[3].id: {number} is outside -2**63 .. 2**64-1')


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({1: 2}, "key 1 is of type int"),
        ({(1, 2): 0}, "key (1, 2) is of type tuple"),
        ({b"k": 1, "k": 2}, "key b'k' is of type bytes"),
        ({"deep": {"er": {None: 0}}}, "inputs.deep.er: key None is of type NoneType"),
    ],
)
def test_keys_that_no_reader_would_read_are_refused(inputs: dict[Any, Any], said: str) -> None:
    assert said in refusal(inputs=inputs)


def test_inputs_are_taken_up_to_their_limit_and_not_beyond() -> None:
    head = len(codec.pack({"b": b"x" * 70_000}, field="inputs", limit=codec.INPUTS_MAX)) - 70_000
    for less in (1, 0):
        item = planned(inputs={"b": b"x" * (codec.INPUTS_MAX - head - less)})
        assert len(item.inputs) == codec.INPUTS_MAX - less
    said = refusal(inputs={"b": b"x" * (codec.INPUTS_MAX - head + 1)})
    assert "inputs: 1,048,577 bytes when packed, at most 1,048,576" in said


# --- names in any script ---------------------------------------------------------------------------------------------

NAMES = [
    "łódź",
    "写真 17",
    "\N{ROCKET}\N{ZERO WIDTH JOINER}x",
    "\u202eabc\u202c",
    "a\nb\x00\x1b[31m",
    "{p}:a/b %2F",
    " ",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_any_script_comes_back_as_it_was(name: str) -> None:
    first, second = plan_items(
        [WorkSpec(id=name, capability="index"), WorkSpec(id="b", capability="index", after=[name])], now_ms=None
    )
    assert (name_of(first.item), [name_of(other) for other in second.after]) == (name, [name])
    assert first.item.isascii()
    assert first.item.isprintable()


def test_a_lone_surrogate_is_refused_by_its_field() -> None:
    assert "id: '\\ud800' holds a lone surrogate" in refusal(id="\ud800")


# --- order and digest ------------------------------------------------------------------------------------------------


def test_items_may_wait_for_what_is_in_their_mission_already() -> None:
    items = plan_items(
        [WorkSpec(id="c", capability="index", after=["b", "old"]), WorkSpec(id="b", capability="index")], now_ms=None
    )
    assert [item.item for item in items] == ["b", "c"]
    assert items[1].after == ("b", "old")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    """The same content with the keys of its dicts the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(child) for child in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_the_digest_does_not_depend_on_the_order_of_keys(inputs: dict[str, Any]) -> None:
    assert planned(inputs=inputs).digest == planned(inputs=shuffled(inputs)).digest


def test_the_digest_depends_on_everything_else() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"id": "b"},
        {"capability": "other"},
        {"inputs": {"n": 1}},
        {"inputs": {"n": True}},
        {"inputs": {"n": 1.0}},
        {"after": ["x"]},
        {"slots": 2},
        {"urgency": "high"},
        {"business_impact": 1},
        {"deadline": datetime(2031, 1, 1, tzinfo=UTC)},
        {"start_by_s": 61},
        {"not_before": datetime(2031, 1, 1, tzinfo=UTC)},
        {"not_before": timedelta(seconds=1)},
        {"retry": 4},
        {"timeout_s": 1.0},
        {"tools": ["search"]},
        {"budgets": {"tokens": 1}},
        {"budgets": {"tokens": 2}},
        {"approval": True},
        {"risk": "low"},
        {"risk": "high"},
        {"resources": {"gpu": 1}},
        {"resources": {"gpu": 2}},
    ]
    digests = [planned(**change).digest for change in changes]
    for (one, first), (other, second) in itertools.combinations(zip(changes, digests, strict=True), 2):
        assert first != second, (one, other)
    assert all(len(digest) == 32 for digest in digests)


def test_what_is_given_twice_in_two_forms_is_the_same() -> None:
    assert planned(inputs={"n": (1, 2)}).digest == planned(inputs={"n": [1, 2]}).digest
    assert planned(retry=Retry(retries=5)).digest == planned(retry=5).digest
    assert planned(after=["x", "y"]).digest == planned(after=["y", "x"]).digest


# --- batches ---------------------------------------------------------------------------------------------------------


def test_batches_keep_the_order_and_the_bounds() -> None:
    work = [WorkSpec(id=f"i{index}", capability="index") for index in range(2 * BATCH_MAX + 1)]
    items = plan_items(work, now_ms=None)
    pieces = list(batches(items))
    assert [len(piece) for piece in pieces] == [BATCH_MAX, BATCH_MAX, 1]
    assert tuple(itertools.chain(*pieces)) == items
    blob = {"b": b"x" * (BATCH_BYTES_MAX // 2)}
    heavy = plan_items([WorkSpec(id=f"i{index}", capability="index", inputs=blob) for index in range(3)], now_ms=None)
    assert [len(piece) for piece in batches(heavy)] == [1, 1, 1]
    assert list(batches(())) == []


# --- whom it is offered to -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "offer"),
    [
        ({}, ""),
        ({"offer_s": 5}, "- 5000"),
        ({"offer_to": ["a"]}, "preferred:a 10000"),
        ({"offer_to": ["a", "b, c"], "offer_s": 0.1}, "preferred:a,b%2C%20c 100"),
        ({"offer_to": ["a"], "offer": "named"}, "named:a 0"),
        ({"offer_to": ["a"], "offer": "named", "offer_s": 60}, "named:a 60000"),
    ],
)
def test_whom_it_is_offered_to_reaches_the_store(fields: dict[str, Any], offer: str) -> None:
    assert planned(**fields).offer == offer


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"offer_to": []}, "offer_to: 0 Workers, must be 1 to 16; leave it out to offer it to all"),
        ({"offer_to": [f"w{number}" for number in range(17)]}, "offer_to: 17 Workers, must be 1 to 16"),
        ({"offer_to": ["a", "a"]}, "offer_to: ['a', 'a'] names a Worker twice"),
        ({"offer_to": "a"}, "offer_to: 'a' must be a list, not one str"),
        ({"offer_to": ["a"], "offer": "all"}, "offer: 'all'"),
        ({"offer": "named"}, 'offer: "named" without offer_to'),
        ({"offer_to": ["a"], "offer_s": 0}, "offer_s: 0 must be 0.1 to 2,592,000"),
        ({"offer_to": ["a"], "offer_s": 2_592_001}, "offer_s: 2592001 must be 0.1 to 2,592,000"),
        ({"offer_to": ["x" * 300]}, "offer_to: 300 bytes, must be 1 to 256"),
    ],
)
def test_an_offer_to_nobody_known_is_refused(fields: dict[str, Any], said: str) -> None:
    assert said in refusal(**fields)


def test_an_item_offered_to_all_has_the_digest_it_always_had_and_another_offer_is_another_content() -> None:
    assert planned().digest == planned(offer="preferred").digest
    digests = {planned(**fields).digest for fields in ({}, {"offer_s": 5}, {"offer_to": ["a"]}, {"offer_to": ["b"]})}
    assert len(digests) == 4


@pytest.mark.parametrize("version", ["1", "1.2", "v1.2.0", "1.2.0-rc1", "01.2.0", ""])
def test_a_version_is_written_in_full(version: str) -> None:
    assert 'is no version; write it as "1.2.0"' in refusal(version=version)


def test_r27_a_version_that_is_asked_for_reaches_the_store_and_is_content() -> None:
    assert planned(version="1.2.0").capability == "index~1.2.0"
    assert len({planned(version=version).digest for version in (None, "1.2.0", "1.2.1")}) == 3
