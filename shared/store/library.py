"""The function library: built from `lua/`, its digest in every name, so two versions run side by side (design.md 3.3)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_ITEM = (
    *("item", "capability", "width", "urgency", "impact", "deadline", "start_by_s", "not_before", "retry", "digest"),
    *("after", "inputs", "contract", "offer", "timeout_ms", "gates", "resources", "..."),
)

DOORS: dict[str, tuple[str, ...]] = {
    "open_store": ("version", "partitions", "id"),
    "set_policy": ("expected", "digest", "actor", "note", "text"),
    "note_policy": ("replid", "version", "ring"),
    "adopt": ("replid", "run_id", "replid2", "expected"),
    "reincarnate": ("replid", "actor", "action", "reason"),
    "distrust": ("replid", "agent", "session", "minted", "incarnation"),
    "create": (
        *("replid", "group", "digest", "actor", "objective", "account", "weight", "class", "deadline_ms"),
        *("keep_ms", "budget_ms", "form", "total", "queued", *_ITEM),
    ),
    "add": ("replid", "group", "chunk", "actor", "queued", *_ITEM),
    "seal": ("replid", "group", "actor"),
    "cancel": ("replid", "group", "item", "actor", "reason"),
    "fail_item": ("replid", "group", "item", "actor", "digest", "evidence"),
    "retry": ("replid", "group", "item", "actor", "action"),
    "approve": ("replid", "group", "item", "actor", "reason"),
    "unblock": ("replid", "group", "item", "actor", "action", "digest", "resolution"),
    "offer": ("replid", "group", "item", "actor", "action", "offer"),
    "prioritise": ("replid", "group", "item", "actor", "action", "urgency", "deadline_ms", "impact"),
    "archived": ("replid", "group", "seq", "digest", "actor"),
    "require_archive": ("replid", "required"),
    "end_membership": ("replid", "group", "agent", "actor", "reason"),
    "admit": ("replid", "group", "agent", "actor"),
    "open_session": ("replid", "agent", "nonce"),
    "install_session": ("replid", "agent", "session", "ttl_ms", "slots", "lives", "set", "capabilities", "after"),
    "resize": ("replid", "agent", "session", "slots"),
    "close_session": ("replid", "agent", "session"),
    "turn": (
        *("replid", "agent", "session", "ttl_ms", "tag", "lane", "n", "digest", "slots", "ahead", "token"),
        *("cursors", "group", "seq", "...", "operation", "argument", "..."),
    ),
    "renew": ("replid", "agent", "session", "ttl_ms", "group", "item", "epoch", "lease", "..."),
    "tick": ("replid", "most"),
    "tail": ("replid", "agent", "session", "group", "after", "most"),
    "look": ("replid", "since", "paging", "capability", "..."),
    "read": ("replid", "group", "item", "body", "..."),
    "watch": ("replid", "group", "item", "client", "ttl_ms"),
    "question": ("replid", "group", "item", "nonce"),
    "answer": ("replid", "agent", "session", "nonce", "reasons"),
    "schedule": (
        *("replid", "verb", "group", "schedule", "actor", "digest", "due_ms", "missed", "spec"),
        *("capability", "width", "urgency", "impact", "start_by_s", "retry", "inputs", "contract", "timeout_ms"),
    ),
    "fire": ("replid", "group", "schedule", "due_ms", "next_ms", "skipped", "queued"),
    "snapshot": ("replid", "group", "actor", "through", "digest", "size", "chunks", "number", "chunk"),
    "trim": ("replid", "group", "first"),
    "inspect": ("replid", "group", "item", "..."),
    "halt": ("replid", "group"),
    "drop_item": ("replid", "group", "item", "capability", "digest", "evidence"),
    "stage": ("replid", "group", "through", "digest", "number", "chunk"),
    "unlist": ("replid", "group", "index", "..."),
    "repair": (
        *("replid", "group", "actor", "reason", "incarnation", "through", "digest"),
        *("total", "verified", "failed", "cancelled", "live", "running", "starts", "estimate"),
        *("size", "chunks"),
    ),
    "recall": ("replid", "group", "entry", "..."),
    "recount": ("replid", "account", "found", "counted"),
    "pause": ("replid", "verb", "what", "actor", "after"),
    "take": ("group", "capability", "most", "offset", "limits"),
    "accept": ("group", "item"),
    "decline": ("group", "item", "reason"),
    "hold": ("group", "item", "keep"),
    "start": ("group", "item", "epoch", "limits"),
    "disclose": (
        *("group", "item", "epoch", "lease", "interval_ms", "start_from_ms", "start_to_ms", "end_ms"),
        *("confidence", "capacity"),
    ),
    "progress": ("group", "item", "epoch", "lease", "done", "total", "phase", "milestones", "note"),
    "save": ("group", "item", "epoch", "lease", "number", "digest", "state"),
    "yield": ("group", "item", "epoch", "lease", "number", "digest", "state", "keep"),
    "block": ("group", "item", "epoch", "lease", "number", "digest", "state", "reason", "needs", "ttl_ms"),
    "effect": ("group", "item", "epoch", "lease", "effect"),
    "commit": ("group", "item", "epoch", "lease", "effect", "result"),
    "release": ("group", "item", "epoch", "reason", "found"),
    "ask_yield": ("group", "item", "epoch", "lease", "overdue_ms", "reason"),
    "reserve_slot": ("group", "capability", "lease", "most", "ttl_ms"),
    "free_slot": ("group", "lease"),
    "submit": ("group", "item", "epoch", "lease", "digest", "result"),
    "fail": ("group", "item", "epoch", "lease", "digest", "evidence", "retryable"),
}
"""Name -> arguments of each Lua file, as its contract header lists them; those from `take` on are operations of a `turn`."""

_HEADER = re.compile(r"^-- (\w+): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Library:
    """The source to load and the name of each function in it."""

    name: str
    source: str
    functions: dict[str, str]


def lua_files() -> dict[str, str]:
    """The Lua files by name, in the order in which they are joined: `_base` first, shared pieces, then transactions."""
    folder = resources.files(f"{__package__}.lua")
    texts = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
    return {name: texts[name] for name in sorted(texts, key=lambda n: (n != "_base.lua", not n.startswith("_"), n))}


@cache
def build() -> Library:
    """The library of this program's version."""
    files = lua_files()
    digest = hashlib.sha256("".join(files.values()).encode()).hexdigest()[:12]
    functions: dict[str, str] = {}
    registrations: list[str] = []
    for file, text in files.items():
        name = file.removesuffix(".lua")
        if f"T.calls.{name} =" not in text:
            continue
        flags = dict(_HEADER.findall(text))["flags"]
        listed = "" if flags == "none" else f"'{flags}'"
        functions[name] = f"treadle_{digest}_{name}"
        registrations.append(
            f"redis.register_function{{function_name='{functions[name]}', callback=T.calls.{name}, flags={{{listed}}}}}"
        )
    # A block a file keeps each file's locals to itself: one Lua function may hold 200 of them.
    parts = [files["_base.lua"], *(f"do\n{text}\nend" for name, text in files.items() if name != "_base.lua")]
    source = f"#!lua name=treadle_{digest}\n" + "\n".join([*parts, *registrations]) + "\n"
    return Library(f"treadle_{digest}", source, functions)
