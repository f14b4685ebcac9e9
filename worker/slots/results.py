"""A handler's result as the bytes that are stored."""

from __future__ import annotations

from typing import Any

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.inputs import plain


def pack_result(result: Any) -> bytes:
    """`result` packed within its bound. Misuse names the path inside it that cannot be stored."""
    try:
        return codec.pack(result, field="result", limit=codec.RESULT_MAX)
    except Misuse:
        # Only now: most results are plain, and looking through them costs more than packing.
        return codec.pack(plain(result), field="result", limit=codec.RESULT_MAX)
