"""What of the Worker's environment the process of a slot gets: an allow-list. Pure."""

from __future__ import annotations

from collections.abc import Mapping

NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
        *("LD_LIBRARY_PATH", "SSL_CERT_DIR", "SSL_CERT_FILE"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "PYTHONUTF8", "PYTHONWARNINGS", "VIRTUAL_ENV"),
    }
)
"""What a program needs to find itself, its libraries and its language. No TREADLE_*: the store's address has a password."""


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of it that every process gets; output is not held back where it is no terminal."""
    found = {name: value for name, value in environment.items() if name in NAMES or name.startswith("LC_")}
    return found | {"PYTHONUNBUFFERED": "1"}
