"""Mission files: what they give, and that whatever is wrong in one is said with its line and its field."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from treadle.coordinator import MissionSpec, WorkSpec
from treadle.coordinator.core.mission_files import decode, kind_of, mission_spec, parse, placed
from treadle.coordinator.core.missions import plan_mission
from treadle.shared.errors import Misuse

TOML = """\
objective = "thumbnails of today"
account = "acme"
weight = 3

[[work]]
id = "a"
capability = "thumbnails"
inputs = { files = ["1.jpg", "2.jpg"] }

[[work]]
id = "b"
capability = "index"
after = ["a"]
urgency = "high"
deadline = 2100-01-01T00:00:00Z
"""
WANTED = MissionSpec(
    objective="thumbnails of today",
    account="acme",
    weight=3,
    work=[
        WorkSpec(id="a", capability="thumbnails", inputs={"files": ["1.jpg", "2.jpg"]}),
        WorkSpec(id="b", capability="index", after=["a"], urgency="high", deadline="2100-01-01T00:00:00Z"),  # type: ignore[arg-type]
    ],
)


def spec(text: str, kind: str = "toml") -> MissionSpec:
    return mission_spec(text, name="m.toml", kind=kind)


def refusal(text: str, kind: str = "toml") -> str:
    with pytest.raises(Misuse) as refused:
        spec(text, kind)
    return str(refused.value)


def test_toml_and_json_of_the_same_mission_give_the_same_spec() -> None:
    assert spec(TOML) == WANTED
    fields = parse(TOML, name="m", kind="toml")
    fields["work"][1]["deadline"] = "2100-01-01T00:00:00+00:00"
    assert spec(json.dumps(fields), "json") == WANTED


def test_a_span_of_time_is_written_as_text() -> None:
    text = TOML.replace('urgency = "high"', 'not_before = "+1.5h"')
    assert spec(text).work[1].not_before == timedelta(minutes=90)
    assert 'm.toml: line 14: work[1]: not_before: "+5 weeks": no unit' in refusal(text.replace("+1.5h", "+5 weeks"))


def test_given_fields_stand_in_place_of_the_files() -> None:
    assert mission_spec(TOML, name="m", kind="toml", given={"account": "b", "id": "m-1"}).account == "b"


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        (TOML.replace("weight = 3", "wieght = 3"), "m.toml: line 3: wieght: is not a field; did you mean weight?"),
        (TOML.replace("weight = 3", "weight = nan"), "m.toml: line 3: weight: nan must be 0.001 to 1,000"),
        (TOML.replace("weight = 3", "weight = '3'"), "m.toml: line 3: weight: '3' must be a number"),
        (
            TOML.replace('urgency = "high"', 'colour = "red"'),
            'm.toml: line 14: work[1] (id "b"): colour: is not a field',
        ),
        (TOML.replace("after = [", "after = [\n 7, "), 'm.toml: line 14: work[1] (id "b"): after[0]: 7 must be a str'),
        (TOML.replace('id = "b"\n', ""), "m.toml: line 10: work[1]: id: is required; give it a name of"),
        (TOML.replace('"thumbnails of today"', '""'), "m.toml: line 1: objective: "),
        ("objective = 1\n", "m.toml: line 1: "),
        ("objective = \n", "m.toml: line 1: is no TOML: "),
        ("a = 1\nb = 'x", "m.toml: line 2: is no TOML: "),
        ("", "objective: is required"),
    ],
)
def test_what_is_wrong_in_toml_is_said_with_its_line(text: str, saying: str) -> None:
    assert saying in refusal(text)


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        (
            '{"objective": "o",\n "weight": NaN,\n "work": [{"id": "a", "capability": "c"}]}',
            "line 2: weight: nan must be",
        ),
        (
            '{"objective": "o",\n "work": [{"id": "a", "capability": "c",\n "x": 1}]}',
            'line 3: work[0] (id "a"): x: is not',
        ),
        ('{"objective": "o",\n "objective": "p"}', "line 2: 'objective' is there twice"),
        ('{"objective": "o",\n"work" []}', "line 2: is no JSON: "),
        ("[1]", "holds a list, must be an object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"objective": "o", "work": {}}', "line 1: work: a value of type dict must be a list"),
        ('{"objective": "o", "": 1, "work": [{"id": "a", "capability": "c"}]}', "line 1: "),
    ],
)
def test_what_is_wrong_in_json_likewise(text: str, saying: str) -> None:
    assert saying in refusal(text, "json")


def test_what_is_wrong_with_the_whole_mission_is_said_with_the_line_too() -> None:
    text = TOML.replace('after = ["a"]', 'after = ["aa"]')
    with pytest.raises(Misuse) as refused:
        plan_mission(spec(text), mission_id="m", actor="ann", now_ms=0)
    assert str(placed(refused.value, text, name="m.toml", kind="toml")).startswith(
        'm.toml: line 13: work[1] (id "b"): after: unknown item "aa"; did you mean "a"?'
    )


def test_bytes_that_are_no_text_are_said_with_their_line() -> None:
    with pytest.raises(Misuse, match="m: line 2: is no UTF-8"):
        decode(b"a = 1\nb = '\xff'", name="m")
    assert decode(b"\xef\xbb\xbfa = 1", name="m") == "a = 1"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("m.toml", "{", "toml"),
        ("M.JSON", "", "json"),
        ("standard input", ' \n{"a"', "json"),
        ("m.txt", "a = 1", "toml"),
    ],
)
def test_the_kind_is_that_of_the_name_else_of_the_text(name: str, text: str, kind: str) -> None:
    assert kind_of(name, text) == kind
