"""Names as people write them, and tokens as the store keeps them.

A token is the name percent-encoded: only letters, digits and `_.-~%` are left, so a hostile name (braces, colons, spaces,
control characters, any script) can neither leave its partition's hash tag nor break a packed reply. The encoding is reversible.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from .errors import Misuse, Refused

NAME_BYTES_MAX = 256
TOKEN_CHARS_MAX = 3 * NAME_BYTES_MAX
SHOWN_CHARS_MAX = 80
CAPABILITY = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


def token(name: str, *, field: str) -> str:
    """The token of `name`; Misuse naming `field` where it is empty, too long or not valid Unicode."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise Misuse(f"{field}: holds a lone surrogate at {name[:40]!a}; use valid Unicode") from None
    if not 1 <= size <= NAME_BYTES_MAX:
        raise Misuse(f"{field}: {size} bytes, must be 1 to {NAME_BYTES_MAX}")
    return quote(name, safe="")


def text_token(text: str) -> str:
    """The token of a short text of valid Unicode, which its caller has bounded; `name_of` gives it back."""
    return quote(text, safe="")


def name_of(token_: str) -> str:
    """The name a token was made from."""
    return unquote(token_) if "%" in token_ else token_  # it is asked often, and of most tokens for nothing


def shown(token_: str) -> str:
    """The name of a token for a log or a terminal: what cannot be printed is escaped, so no name forges a line."""
    name = name_of(token_)
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)


def not_here(what: str) -> str:
    """What is said of something that the store does not have: the same, whoever asks."""
    return f"{what} is not in this store; check its id (`treadle missions`), TREADLE_URL and TREADLE_PREFIX"


def unknown_mission(group: str) -> Refused:
    """The refusal of a Mission that the store does not have, by its token."""
    name = shown(group)
    return Refused(
        not_here(f'mission "{name[:SHOWN_CHARS_MAX]}{"..." if len(name) > SHOWN_CHARS_MAX else ""}"'),
        code="GROUP_NOT_FOUND",
    )


def check_capability(value: str, *, field: str) -> str:
    """`value`, if it is a well-formed capability name; Misuse otherwise."""
    if not CAPABILITY.fullmatch(value):
        raise Misuse(
            f"{field}: {value[:80]!r} is not a capability name; use 1 to 64 of a-z, 0-9, '.', '_', '-', "
            "beginning and ending with a letter or digit"
        )
    return value
