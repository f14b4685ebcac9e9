"""How `treadle-worker` ends, as its exit status says it. docs/operations.md has them in one table."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit statuses of `treadle-worker run` and `treadle-worker drain`."""

    DONE = 0
    """Stopped as asked, the work given back, whatever a handler does; or: asked, and with --wait ended."""
    UNFORESEEN = 1
    """Something unforeseen, a handler that ended the event loop; or: one has not ended in time."""
    MISUSE = 2
    """Something given is wrong, the store cannot be reached at the start; or: several match and none was chosen."""
    NONE_RUNS = 3
    """No Worker of this user matches."""
    REPLACED = 4
    """A newer runtime of the same name has its session."""
    STORE_LOST = 5
    """The store was emptied, or went back in time: a person must look."""
    SIGNALLED = 128
    """Plus n: ended at once by a second signal n."""
