"""What people do in the middle of it: pause and resume, cancel, fail; through clients of their own, in the same weather."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.scenario import CAPABILITIES, Errand
from treadle.coordinator.client import Client
from treadle.shared.errors import Refused, StoreChanged, Unavailable
from treadle.shared.model import GroupId, ItemState
from treadle.shared.store import snapshots
from treadle.shared.testing.wires import NetworkEndpoint

if TYPE_CHECKING:
    from sim.world import World


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing a person wants, and when."""

    at_s: float
    verb: str
    """`pause` (and resume it), `cancel` (a Mission), `cancel_item`, `fail`, `snapshot` (and trim its log)."""
    mission: str = ""
    item: str = ""
    what: str = ""
    """Of a pause, as `Client.pause` takes it."""
    for_s: float = 0.0
    keep: int = 0
    """Events that a log keeps below its Snapshot."""


def draw_wishes(seed: int, errands: Sequence[Errand], until_s: float) -> tuple[Wish, ...]:
    """Nothing in half of the runs; its own dice, so that the rest of a seed is drawn as it would be without people."""
    chance = random.Random(f"{seed} people")
    wishes: list[Wish] = []
    if chance.random() < 0.35:
        for _ in range(chance.randint(1, 3)):
            errand = chance.choice(errands)
            what = chance.choice(
                (
                    "all",
                    f"account:{errand.account}",
                    f"capability:{chance.choice(CAPABILITIES)}",
                    f"mission:{errand.mission}",
                )
            )
            at_s = chance.uniform(0.2, until_s * 0.7)
            wishes.append(Wish(at_s, "pause", what=what, for_s=chance.uniform(0.1, until_s - at_s)))
    if chance.random() < 0.25:
        for _ in range(chance.randint(1, 3)):
            errand = chance.choice(errands)
            verb = chance.choice(("cancel", "cancel_item", "cancel_item", "fail"))
            at_s = errand.at_s + chance.uniform(0.1, until_s - errand.at_s)
            wishes.append(Wish(at_s, verb, errand.mission, chance.choice(errand.jobs).item))
    chance = random.Random(f"{seed} snapshots")
    if chance.random() < 0.5:
        for _ in range(chance.randint(1, 5)):
            errand = chance.choice(errands)
            at_s = errand.at_s + chance.uniform(0.1, until_s - errand.at_s)
            wishes.append(Wish(at_s, "snapshot", errand.mission, keep=chance.choice((0, 0, 3, 20))))
    return tuple(wishes)


async def come_true(world: World, wish: Wish) -> None:
    """Carries a wish out, again and again until it is answered; a refusal is an answer."""
    await asyncio.sleep(wish.at_s)
    if wish.verb == "pause":
        await _ask(world, wish, "pause")
        await asyncio.sleep(wish.for_s)
        await _ask(world, wish, "resume")
    elif wish.verb == "snapshot":
        await _ask(world, wish, "snapshot")
    else:
        world.commanded.setdefault(wish.mission, set()).add((wish.verb, wish.item))
        await _ask(world, wish, wish.verb)


def resolution_of(mission: str, item: str) -> str:
    """What is answered to an item that asks; its handler checks it."""
    return f"{mission}/{item} may"


async def answer(world: World) -> None:
    """A person who looks every two seconds for what is blocked and answers it, until all is told."""
    asking = [errand.mission for errand in world.errands if any(job.ending == "block" for job in errand.jobs)]
    while asking and not all(world.told[mission].is_told for mission in asking):
        await asyncio.sleep(2.0)
        for mission in asking:
            if not world.told[mission].is_told:
                await _ask(world, Wish(0, "unblock", mission), "unblock")


async def _ask(world: World, wish: Wish, verb: str) -> None:
    from sim.world import PREFIX

    process = world.loop.process(f"p-{verb}.{len(world.people)}")
    world.people.append(process)

    async def main() -> None:
        while True:
            try:
                async with Client(NetworkEndpoint(world.network, process), PREFIX, "ana", world.partitions) as client:
                    await _act(client, wish, verb)
                    return
            except (Unavailable, StoreChanged) as error:
                world.note(f"{process.name:>10} {verb}: {error!r}")
                await asyncio.sleep(0.5)
            except Refused as refused:
                world.note(f"{process.name:>10} {verb} is refused: {refused}")
                return

    await process.spawn(main())
    world.network.left(process)


async def _act(client: Client, wish: Wish, verb: str) -> None:
    match verb:
        case "pause":
            await client.pause(wish.what)
        case "resume":
            await client.resume(wish.what)
        case "cancel":
            await client.mission(wish.mission).cancel()
        case "unblock":
            mission = client.mission(wish.mission)
            for item, view in (await mission.items()).items():
                if view.state is ItemState.BLOCKED:
                    await mission.unblock(item, resolution_of(wish.mission, item))
        case "snapshot":
            await client._line.ask(
                lambda store: snapshots.create(store, GroupId(wish.mission), actor="ana", keep=wish.keep)
            )
        case "cancel_item":
            await client.mission(wish.mission).cancel_item(wish.item)
        case _:
            await client.mission(wish.mission).fail(wish.item, "a person gave it up")
