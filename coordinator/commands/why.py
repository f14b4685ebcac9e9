"""`treadle why MISSION/ITEM`: what an item waits for, and what would change it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from treadle.shared.errors import Misuse, Refused
from treadle.shared.facts import ItemFacts
from treadle.shared.names import name_of, not_here
from treadle.shared.store import Store, pictures
from treadle.shared.versions import parted, spoken

from ..core.addresses import readings
from ..core.readable import safe
from ..core.told import expected
from ..core.wording import quoted
from ..explaining import Why, why_of
from .opening import with_store
from .options import AsJson, Prefix, Url
from .output import cell, console, document

Address = Annotated[str, typer.Argument(metavar="MISSION/ITEM", help="The item, as MISSION/ITEM.", show_default=False)]


def why(address: Address, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Say why a WorkItem waits, and what would change it.

    Every gate that holds it is named, the one to act upon first; nothing is said about other Missions. The Workers that
    could run it are asked for theirs: who has not answered within half a second is not waited for.

    Codes: APPROVAL DEPENDENCY NOT_BEFORE BACKOFF HELD OFFER_OVER OFFERED_TO QUARANTINE PAUSED BUDGET QUOTA NO_WORKER
    UNSCHEDULABLE RESERVED CAPACITY RESOURCES QUEUED KEPT_OUT STOPPING NOT_SERVED FAIR_SHARE UNHEARD NO_ANSWER NEXT; of one
    that does not wait: RUNNING ACCEPTED BLOCKED SUBMITTED VERIFIED FAILED CANCELLED; of a Group: MISSION_ENDED HALTED.

    --json: {"mission", "item", "state", "capability", "version", "asked", "answered", "gates": [{"code", "text", "change",
    "from_s", "to_s"}], "forecast", "progress", "damage"}; asked, answered: Workers; from_s, to_s: when a start is expected,
    coarse, in seconds from now, null where nobody can say; forecast: what its Worker disclosed, null or {"start_from_ms",
    "start_to_ms", "end_ms", "confidence", "capacity_state", "computed_ms"}; progress: what its latest run said, null or
    {"done", "total", "phase", "milestones", "note", "said_ms", "unlogged"}; damage: what of it its Worker could not read,
    null or {"what", "size", "digest", "of"}
    """

    async def read(store: Store) -> Why:
        return await why_of(store, await find(store, address))

    found = with_store(url, prefix, read)
    facts = found.facts
    if as_json:
        about = {"mission": facts.mission, "item": facts.item, "state": facts.state.value}
        name, version = parted(facts.capability)
        asked = {"asked": found.asked, "answered": found.answered}
        gates = list(map(asdict, found.gates))
        forecast = None if facts.forecast is None else asdict(facts.forecast)
        damage = facts.damage and asdict(facts.damage)
        told = {"forecast": forecast, "progress": facts.progress and asdict(facts.progress), "damage": damage}
        document({**about, "capability": name, "version": version, **asked, "gates": gates, **told})
        return
    target = console()
    target.print(cell(f"{facts.mission}/{facts.item} is {facts.state} ({spoken(facts.capability)})"))
    for gate in found.gates:
        target.print(cell(gate.code), cell(gate.text))
        target.print(cell(f"  what would change it: {gate.change}"), style="dim")
    if when := expected(found.gates[0]):
        target.print(cell(f"its start is expected {when}"))


async def find(store: Store, address: str) -> ItemFacts:
    """What the store knows of the item at this address; Refused where there is none."""
    found: list[ItemFacts] = []
    for group, item in readings(address):
        facts = await pictures.why(store, group, item)
        if facts is not None:
            found.append(facts)
    if len(found) > 1:
        both = " or ".join(f"item {quoted(one.item)} of Mission {quoted(one.mission)}" for one in found)
        raise Misuse(f"{quoted(address)} may be {both}: rename one of them")
    if found:
        return found[0]
    for group, _ in readings(address):
        if await store.mission(group) is not None:
            raise Refused(
                f"mission {quoted(name_of(group))} has no item of that name: {safe(address)}", code="ITEM_NOT_FOUND"
            )
    raise Refused(not_here(f"mission of {quoted(address)}"), code="GROUP_NOT_FOUND")
