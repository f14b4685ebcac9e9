"""What a run begins with, as plain data: all that a context is made of, in whatever runtime its handler runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from treadle.shared import codec
from treadle.shared.redaction import Secrets, known

_RESULTS = "results"
PART_MAX = codec.PAYLOAD_MAX + 1024


class Given(NamedTuple):
    """One run's own; nothing of it is another run's."""

    mission: str
    item: str
    worker: str
    attempt: int
    """Which lease of its WorkItem it holds: 1 at the first."""
    ownership_epoch: int
    lease: str
    """The Lease ID."""
    incarnation: int
    """Of the store that granted it."""
    inputs: dict[str, Any]
    state: dict[str, Any]
    """What the newest Checkpoint held; {} where there is none."""
    results: Mapping[str, Any]
    """The results of its dependencies, by their ids."""
    resolution: Any
    contract: Mapping[str, Any]
    """What its submitter agreed besides the defaults."""
    name: str
    """MISSION/ITEM as messages show it."""
    credentials: Secrets
    """What its Mission and capability are granted."""
    spent: Mapping[str, int]
    """Of its budget, by earlier attempts, as far as it was saved."""


def parts_of(given: Given) -> Iterator[tuple[str, bytes]]:
    """All of it in packed parts, none of them larger than a body may be: each result of a dependency is one."""
    plain = given._asdict() | {"credentials": dict(given.credentials)}
    results = plain.pop(_RESULTS)
    plain |= {f"{_RESULTS}/{item}": result for item, result in results.items()}
    for name, value in plain.items():
        yield name, codec.pack(value, field=name, limit=PART_MAX)


def given_of(parts: Mapping[str, bytes]) -> Given:
    """What `parts_of` has taken apart; its secrets are hidden from now on in this process too."""
    values: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for name, raw in parts.items():
        first, is_result, item = name.partition("/")
        value = codec.unpack(raw, what=name, limit=PART_MAX)
        if is_result:
            results[item] = value
        else:
            values[first] = value
    secrets = Secrets(values.pop("credentials"))
    known.learn(secrets.values())
    return Given(**values, results=results, credentials=secrets)
