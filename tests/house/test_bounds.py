"""What both sides of the wall count by is one number: each bound or default that stands in Lua and in Python is compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from house.lua import contract_of
from house.reading import ROOT, the_house
from treadle.coordinator import doorbells, specs
from treadle.coordinator.core import graph, items, missions
from treadle.shared import codec, facts, model, policy_file, schedules, settings
from treadle.shared.store import authority, connection, keys, library, loading, operations, pictures, store, timetable
from treadle.worker import context, reading, renewal, testing
from treadle.worker.slots import blocking

LUA = {path.name: path.read_text(encoding="utf-8") for path in the_house().lua_files}


def lua(file: str, name: str) -> int:
    """The number that `name` is given in a Lua file, alone (`T.NAME = 64`) or in a row (`local A, B = 1, 2`)."""
    for names, values in re.findall(r"^(?:local )?([\w.]+(?:, [\w.]+)*) = ([\d, ]+)$", LUA[file], re.MULTILINE):
        row = dict(zip(names.split(", "), values.split(", "), strict=True))
        if name in row:
            return int(row[name])
    raise LookupError(f"{file} gives {name} no number")


def literal(file: str, pattern: str) -> set[int]:
    """Every number that stands in a Lua file where `pattern` has its group."""
    found = {int(number) for number in re.findall(pattern, LUA[file])}
    assert found, f"{file} has nothing like {pattern}"
    return found


@pytest.mark.parametrize(
    ("file", "name", "ours"),
    [
        ("_base.lua", "T.EPOCH", {model.STARTS_EPOCH_MS}),
        ("_plan.lua", "T.ITEM_FIELDS", {len(library._ITEM) - 1}),
        ("_plan.lua", "ITEMS_MAX", {loading.CHUNK_ITEMS, items.BATCH_MAX}),
        ("_plan.lua", "EDGES_MAX", {loading.CHUNK_DEPENDENCIES, items.BATCH_DEPENDENCIES_MAX}),
        ("_plan.lua", "DEPENDENTS_MAX", {graph.DEPENDENTS_MAX}),
        ("_plan.lua", "T.CAPS_MAX", {missions.CAPABILITIES_MAX}),
        ("_item.lua", "T.START_BY_S", {model.NewItem.__dataclass_fields__["start_by_s"].default}),
        ("_session.lua", "T.SESSION_TTLS", {pictures.SESSION_TTLS}),
        ("_timetable.lua", "T.LATE_MS", {schedules.LATE_MS}),
        ("_timetable.lua", "T.HANDED_MS", {timetable.HANDED_MS}),
        ("_base.lua", "T.EVIDENCE_MAX", {codec.EVIDENCE_MAX}),
        ("_block.lua", "T.SILENT_TTLS", {facts.SILENT_AFTER_TTLS}),
        ("_block.lua", "T.BLOCKED_MS_MAX", {1000 * context.BLOCKED_S_MAX}),
        ("_base.lua", "T.TOKEN_MAX", {12 * blocking.REASON_MAX}),
        ("set_policy.lua", "TEXT_MAX", {policy_file.FILE_BYTES_MAX}),
        ("_base.lua", "T.BYTES_MAX", {codec.PAYLOAD_MAX, operations.TURN_BYTES_MAX}),
    ],
)
def test_a_bound_of_the_library_is_that_of_its_callers(file: str, name: str, ours: set[int]) -> None:
    assert ours == {lua(file, name)}


@pytest.mark.parametrize(
    ("file", "pattern", "ours"),
    [
        ("turn.lua", r"#asks\.operations > (\d+)", operations.OPERATIONS_MAX),
        ("tick.lua", r"math\.min\(tonumber\(a\[2\]\), (\d+)\)", authority.TICK_MAX),
        ("renew.lua", r"4 \+ 4 \* (\d+)", authority.RENEW_MAX),
        ("resize.lua", r"tonumber\(a\[4\]\) > (\d+)", policy_file.WORKER_SLOTS_MAX),
    ],
)
def test_a_number_inside_a_script_is_that_of_its_callers(file: str, pattern: str, ours: int) -> None:
    assert literal(file, pattern) == {ours}


def test_retries_that_nobody_asked_for_are_the_same_on_both_sides() -> None:
    usual = specs.Retry()
    said = re.search(r"^T\.RETRY = '(\d+) (\d+) (\d+)'$", LUA["_retry.lua"], re.MULTILINE)
    assert said
    assert [int(number) for number in said.groups()] == [
        usual.retries,
        round(usual.first_s * 1000),
        round(usual.most_s * 1000),
    ]
    assert (specs.RETRIES, specs.WorkSpec(id="a", capability="b").start_by_s) == (usual.retries, 60)


def test_a_record_of_a_schedule_has_the_fields_that_its_reader_counts() -> None:
    said = re.search(r"^local FIELDS = \{(.*?)\}", LUA["_timetable.lua"], re.MULTILINE | re.DOTALL)
    assert said
    assert len(re.findall(r"'\w+'", said[1])) == timetable._RECORD_FIELDS


def test_urgencies_are_the_ones_the_order_of_a_group_knows() -> None:
    for table in ("PATIENCE", "RANK"):
        said = re.search(rf"^T\.{table} = \{{(.*?)\}}", LUA["_item.lua"], re.MULTILINE)
        assert said
        assert re.findall(r"(\w+) = ", said[1]) == [urgency.value for urgency in model.Urgency]


def test_the_number_of_partitions_of_a_new_store_is_the_one_the_settings_name() -> None:
    assert literal("open_store.lua", r"'(\d+)' or a\[2\]") == {16}
    assert "16 when it is created" in settings.settings_table()
    assert settings.Settings.model_fields["partitions"].metadata[1].le == keys.PARTITIONS_MAX


def test_bounds_leave_each_other_room() -> None:
    assert lua("_plan.lua", "EDGES_MAX") >= specs.AFTER_MAX, "an item with all its dependencies fits one call"
    assert lua("_plan.lua", "INPUTS_BYTES_MAX") >= loading.CHUNK_BYTES + codec.INPUTS_MAX, "a chunk fits one call"
    assert codec.EVIDENCE_MAX + 1024 < codec.EVENT_MAX, "an Event with its Evidence can be read again"
    assert doorbells.LOOK_AGAIN_S_MAX * 1000 < store.WATCH_TTL_MS, "who waits watches again before he is forgotten"
    assert lua("reincarnate.lua", "T.DEFAULT_TTL_MS") == 1000 * settings.Settings.model_fields["lease_ttl_s"].default
    assert renewal.BEAT_TTLS < facts.SILENT_AFTER_TTLS < lua("_session.lua", "T.SESSION_TTLS"), "silence, then the end"
    assert specs.SLOTS_MAX == settings.SLOTS_MAX == testing.SLOTS_MAX
    assert lua("tail.lua", "T.TAIL_MAX") == authority.TAIL_MAX == reading.READ_PAGE, "a shorter page is the log's end"


def test_the_runs_after_which_an_item_is_parked_are_those_the_readme_names() -> None:
    assert lua("_retry.lua", "T.LAPSES_MAX") == 5
    assert "loses five Workers in a row" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_refusal_of_a_call_is_known_to_the_connection() -> None:
    calls = [path for path in the_house().lua_files if f"T.calls.{path.stem} =" in LUA[path.name]]
    said = {word for path in calls for word in contract_of(path).words("refusals")}
    assert said - connection._REFUSALS == {"STORE_CHANGED", "BACKPRESSURE"}, "each of these has an error of its own"


def test_every_field_of_an_item_is_in_the_list_on_top_of_its_file() -> None:
    head = " ".join(line for line in LUA["_item.lua"].split("\n\n")[0].splitlines())
    written = {name for text in LUA.values() for name in re.findall(r"T\.put(?:_body)?\((?:S, G, )?\w+, '(\w+)'", text)}
    assert {name for name in written if not re.search(rf"\b{name}\b", head)} == set()


def test_no_line_of_the_library_is_longer_than_a_screen() -> None:
    assert [
        f"{name}:{at}" for name, text in LUA.items() for at, line in enumerate(text.splitlines(), 1) if len(line) > 140
    ] == []


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = [
        path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    ]
    gone = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / Path(target)).exists()
    ]
    assert gone == []
