"""`treadle why MISSION/ITEM`: what an item waits for, and what would change it."""

from __future__ import annotations

from typing import Annotated

import typer
from treadle.shared.errors import Misuse, Refused
from treadle.shared.facts import ItemFacts
from treadle.shared.names import name_of
from treadle.shared.store import Store, pictures
from treadle.shared.versions import parted, spoken

from ..core.addresses import readings
from ..core.gates import explain
from ..core.readable import safe
from ..core.wording import quoted
from .opening import with_store
from .options import AsJson, Prefix, Url
from .output import cell, console, document

Address = Annotated[str, typer.Argument(metavar="MISSION/ITEM", help="The item, as MISSION/ITEM.", show_default=False)]


def why(address: Address, url: Url = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Say why a WorkItem waits, and what would change it.

    Every gate that holds it is named, the one to act upon first; nothing is said about other Missions.

    Codes: DEPENDENCY NOT_BEFORE BACKOFF HELD OFFER_OVER OFFERED_TO QUARANTINE PAUSED NO_WORKER UNSCHEDULABLE CAPACITY QUEUED
    NEXT; of one that does not wait: RUNNING ACCEPTED BLOCKED SUBMITTED VERIFIED FAILED CANCELLED; of a Group: MISSION_ENDED
    HALTED.

    --json: {"mission", "item", "state", "capability", "version", "gates": [{"code", "text", "change"}]}
    """
    facts = with_store(url, prefix, lambda store: find(store, address))
    gates = explain(facts)
    if as_json:
        said = [{"code": gate.code.value, "text": gate.text, "change": gate.change} for gate in gates]
        about = {"mission": facts.mission, "item": facts.item, "state": facts.state.value}
        name, version = parted(facts.capability)
        document({**about, "capability": name, "version": version, "gates": said})
        return
    target = console()
    target.print(cell(f"{facts.mission}/{facts.item} is {facts.state} ({spoken(facts.capability)})"))
    for gate in gates:
        target.print(cell(gate.code), cell(gate.text))
        target.print(cell(f"  what would change it: {gate.change}"), style="dim")


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
    raise Refused(
        f"no mission of {quoted(address)} is in this store; check its id (`treadle missions`), --url and --prefix",
        code="GROUP_NOT_FOUND",
    )
