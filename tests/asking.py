"""What a run of a slot's process is made of, where no Worker is."""

from __future__ import annotations

from typing import Any

from treadle.shared.redaction import Secrets
from treadle.worker.slots.given import Given


class Asked:
    """A Service that notes what it is asked."""

    has_returned = is_over = is_lost = False
    why = ""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def save(self, state: bytes) -> None:
        self.asked.append(("save", state))

    async def begin_effect(self, effect: str) -> tuple[str, bytes]:
        self.asked.append(("begin_effect", effect))
        return "OK", b""

    async def commit_effect(self, effect: str, result: bytes) -> tuple[str, bytes]:
        self.asked.append(("commit_effect", effect, result))
        return "OK", b""

    def progress(self, said: object) -> None:
        self.asked.append(("progress", said))

    def spend(self, dimension: str, amount: int) -> None:
        self.asked.append(("spend", dimension, amount))

    def left(self, _dimension: str) -> int | None:
        return None

    def folder(self) -> str:
        return ""


def given_to(**inputs: Any) -> Given:
    """A run with these inputs."""
    return Given(
        mission="m",
        item="a",
        worker="w",
        attempt=1,
        ownership_epoch=1,
        lease="l",
        incarnation=1,
        inputs=inputs,
        state={},
        results={},
        resolution=None,
        contract={},
        name="m/a",
        credentials=Secrets(),
        spent={},
    )
