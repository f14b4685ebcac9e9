"""Effects that happen once: what a run does outside the store, and the places that check who does it."""

from .effect import Effect
from .file import FileGate
from .gate import Gate, Passage
from .http import Done, Ledger, headers_of
from .sqlite import SqliteGate
from .token import Token

__all__ = ["Done", "Effect", "FileGate", "Gate", "Ledger", "Passage", "SqliteGate", "Token", "headers_of"]
