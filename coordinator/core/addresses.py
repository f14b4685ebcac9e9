"""What a person means by `MISSION/ITEM`, and by `account:NAME` and its kin. Pure."""

from __future__ import annotations

from treadle.shared.errors import Misuse
from treadle.shared.model import GroupId, ItemId
from treadle.shared.names import check_capability, token

from .wording import quoted

SLASHES_MAX = 8
PAUSABLE = ("account", "capability", "mission")


def readings(address: str) -> list[tuple[GroupId, ItemId]]:
    """Every way to read an address: both names may hold slashes themselves. Misuse where there is none."""
    parts = address.split("/")
    splits = [("/".join(parts[:at]), "/".join(parts[at:])) for at in range(1, len(parts))]
    usable = [(mission, item) for mission, item in splits if mission and item]
    if not usable or len(usable) > SLASHES_MAX:
        raise Misuse(f"{quoted(address)} is no address of a WorkItem; write MISSION/ITEM, as m-1/thumbnails")
    return [
        (GroupId(token(mission, field="the Mission's id")), ItemId(token(item, field="the item's id")))
        for mission, item in usable
    ]


def pausable(text: str) -> str:
    """What can be paused: `all`, `account:NAME`, `capability:NAME` or `mission:ID`; Misuse for anything else."""
    kind, colon, name = text.partition(":")
    if text == "all":
        return text
    if not colon or kind not in PAUSABLE:
        hint = f"account:{text}, capability:{text} or mission:{text}" if text and len(text) < 40 else "account:NAME"
        raise Misuse(f"{quoted(text)} cannot be paused; write all, {hint}")
    if kind == "capability":
        check_capability(name, field="capability")
    else:
        token(name, field=kind)
    return text
