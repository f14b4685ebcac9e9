"""Every key's name. A partition's keys begin with `prefix:{tag}:`; the tag alone decides the slot (design.md 3.1).

A Group's keys go on with its token, a partition's own with `@`, which no token holds: a hostile name collides with nothing.
"""

from __future__ import annotations

import binascii
from functools import lru_cache
from zlib import crc32

from ..model import AgentId, GroupId

SLOTS = 16384
PARTITIONS_MAX = 256
FORMAT_VERSION = 1


@lru_cache(maxsize=512)
def hash_tag(partition: int, partitions: int) -> str:
    """The tag whose slot lies in this partition's equal share of 0..16383, so that P tags divide a Cluster evenly."""
    low, high = partition * SLOTS // partitions, (partition + 1) * SLOTS // partitions
    for salt in range(100_000):
        tag = f"{partition}.{salt}"
        if low <= binascii.crc_hqx(tag.encode(), 0) % SLOTS < high:
            return tag
    raise AssertionError(f"no tag for partition {partition} of {partitions}")


def partition_of(token: str, partitions: int) -> int:
    """The partition of a Group or the home partition of an Agent: the same on every machine, for life."""
    return crc32(token.encode()) % partitions


def base(prefix: str, partition: int, partitions: int) -> str:
    """What every key of a partition begins with."""
    return f"{prefix}:{{{hash_tag(partition, partitions)}}}:"


def store_record(prefix: str) -> str:
    """The Organization's record of the store: format version and number of partitions."""
    return f"{prefix}:{{org}}:@store"


def policy(prefix: str) -> str:
    """The Organization's policy, and who changed it when."""
    return f"{prefix}:{{org}}:@policy"


def meta(base_: str) -> str:
    return f"{base_}@meta"


def wake(base_: str, capability_set: str) -> str:
    return f"{base_}@wake:{capability_set}"


def inbox(base_: str, who: AgentId | str) -> str:
    return f"{base_}@inbox:{who}"


def asked(base_: str, nonce: str) -> str:
    """That a question is open, and how many Workers it was put to."""
    return f"{base_}@asked:{nonce}"


def groups(base_: str) -> str:
    return f"{base_}@groups"


def log(base_: str, group: GroupId) -> str:
    return f"{base_}{group}:log"


def mission(base_: str, group: GroupId) -> str:
    return f"{base_}{group}:mission"


def ended(base_: str, group: GroupId) -> str:
    """The Agents whose Membership in the Group was ended."""
    return f"{base_}{group}:ended"


def items(base_: str, group: GroupId) -> str:
    return f"{base_}{group}:items"


def snapshot(base_: str, group: GroupId) -> str:
    """The Group's current Snapshot: its chunks by number, and what it is of."""
    return f"{base_}{group}:snapshot"


def jobs(base_: str, group: GroupId) -> str:
    """The items of a Mission that is or was open, by the sequence in which each was authorized."""
    return f"{base_}{group}:jobs"


def item(base_: str, group: GroupId, item_: str) -> str:
    return f"{base_}{group}:i:{item_}"


def body(base_: str, group: GroupId, item_: str, name: str) -> str:
    """A long body of an item: inputs `in`, Checkpoints `ck0` `ck1`, result `rs`, failure `fl`, needs `nd`, resolution `rv`."""
    return f"{base_}{group}:{name}:{item_}"


def pause(base_: str) -> str:
    return f"{base_}@pause"


def schedules(base_: str) -> str:
    return f"{base_}@sched"


def parked(base_: str) -> str:
    return f"{base_}@parked"


def blocked(base_: str) -> str:
    """The items that are blocked, by since when."""
    return f"{base_}@blocked"


def checkpoint_name(number: int) -> str:
    """The body in which Checkpoint `number` stands: the newest two are kept, by parity."""
    return f"ck{number % 2}"


def seqs(base_: str) -> str:
    return f"{base_}@seqs"


def epochs(base_: str) -> str:
    """The newest Session Epochs, by Agent, in each Agent's home partition; an hour after its last session they go."""
    return f"{base_}@epochs"


def sessions(base_: str) -> str:
    """The live sessions, by Agent."""
    return f"{base_}@sessions"


def due(base_: str) -> str:
    """What is to be done when, by time."""
    return f"{base_}@due"


def dependents(base_: str, group: GroupId, item_: str) -> str:
    """Who waits for an item."""
    return f"{base_}{group}:out:{item_}"


def halted(base_: str) -> str:
    """The due entries that were set aside with a Group that was halted."""
    return f"{base_}@halted"


def held(base_: str, agent: AgentId) -> str:
    """The items that an Agent owns."""
    return f"{base_}@held:{agent}"


def tally(base_: str) -> str:
    """How many Groups an account and a class have, and how many items of an account have not ended (`q:<account>`)."""
    return f"{base_}@tally"


def usage(base_: str) -> str:
    """The service of each node: `g:<group>`, `a:<class>:<account>`, `c:<class>`."""
    return f"{base_}@usage"


def take(base_: str, capability: str) -> str:
    """What may be taken now of one capability, in its order."""
    return f"{base_}@take:{capability}"
