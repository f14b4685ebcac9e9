"""Why there is no result: errors that say it with the Evidence of the Workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from treadle.shared import codec
from treadle.shared.answers import ItemView
from treadle.shared.errors import Refused
from treadle.shared.model import MissionState
from treadle.shared.names import name_of

from .core.wording import quoted

FAILURES_SHOWN_MAX, TEXT_SHOWN_MAX = 3, 300
ADDRESS_SHOWN_MAX = 120


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one WorkItem failed, as its Worker's Evidence has it."""

    item: str
    type: str
    text: str
    place: str = ""
    """Where in the handler's own code, as `file:line`; '' where that is not known."""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.type}: {self.text[:TEXT_SHOWN_MAX]}{where}"


class MissionFailed(Refused):
    """There are no results, and never will be. `failures` has each failed item with the type and text of its Evidence."""

    def __init__(
        self, mission: str, state: MissionState, failures: tuple[Failure, ...], cancelled: tuple[str, ...] = ()
    ) -> None:
        self.mission, self.state, self.failures = mission, state, failures
        self.cancelled = cancelled
        """The items that were cancelled."""
        reasons = [f"{one.item}: {one}" for one in failures[:FAILURES_SHOWN_MAX]]
        if len(failures) > FAILURES_SHOWN_MAX:
            reasons.append(f"and {len(failures) - FAILURES_SHOWN_MAX} more")
        if cancelled and state is not MissionState.CANCELLED:
            count = "1 item of it was" if len(cancelled) == 1 else f"{len(cancelled):,} items of it were"
            more = ", ..." if len(cancelled) > FAILURES_SHOWN_MAX else ""
            reasons.append(f"{count} cancelled: {', '.join(cancelled[:FAILURES_SHOWN_MAX])}{more}")
        super().__init__(f"mission {quoted(mission)} {state}{': ' if reasons else ''}{'; '.join(reasons)}")


class JobFailed(Refused):
    """The job failed, and is not tried again by itself; `failure` says why. `await job.retry()` has it done once more."""

    def __init__(self, address: str, failure: Failure, *, attempts: int) -> None:
        self.address, self.failure, self.attempts = address, failure, attempts
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"job {quoted(address, ADDRESS_SHOWN_MAX)} failed, tried {times}: {failure}")


class JobCancelled(Refused):
    """The job was cancelled: there is no result, and never will be."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"job {quoted(address, ADDRESS_SHOWN_MAX)} was cancelled")


def failure_of(item: ItemView) -> Failure:
    """What the Evidence of a failed item says; it may be damaged or gone, and that is said."""
    name = name_of(item.item)
    evidence = codec.unpack(item.failure, what=f"Evidence of {item.mission}/{name}") if item.failure else None
    if not isinstance(evidence, dict):
        return Failure(name, "unknown", "its Evidence is not in the store")
    said = cast("dict[str, object]", evidence)
    return Failure(name, *(str(said.get(part, other)) for part, other in _PARTS))


_PARTS = (("type", "unknown"), ("text", ""), ("place", ""))


def result_of(item: ItemView) -> object:
    """The result of a verified item."""
    what = f"result of {item.mission}/{name_of(item.item)}"
    return codec.unpack(b"" if item.result is None else item.result, what=what)


def evidence_of(said: str | Mapping[str, Any], by: str) -> dict[str, Any]:
    """Evidence as people give it, in the form that a Worker's has."""
    if isinstance(said, str):
        return {"type": "Failed", "text": said, "place": "", "by": by}
    return {"type": "Failed", "text": "", "place": "", "by": by, **said}
