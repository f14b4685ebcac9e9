"""The Organization's policy in the store: the text that stands, who changed it when, and each partition's note of it.

It is set in one key; then its version is noted in every partition, so that each reply says it, and sleepers are rung. One that
was killed in between has set it: whoever applies the same text again, or meets a partition that is behind, notes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Corrupt
from ..names import name_of, text_token, token
from ..policy import DEFAULT_POLICY, Policy
from ..policy_file import parse
from . import keys
from .store import Store

NOTE_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the policy, as it was recorded."""

    version: int
    at_ms: int
    """In the store's time."""
    actor: str
    digest: str
    """Of the text, 32 hexadecimal digits."""
    note: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The policy that stands."""

    change: Change
    text: str

    def policy(self) -> Policy:
        """What it grants; Misuse where a newer version of treadle wrote what this one does not know."""
        return replace(parse(self.text, name="the policy of the store"), version=self.change.version)


async def read(store: Store) -> Standing | None:
    """The policy that stands; None where none was ever applied: then the default one holds."""
    found = await store.run(_fields, keys.policy(store.prefix), (b"version", b"text"))
    if found[0] is None:
        return None
    version = int(found[0])
    (line,) = await store.run(_fields, keys.policy(store.prefix), (found[0],))
    return Standing(_change(version, line), (found[1] or b"").decode())


async def version(store: Store) -> int:
    """The version of the policy that stands, 0 for the default one."""
    (found,) = await store.run(_fields, keys.policy(store.prefix), (b"version",))
    return int(found or b"0")


async def known(store: Store) -> Policy:
    """What holds now: the policy that stands, else the default one."""
    standing = await read(store)
    return DEFAULT_POLICY if standing is None else standing.policy()


async def history(store: Store) -> list[Change]:
    """The last 100 changes, the newest first."""
    found = await store.run(_all, keys.policy(store.prefix))
    changes = [_change(int(field), line) for field, line in found.items() if field.isdigit()]
    return sorted(changes, key=lambda change: -change.version)


async def apply(
    store: Store, text: str, *, actor: str, note: str = "", expected: int | None = None
) -> tuple[int, bool]:
    """Makes a text the policy and notes it everywhere; its version, and whether it is another one than before.

    Misuse where the text is no policy. Refused (REVISION_CONFLICT) where the policy is not of the version that was `expected`
    (None: that of now). Safe to repeat: the text that stands already is not set again.
    """
    parse(text, name="policy")
    seen = await version(store) if expected is None else expected
    arguments = (seen, digest_of(text), token(actor, field="actor"), text_token(note[:NOTE_CHARS_MAX]) or "-", text)
    answer = await store.call_org("set_policy", keys.policy(store.prefix), arguments)
    applied = int(answer[0])
    await note_everywhere(store, applied)
    return applied, applied != seen


async def note_everywhere(store: Store, applied: int) -> None:
    """Notes a version in every partition that is behind, and rings all Workers once all of them have it."""
    calls = [("note_policy", p, (store.replid, applied, 0)) for p in range(store.partitions)]
    if any(answer[1] == b"1" for answer in await store.call_all(calls)):
        await store.call("note_policy", 0, (applied, 1))


def digest_of(text: str) -> str:
    """By which texts are told apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _change(number: int, line: bytes | None) -> Change:
    try:
        at_ms, actor, digest, note = (line or b"").decode().split(" ")
        return Change(number, int(at_ms), name_of(actor), digest, "" if note == "-" else name_of(note))
    except ValueError:
        raise Corrupt(
            f"the policy's record of version {number} is {(line or b'')[:200]!r}, not as it was written"
        ) from None


async def _fields(client: Any, key: str, names: Sequence[bytes]) -> list[bytes | None]:
    found: list[bytes | None] = await client.hmget(key, names)
    return found


async def _all(client: Any, key: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = await client.hgetall(key)
    return found
