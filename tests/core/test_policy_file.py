"""A policy file is taken whole or not at all, and what is wrong in it is said with its line, value and bound."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.errors import Misuse
from treadle.shared.model import Risk
from treadle.shared.policy import (
    DEFAULT_POLICY,
    AccountRule,
    Approval,
    Disclosure,
    MissionRule,
    Policy,
    Preemption,
    Rate,
    Rule,
)
from treadle.shared.policy_file import FAULTS_SHOWN_MAX, FILE_BYTES_MAX, RULES_MAX, parse

WHOLE = """\
[classes.standard]
weight = 1
[classes.urgent]
weight = 100

[[accounts]]
match = "acme"
weight = 2.5
slots = 16
queued = 0
rate = "100/min"
classes = ["standard", "urgent"]
[[accounts]]
match = "*"
slots = 4

[[missions]]
match = "acme/nightly-*"
weight = 0.5
weight_max = 20
slots = 2
queued = 10
rate = "1/s"
[[missions]]
match = "*/nightly-*"
rate = "7/h"

[[workers]]
match = "gpu-*"
slots = 0

[preemption]
enabled = false
minimum_run_s = 45
overdue_s = 90.5
[disclosure]
interval_s = 5
[approval]
risk = "high"
"""


def said(text: str) -> list[str]:
    with pytest.raises(Misuse) as refused:
        parse(text, name="p.toml")
    return str(refused.value).split("\n")


def test_all_that_a_file_may_say() -> None:
    urgent = AccountRule(2.5, 16, 0, Rate(100, 60.0), ("standard", "urgent"))
    assert parse(WHOLE, name="p.toml") == Policy(
        version=0,
        classes=(("standard", 1.0), ("urgent", 100.0)),
        accounts=(Rule("acme", urgent), Rule("*", AccountRule(slots=4))),
        missions=(
            Rule("acme/nightly-*", MissionRule(0.5, 20.0, 2, 10, Rate(1, 1.0))),
            Rule("*/nightly-*", MissionRule(rate=Rate(7, 3600.0))),
        ),
        workers=(Rule("gpu-*", 0),),
        preemption=Preemption(False, 45.0, 90.5),
        disclosure=Disclosure(5.0),
        approval=Approval(Risk.HIGH),
    )


def test_an_empty_file_is_the_default_policy() -> None:
    assert parse("", name="p.toml") == DEFAULT_POLICY
    assert parse("# nothing\n", name="p.toml") == DEFAULT_POLICY


def test_the_standard_class_is_there_whether_or_not_a_file_names_it() -> None:
    assert parse("[classes.a]\nweight = 2", name="p").classes == (("standard", 1.0), ("a", 2.0))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1", 'p.toml:1: "x" is no table of a policy; known: classes, accounts, missions, workers, '),
        ("\n[[acounts]]\nmatch = 'a'", 'p.toml:2: "acounts" is no table of a policy; did you mean accounts?'),
        ("\n[preemptoin.inner]\nx = 1", 'p.toml:2: "preemptoin" is no table of a policy; did you mean preemption?'),
        ("[classes.a]\nweight = 0", "p.toml:2: classes.a.weight: 0 is not allowed; must be 0.001 to 1,000"),
        ("[classes.a]\nweight = -1.5", "p.toml:2: classes.a.weight: -1.5 is not allowed; must be 0.001 to 1,000"),
        ("[classes.a]\nweight = nan", "p.toml:2: classes.a.weight: nan is not allowed; must be 0.001 to 1,000"),
        ("[classes.a]\nweight = inf", "p.toml:2: classes.a.weight: inf is not allowed; must be 0.001 to 1,000"),
        ("[classes.a]\nweight = 1001", "p.toml:2: classes.a.weight: 1001 is not allowed; must be 0.001 to 1,000"),
        (
            "[classes.a]\nweight = true",
            "p.toml:2: classes.a.weight: True is not allowed; must be a number, 0.001 to 1,000",
        ),
        (
            "[classes.a]\nweight = '2'",
            "p.toml:2: classes.a.weight: '2' is not allowed; must be a number, 0.001 to 1,000",
        ),
        ("\n[classes.a]\n", "p.toml:2: classes.a: weight is required"),
        ("[classes.A]\nweight = 1", 'p.toml:1: classes: "A" is not allowed; must be 1 to 64 of a-z'),
        ("classes = 3", "p.toml:1: classes: 3 is not allowed; write [classes.NAME]"),
        ("[classes]\na = 3", "p.toml:2: classes.a: 3 is not allowed; must be a table"),
        ("[accounts]\nmatch = 'a'", "p.toml:1: accounts: {'match': 'a'} is not allowed; write [[accounts]]"),
        ("\n[[accounts]]\nweight = 1", "p.toml:2: accounts[0]: match is required"),
        ("[[accounts]]\nmatch = ''", "p.toml:2: accounts[0].match: '' is not allowed; must be a name"),
        (
            "[[accounts]]\nmatch = 'a'\nwieght = 1",
            'p.toml:3: accounts[0]: "wieght" is no field of it; did you mean weight?',
        ),
        (
            "[[accounts]]\nmatch = 'a'\nslots = -1",
            "p.toml:3: accounts[0].slots: -1 is not allowed; must be a whole number",
        ),
        ("[[accounts]]\nmatch = 'a'\nslots = 1.5", "p.toml:3: accounts[0].slots: 1.5 is not allowed; must be a whole"),
        ("[[accounts]]\nmatch = 'a'\nqueued = -1", "p.toml:3: accounts[0].queued: -1 is not allowed; must be a whole"),
        ("[[accounts]]\nmatch = 'a'\nqueued = true", "p.toml:3: accounts[0].queued: True is not allowed; must be a"),
        (
            "[[accounts]]\nmatch = 'a'\nrate = 5",
            "p.toml:3: accounts[0].rate: 5 is not allowed; must be a number of starts",
        ),
        (
            "[[accounts]]\nmatch = 'a'\nrate = '5/d'",
            "p.toml:3: accounts[0].rate: '5/d' is not allowed; must be a number",
        ),
        ("[[accounts]]\nmatch = 'a'\nrate = '-5/s'", "p.toml:3: accounts[0].rate: '-5/s' is not allowed; must be a"),
        ("[[accounts]]\nmatch = 'a'\nclasses = []", "p.toml:3: accounts[0].classes: [] is not allowed; must be a list"),
        (
            "[[accounts]]\nmatch = 'a'\nclasses = [\n 'standard',\n 3]",
            "p.toml:5: accounts[0].classes[1]: 3 is not allowed; must be the name of a class",
        ),
        (
            "[[accounts]]\nmatch = 'a'\nclasses = [\n 'standard',\n 'urgent']",
            'p.toml:5: accounts[0].classes[1]: "urgent" is no class of this policy; known: standard',
        ),
        (
            "[[missions]]\nmatch = 'nightly'",
            "p.toml:2: missions[0].match: 'nightly' is not allowed; must be ACCOUNT/MISSION",
        ),
        ("[[missions]]\nmatch = 'a/'", "p.toml:2: missions[0].match: 'a/' is not allowed; must be ACCOUNT/MISSION"),
        ("[[missions]]\nmatch = 'a/b'\nweight_max = 0", "p.toml:3: missions[0].weight_max: 0 is not allowed; must be"),
        ("\n[[workers]]\nmatch = 'a'", "p.toml:2: workers[0]: slots is required"),
        ("[[workers]]\nmatch = 'a'\nslots = 1025", "p.toml:3: workers[0].slots: 1025 is not allowed; must be a whole"),
        ("[preemption]\nenabled = 1", "p.toml:2: preemption.enabled: 1 is not allowed; must be true or false"),
        (
            "[preemption]\nminimum_run_s = 0",
            "p.toml:2: preemption.minimum_run_s: 0 is not allowed; must be 0.1 to 86,400",
        ),
        ("[preemption]\noverdue_s = inf", "p.toml:2: preemption.overdue_s: inf is not allowed; must be 0.1 to 86,400"),
        ("\n[approval]\nrisk = 'none'", 'p.toml:3: approval.risk: \'none\' is not allowed; must be "low" or "high"'),
        ("[approval]\nrisk = 2", 'p.toml:2: approval.risk: 2 is not allowed; must be "low" or "high"'),
        ("[approval]\nleast = 'low'", 'p.toml:2: approval: "least" is no field of it; known: risk'),
        (
            "[disclosure]\ninterval_s = '5'",
            "p.toml:2: disclosure.interval_s: '5' is not allowed; must be 0.1 to 86,400",
        ),
        ("a = \n", "p.toml:1: is no TOML: Invalid value"),
        ("[preemption]\nenabled = tru", "p.toml:2: is no TOML: Invalid value"),
        ("[a]\n[a]\n", "p.toml:2: is no TOML: Cannot declare ('a',) twice"),
    ],
)
def test_a_fault_is_said_with_its_line_value_and_bound(text: str, line: str) -> None:
    assert [one[: len(line)] for one in said(text)] == [line]


@pytest.mark.parametrize("weight", ["0", "-1", "-0.001", "nan", "-nan", "inf", "-inf", "1e9"])
@pytest.mark.parametrize(
    ("table", "field"),
    [
        *(("[classes.urgent]", "classes.urgent.weight"), ("[[accounts]]\nmatch = 'a'", "accounts[0].weight")),
        *(
            ("[[missions]]\nmatch = 'a/b'", "missions[0].weight"),
            ("[[missions]]\nmatch = 'a/b'", "missions[0].weight_max"),
        ),
    ],
)
def test_a_weight_that_is_not_above_zero_or_not_finite_is_refused_wherever_it_stands(
    table: str, field: str, weight: str
) -> None:
    line = table.count("\n") + 2
    (fault,) = said(f"{table}\n{field.rpartition('.')[2]} = {weight}\n")
    assert fault.startswith(f"p.toml:{line}: {field}: ")
    assert fault.endswith(" is not allowed; must be 0.001 to 1,000")


@pytest.mark.parametrize("quota", ["-1", "-1_000_000", "nan", "1.0", "1_000_000_001"])
@pytest.mark.parametrize("name", ["slots", "queued"])
@pytest.mark.parametrize(("kind", "match"), [("accounts", "a"), ("missions", "a/b")])
def test_a_quota_below_zero_or_that_is_no_whole_number_is_refused_wherever_it_stands(
    kind: str, match: str, name: str, quota: str
) -> None:
    (fault,) = said(f"[[{kind}]]\nmatch = '{match}'\n{name} = {quota}\n")
    assert fault.startswith(f"p.toml:3: {kind}[0].{name}: ")
    assert fault.endswith(" is not allowed; must be a whole number, 0 to 1,000,000,000")


@pytest.mark.parametrize("span", ["0", "-1", "nan", "inf", "86_400.1"])
@pytest.mark.parametrize("field", ["preemption.minimum_run_s", "preemption.overdue_s", "disclosure.interval_s"])
def test_a_span_that_is_no_time_is_refused(field: str, span: str) -> None:
    (fault,) = said(f"\n{field} = {span}\n")
    assert fault.startswith(f"p.toml:2: {field}: ")
    assert fault.endswith(" is not allowed; must be 0.1 to 86,400 seconds")


@pytest.mark.parametrize(
    ("table", "where"),
    [
        *(("[classes.a]\nweight = 1", "classes.a"), ("[[accounts]]\nmatch = 'a'", "accounts[0]")),
        *(("[[missions]]\nmatch = 'a/b'", "missions[0]"), ("[[workers]]\nmatch = 'a'\nslots = 1", "workers[0]")),
        *(("[preemption]", "preemption"), ("[disclosure]", "disclosure"), ("[approval]", "approval")),
    ],
)
def test_an_unknown_key_is_refused_in_every_table(table: str, where: str) -> None:
    line = table.count("\n") + 2
    (fault,) = said(f"{table}\nquotum = 1\n")
    assert fault.startswith(f'p.toml:{line}: {where}: "quotum" is no field of it; ')


@pytest.mark.parametrize(
    ("kind", "match", "one", "other"),
    [
        *(("accounts", "a", "slots = 1", "slots = 2"), ("accounts", "*", "weight = 1", "weight = 2")),
        *(("missions", "a/b", "queued = 0", "rate = '1/s'"), ("workers", "w-*", "slots = 1", "slots = 2")),
    ],
)
def test_two_rules_with_one_match_that_differ_contradict_each_other(
    kind: str, match: str, one: str, other: str
) -> None:
    text = f"[[{kind}]]\nmatch = '{match}'\n{one}\n[[{kind}]]\nmatch = '{match}'\n{other}\n"
    assert said(text) == [
        f'p.toml:5: {kind}[1]: "{match}" contradicts the rule of line 2, which has the same match; keep one of them'
    ]


def test_a_rule_that_is_there_twice_is_refused() -> None:
    text = "[[workers]]\nmatch = 'a'\nslots = 1\n\n[[workers]]\nmatch = 'a'\nslots = 1\n"
    assert said(text) == [
        'p.toml:6: workers[1]: "a" repeats the rule of line 2, which has the same match; keep one of them'
    ]


@pytest.mark.parametrize(
    ("kind", "earlier", "later", "hides"),
    [
        ("accounts", "*", "a", True),
        ("accounts", "a*", "ab*c", True),
        ("accounts", "*b*", "ab*", True),
        ("accounts", "a", "*", False),
        ("accounts", "ab*", "a*", False),
        ("missions", "*/*", "a/b", True),
        ("missions", "a*/*", "ab/n*", True),
        ("missions", "a*/n*", "ab/*", False),
        ("missions", "*/n", "a/n/n", False),
    ],
)
def test_a_rule_behind_one_that_matches_all_it_matches_is_refused(
    kind: str, earlier: str, later: str, hides: bool
) -> None:
    text = f"[[{kind}]]\nmatch = '{earlier}'\n[[{kind}]]\nmatch = '{later}'\n"
    if hides:
        assert said(text) == [
            f'p.toml:4: {kind}[1]: "{later}" never decides: "{earlier}" of line 2 matches all it matches; '
            "put it before that one"
        ]
    else:
        assert parse(text, name="p.toml")


def test_all_faults_are_said_at_once_but_never_without_end() -> None:
    text = "".join(f"[classes.c{number}]\nweight = 0\n" for number in range(30))
    lines = said(text)
    assert len(lines) == FAULTS_SHOWN_MAX + 1
    assert lines[1].startswith("p.toml:4: ")
    assert lines[-1] == "and 10 more"


def test_a_file_is_bounded() -> None:
    assert parse("#" * FILE_BYTES_MAX, name="p.toml") == DEFAULT_POLICY
    assert said("#" * (FILE_BYTES_MAX + 1)) == ["p.toml: 262,145 bytes, at most 262,144"]
    rules = "".join(f"[[accounts]]\nmatch = '*{number:04}*'\n" for number in range(RULES_MAX))
    assert len(parse(rules, name="p.toml").accounts) == RULES_MAX
    assert said(rules + "[classes.a]\nweight = 1\n") == ["p.toml: 1,001 rules and classes, at most 1,000"]


def test_what_a_fault_shows_is_one_printable_line() -> None:
    (line,) = said('"a\\nb\\u001b" = 1')
    assert line == 'p.toml:1: "a\\nb\\x1b" is no table of a policy; known: ' + line.rpartition("known: ")[2]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(char):08x}" for char in value) + '"'
    return "{}" if value is None else repr(value)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["[[accounts]]", "[[missions]]", "[[workers]]", "[preemption]", "[disclosure]", "[classes.a]"]
            ),
            st.lists(
                st.tuples(
                    st.sampled_from(["match", "weight", "slots", "rate", "classes", "queued", "enabled", "interval_s"]),
                    VALUES,
                ),
                max_size=3,
            ),
        ),
        max_size=4,
    )
)
def test_whatever_a_file_holds_it_is_a_policy_or_is_refused_with_lines(
    tables: list[tuple[str, list[tuple[str, object]]]],
) -> None:
    text = "\n".join(
        line for head, pairs in tables for line in [head, *(f"{key} = {_toml(one)}" for key, one in pairs)]
    )
    try:
        policy = parse(text, name="p.toml")
    except Misuse as refused:
        lines = text.count("\n") + 1
        for line in str(refused).split("\n"):
            where, number, rest = line.split(":", 2)
            assert where == "p.toml"
            assert 1 <= int(number) <= lines
            assert rest.strip()
    else:
        known = tomllib.loads(text)
        assert len(policy.accounts) == len(known.get("accounts", []))
        assert policy.class_weight("standard") > 0


def test_all_faults_are_said_at_once_in_the_order_of_their_lines() -> None:
    text = "[[accounts]]\nmatch = 'a'\nweight = 0\nclasses = ['gold']\n[later]\n[workers]\n"
    with pytest.raises(Misuse) as told:
        parse(text, name="p.toml")
    lines = str(told.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["p.toml:3", "p.toml:4", "p.toml:5", "p.toml:6"]
    assert lines[1] == 'p.toml:4: accounts[0].classes[0]: "gold" is no class of this policy; known: standard'
