"""Why does it wait? A question rings those who could run the item, and nobody else; their answers reach who asked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import anyio
import pytest
from builders import GROUP, a_new_item
from store.world import PREFIX, Hand, World, a_submit
from treadle.shared.errors import Corrupt, Refused, Stale
from treadle.shared.model import AgentId, Capability, GroupId, ItemId
from treadle.shared.reasons import Answer, Answers, Because, Level, Question, Reason
from treadle.shared.store import Store, commands, questions

M, ITEM = GroupId(GROUP), ItemId("a")
SAID = (Reason(Because.CAPACITY), Reason(Because.FAIR_SHARE, Level.ACCOUNT, 5, None))


async def heard(world: World, hand: Hand) -> Question | None:
    """The question that rings a Worker next; None where none does."""
    wake = await world.authority.wait(hand.session, tokens=False, timeout_s=0.05)
    while wake is not None and wake.question is None:
        wake = await world.authority.wait(hand.session, tokens=False, timeout_s=0.05)
    return wake.question if wake is not None else None


async def rung(world: World, item: str = "a", nonce: str = "why.1") -> list[str]:
    """Whose inbox a question rings."""
    before = await world.dump()
    await world.store.call("question", 0, (GROUP, item, nonce))
    after = await world.dump()
    inboxes = [key for key in after if "@inbox:" in key and after[key] != before.get(key)]
    return sorted(key.partition("@inbox:")[2] for key in inboxes)


async def test_a_question_says_what_the_store_knows_and_its_answer_reaches_who_asked(world: World) -> None:
    hand = await world.hand()
    await world.mission(GROUP, a_new_item("a", width=2), a_new_item("b"), a_new_item("c"))
    found: list[Answers] = []

    async def ask() -> None:  # on a connection of its own: it waits on it
        store = await Store.connect(world.endpoint, prefix=PREFIX)
        try:
            found.append(await questions.ask(store, M, ItemId("b"), wait_s=5))
        finally:
            await store.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        question = None
        with anyio.fail_after(5):
            while question is None:
                question = await heard(world, hand)
        assert (question.group, question.item, question.capability) == (M, "b", "index")
        assert (question.width, question.ahead, question.asked) == (1, 1, 1)
        assert abs(question.at_ms - await world.store.now_ms()) < 10_000
        await questions.answer(world.store, hand.session, [(0, question, SAID)])
    assert found == [Answers(1, (Answer(AgentId("worker-1"), SAID),))]


async def test_an_answer_that_is_said_twice_counts_once(world: World) -> None:
    hand = await world.hand()
    await world.mission()
    assert await rung(world) == ["worker-1"]
    question = Question("why.1", M, ITEM, 0, Capability("index"), 1, 0, 1)
    await questions.answer(world.store, hand.session, [(0, question, SAID)])
    before = await world.dump()
    await questions.answer(world.store, hand.session, [(0, question, SAID)])
    assert await world.dump() == before


async def test_a_question_that_comes_again_rings_nobody_again(world: World) -> None:
    await world.hand()
    await world.mission()
    assert await rung(world) == ["worker-1"]
    assert await rung(world) == []
    assert await rung(world, nonce="why.2") == ["worker-1"]


async def test_only_those_who_could_run_it_are_asked(world: World) -> None:
    await world.hand("one", "index", "index~1.4.0")
    await world.hand("two", "index", "index~1.2.0")
    await world.hand("three", "audit")
    items = [a_new_item("any"), a_new_item("later", capability=Capability("index~1.3.0"))]
    named = a_new_item("named", offer="named:two,four 0")
    await world.mission(GROUP, *items, named, a_new_item("waits", after=["any"]))
    assert await rung(world, "any", "1") == ["one", "two"]
    assert await rung(world, "later", "2") == ["one"]
    assert await rung(world, "named", "3") == ["two"]
    assert await rung(world, "waits", "4") == [], "of what waits for others none is asked"
    await commands.end_membership(world.store, M, AgentId("one"), actor="ana", reason="no")
    assert await rung(world, "any", "5") == ["two"], "who is kept out cannot run it"


async def test_of_an_accepted_item_its_owner_is_asked_and_of_a_running_one_nobody(world: World) -> None:
    hand, _ = await world.hand("one"), await world.hand("two")
    await world.mission()
    grant = await hand.accepted()
    assert await rung(world, nonce="1") == ["one"]
    started = await hand.restarted(grant)
    assert await rung(world, nonce="2") == []
    await hand.do(a_submit(started))
    assert await rung(world, nonce="3") == []
    assert await questions.ask(world.store, M, ITEM) == Answers()


async def test_at_most_64_workers_are_asked(world: World) -> None:
    for number in range(66):
        await world.hand(f"w-{number:02}", nonce=str(number))
    await world.mission()
    assert await rung(world) == [f"w-{number:02}" for number in range(64)]


async def test_of_a_halted_group_nobody_is_asked(world: World) -> None:
    await world.hand()
    await world.mission()
    world.audited = False
    await world.store.call("halt", 0, (GROUP,))
    assert await rung(world) == []


async def test_where_none_answers_it_is_said_that_none_did(world: World) -> None:
    await world.hand("deaf")
    await world.mission()
    assert await questions.ask(world.store, M, ITEM, wait_s=0.05) == Answers(1, ())


async def test_a_late_answer_is_told_to_nobody_and_leaves_nothing_behind(world: World) -> None:
    hand = await world.hand()
    before = await world.dump()
    question = Question("why.gone", M, ITEM, 0, Capability("index"), 1, 0, 1)
    await questions.answer(world.store, hand.session, [(0, question, SAID)])
    assert await world.dump() == before


async def test_a_replaced_worker_answers_nothing(world: World) -> None:
    old = await world.hand(nonce="old")
    await world.hand(nonce="new")
    question = Question("why.1", M, ITEM, 0, Capability("index"), 1, 0, 1)
    with pytest.raises(Stale):
        await questions.answer(world.store, old.session, [(0, question, SAID)])


async def test_what_is_not_there_cannot_be_asked_about(world: World) -> None:
    with pytest.raises(Refused) as refused:
        await questions.ask(world.store, M, ITEM)
    assert refused.value.code == "GROUP_NOT_FOUND"


@pytest.mark.parametrize("entry", ["? ", "? why.1 m a x index 1 0 1", "? why.1 m a 1 index 1 0", "? a\nb"])
async def test_what_only_looks_like_a_question_is_no_ring(entry: str, world: World) -> None:
    hand = await world.hand()
    await world.raw.rpush(world.key("@inbox:worker-1"), entry)
    await world.raw.pexpire(world.key("@inbox:worker-1"), 60_000)
    with pytest.raises(Corrupt, match="is no question"):
        await world.authority.wait(hand.session, tokens=False, timeout_s=0.5)


async def test_an_answer_of_another_version_is_passed_over(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.hand("one")
    await world.hand("two")
    await world.mission()
    monkeypatch.setattr(secrets, "token_hex", lambda _: "1")
    entries: Sequence[str] = ["two LATER - - -", "one NEXT - - -"]
    await world.raw.rpush(world.key("@inbox:why.1"), *entries)
    await world.raw.pexpire(world.key("@inbox:why.1"), 10_000)
    found = await questions.ask(world.store, M, ITEM, wait_s=0.05)
    assert found == Answers(2, (Answer(AgentId("one"), (Reason(Because.NEXT),)),))
    assert "is no reason of a Worker of this version" in caplog.text
