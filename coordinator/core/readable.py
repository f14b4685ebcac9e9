"""Names, spans, sizes and counts as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LISTED_MAX = 5


def safe(name: str) -> str:
    """A name for a terminal: what cannot be printed, or turns the direction of what follows, is escaped."""
    return "".join(char if char.isprintable() else _escaped(char) for char in name)


def _escaped(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def cut(text: str, most: int) -> str:
    """`text` made safe, on one line, at most so many characters."""
    line = safe(" ".join(text[: most * 4].split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def span(ms: float) -> str:
    """A span of time in its two largest units."""
    seconds = max(0.0, ms) / 1000
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")


def size(count: float) -> str:
    """Bytes in a unit that leaves few digits."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = 0
    while count >= 1024 and step < len(units) - 1:
        count, step = count / 1024, step + 1
    return f"{count:.0f} B" if step == 0 else f"{count:.1f} {units[step]}"


def times(number: int, what: str, many: str | None = None) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def listed(names: Sequence[str], most: int = LISTED_MAX) -> str:
    """The first of some names, and how many more there are."""
    shown = ", ".join(safe(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")
