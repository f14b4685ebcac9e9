"""A handler's result as the bytes that are stored."""

from __future__ import annotations

from typing import Any

from treadle.shared import codec
from treadle.shared.inputs import packed


def pack_result(result: Any) -> bytes:
    """`result` packed within its bound. Misuse names the path inside it that cannot be stored."""
    return packed(result, field="result", limit=codec.RESULT_MAX)
