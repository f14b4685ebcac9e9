"""What comes and goes leaves nothing behind: sessions by the thousand (BR-41)."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from builders import a_new_item
from store.world import World, a_submit
from treadle.shared.model import GroupId
from treadle.shared.store.authority import capability_set

GROUPS = 3
SESSIONS = 1_000
ITEMS = 400
"""Of each Group: more than sessions come to it, so that none of them ends."""
TTL_MS = 100
MINT_KEPT_MS = 3_600_000
SILENT_MS = 10 * TTL_MS
"""A session that neither renews nor closes is ended after ten lease TTLs."""
OF_ONE_AGENT = re.compile(r"@(inbox|held|joined|wake):|@(sessions|lanes|caps|live|due)$")


async def shape(world: World) -> Counter[str]:
    """Every key by what follows its tag, with how many entries it has."""
    found: Counter[str] = Counter()
    for key, (kind, content) in (await world.dump()).items():
        if "expires" not in kind:
            found[key.partition("}:")[2]] = 1 if isinstance(content, bytes) else len(content)
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_br_41_a_thousand_short_lived_sessions_over_three_groups_leave_no_key_and_no_registration(
    world: World,
) -> None:
    """Each works in one of three Groups; three of four close their session, the fourth is never heard of again.

    Their Session Epochs are known for an hour, so that what comes late of one is fenced; then nothing is left of them.
    """
    for number in range(GROUPS):
        await world.mission(f"g{number}", *(a_new_item(f"i{item:03}") for item in range(ITEMS)))
    idle = await world.hand("idle", "other", ttl_ms=MINT_KEPT_MS)
    before = await shape(world)
    silent = 0
    for number in range(SESSIONS):
        group = f"g{number % GROUPS}"
        hand = await world.hand(f"worker-{number}", ttl_ms=TTL_MS)
        grant = await hand.started(group)
        if number % 4 == 3:
            silent += 1  # it dies with its item
        else:
            await hand.do(a_submit(grant), cursors=((grant.group, 1),))
            await hand.close()
    await world.pass_ms(SILENT_MS + 1)
    for _ in range(100):
        if (await world.authority.tick(0))[1] == 0:
            break
    after = await shape(world)
    grown = after - before
    heard = f"@wake:{capability_set(idle.session.capabilities)}"  # of the one that lives, but does not listen here
    new = {name for name in after.keys() - before.keys() - {heard} if not re.fullmatch(r"g\d:\w+(:.*)?", name)}
    assert {name for name in new if OF_ONE_AGENT.match(name)} == set(), grown
    assert new <= {"@usage", "@nodes", "@parked"}, "only what belongs to a Group or its account, whoever worked in it"
    assert await world.raw.hlen(world.key("@sessions")) == 1, "a live but idle Worker is not reaped"
    lanes = await world.raw.hkeys(world.key("@lanes"))
    assert {lane.split()[0] for lane in lanes} <= {b"idle"}
    assert await world.raw.hlen(world.key("@epochs")) == SESSIONS + 1
    if world.clock is not None:
        await world.pass_ms(MINT_KEPT_MS)
        for _ in range(100):
            if (await world.authority.tick(0))[1] == 0:
                break
        assert await world.raw.hkeys(world.key("@epochs")) == [b"idle"]
        left = {name for name in await shape(world) if name.startswith("@")}
        assert left - {heard, "@usage", "@nodes", "@parked"} <= before.keys()
    assert (await idle.turn()).outcomes == ()
    states: Counter[str] = Counter()
    for number in range(GROUPS):
        states.update(item.state.value for item in await world.store.items(GroupId(f"g{number}")))
    assert states == {"verified": SESSIONS - silent, "offered": GROUPS * ITEMS - (SESSIONS - silent)}
