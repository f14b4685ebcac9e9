"""The only room that speaks Redis."""

from .authority import Authority, Held, Look, RenewalDoor, Wake, directed_to
from .connection import Endpoint, Lineage, RedisEndpoint
from .operations import (
    Accept,
    AskYield,
    Block,
    Decline,
    Disclose,
    Fail,
    FreeSlot,
    Hold,
    Operation,
    Release,
    ReserveSlot,
    Save,
    Start,
    Submit,
    Take,
    Turn,
    Yield,
    payload_size,
)
from .replies import Bell, Envelope, Outcome, TurnReply, events_of
from .snapshots import LOG_KEEP
from .store import Store

__all__ = [
    "LOG_KEEP",
    "Accept",
    "AskYield",
    "Authority",
    "Bell",
    "Block",
    "Decline",
    "Disclose",
    "Endpoint",
    "Envelope",
    "Fail",
    "FreeSlot",
    "Held",
    "Hold",
    "Lineage",
    "Look",
    "Operation",
    "Outcome",
    "RedisEndpoint",
    "Release",
    "RenewalDoor",
    "ReserveSlot",
    "Save",
    "Start",
    "Store",
    "Submit",
    "Take",
    "Turn",
    "TurnReply",
    "Wake",
    "Yield",
    "directed_to",
    "events_of",
    "payload_size",
]
