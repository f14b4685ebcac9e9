"""What the process of a slot says, checked before it means anything: a handler may say it past its context. Pure.

Corrupt for whatever `piped.py` and `child.py` do not say. That is the failure of the one run, and its process ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from treadle.shared import codec, progress
from treadle.shared.errors import Corrupt, Misuse

from ..context import Blocked
from .failures import Failure
from .frames import FRAME_MAX

EFFECT_NAME_MAX = 2_400
_EFFECT = re.compile(r"[\w.~%-]+(?:/\d{1,16})?", re.ASCII)


def _is_state(value: Any) -> bool:
    return isinstance(value, bytes) and isinstance(codec.unpack(value, what="state", limit=codec.CHECKPOINT_MAX), dict)


def _is_effect(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= EFFECT_NAME_MAX and _EFFECT.fullmatch(value) is not None


def _is_result(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) <= codec.EFFECT_MAX


_ASKED: dict[str, tuple[Callable[[Any], bool], ...]] = {
    "save": (_is_state,),
    "begin_effect": (_is_effect,),
    "commit_effect": (_is_effect, _is_result),
}
"""What a process may ask of its run's Service, by the method's name, and what each argument is."""

_FAILURE = {"type": str, "text": str, "place": str, "code": str, "retryable": bool}


def asked(method: str, raw: bytes) -> list[Any]:
    """The arguments of a question. Misuse where a handler may not ask it."""
    checks = _ASKED.get(method)
    if checks is None:
        raise Misuse(f"{method[:40]!r}: nothing that a handler may ask its Worker")
    arguments = _listed(method, raw, len(checks))
    if not all(check(one) for check, one in zip(checks, arguments, strict=True)):
        raise Misuse(f"{method}: {codec.shown(arguments)}: nothing that a context asks")
    return arguments


def logged(raw: bytes) -> tuple[int, str, str]:
    """Level, name of the logger, text."""
    level, name, text = _listed("log", raw, 3)
    if type(level) is not int or not isinstance(name, str) or not isinstance(text, str):
        raise Corrupt(f"log: {codec.shown([level, name, text])}: no level, name and text")
    return level, name, text


def spent(raw: bytes) -> tuple[str, int]:
    """Dimension and amount; whether they are any is the budget's to say."""
    dimension, amount = _listed("spend", raw, 2)
    return dimension, amount


def progressed(raw: bytes) -> list[progress.Said]:
    """How far the run is: one for each milestone, at least one."""
    done, total, phase, milestones, note = _listed("progress", raw, 5)
    reached = _list(milestones)
    if not isinstance(milestones, list) or len(reached) > progress.MILESTONES_MAX:
        raise Corrupt(f"progress: {len(reached):,} milestones, must be a list of at most {progress.MILESTONES_MAX}")
    return [progress.said(done, total, note=note, phase=phase, milestone=one) for one in reached or [""]]


def returned(raw: bytes) -> bytes:
    """A result, packed."""
    codec.unpack(raw, what="result", limit=codec.RESULT_MAX)
    return raw


def raised(kind: str, raw: bytes) -> Failure | Blocked:
    """What the handler raised."""
    said = codec.unpack(raw, what=kind, limit=FRAME_MAX)
    fields: dict[str, Any] = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    if kind == "blocked" and fields.keys() == {"reason", "needs", "lease_s"}:
        return Blocked(fields["reason"], needs=fields["needs"], lease_s=fields["lease_s"])
    if kind != "failure" or {name: type(one) for name, one in fields.items()} != _FAILURE:
        raise Corrupt(f"{kind[:40]}: {codec.shown(fields)}: not what came of a run")
    return Failure(fields["type"], fields["text"], fields["place"], fields["code"], fields["retryable"])


def _listed(what: str, raw: bytes, length: int) -> list[Any]:
    found = _list(codec.unpack(raw, what=what, limit=FRAME_MAX))
    if len(found) != length:
        raise Corrupt(f"{what}: {codec.shown(found)}: not {length} fields")
    return found


def _list(value: object) -> list[Any]:
    """A list as it is; nothing of anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []
