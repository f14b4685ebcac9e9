"""Reads the house without importing it: its rooms (modules), what each imports, and from where."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

WINGS = ("coordinator", "shared", "worker")
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Import:
    """One imported module, absolute: `treadle.shared.model`, `redis.asyncio`."""

    target: str
    line: int
    relative: bool
    member: str
    """The name taken from it: `UUID` of `from uuid import UUID`; '' where the module itself is meant."""
    at_module_level: bool
    """Runs (or is read by a type checker) with the module itself, not later inside a function."""


@dataclass(frozen=True)
class Room:
    """One Python file of a wing."""

    path: Path
    name: str
    """`treadle.shared.model`; a package's `__init__.py` has the package's name."""
    wing: str
    tree: ast.Module
    lines: int

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        return self.name if self.is_face else self.name.rpartition(".")[0]


class House:
    """Everything the rules of this folder are asked about, read from the files below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """The Python files of the three wings, by path."""
        paths = (path for wing in WINGS for path in sorted((self.root / wing).rglob("*.py")))
        return tuple(self._read(path) for path in paths)

    def _read(self, path: Path) -> Room:
        parts = path.relative_to(self.root).with_suffix("").parts
        name = ".".join(("treadle", *(parts[:-1] if parts[-1] == "__init__" else parts)))
        text = path.read_text(encoding="utf-8")
        return Room(path, name, parts[0], ast.parse(text, str(path)), text.count("\n"))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(room.name for room in self.rooms)

    @cached_property
    def test_files(self) -> tuple[tuple[Path, ast.Module], ...]:
        return tuple(
            (path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
            for path in sorted((self.root / "tests").rglob("*.py"))
        )

    @cached_property
    def lua_files(self) -> tuple[Path, ...]:
        return tuple(sorted((self.root / "shared/store/lua").glob("*.lua")))

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    def imports(self, room: Room) -> tuple[Import, ...]:
        """Each module that `room` imports; a name imported from a package is its module of that name, if it has one."""
        return tuple(self._imports(room))

    def _imports(self, room: Room) -> Iterator[Import]:
        deep = {id(inner) for outer in ast.walk(room.tree) if _is_function(outer) for inner in ast.walk(outer)}
        for node in ast.walk(room.tree):
            top = id(node) not in deep
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, relative=False, member="", at_module_level=top)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, room)
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    target, member = (full, "") if full in self.names else (base, alias.name)
                    yield Import(target, node.lineno, relative=node.level > 0, member=member, at_module_level=top)
            elif isinstance(node, ast.Call) and (named := _imported_by_call(node)):
                yield Import(named, node.lineno, relative=False, member="", at_module_level=top)

    def where(self, room: Room, line: int = 1) -> str:
        return f"{room.path.relative_to(self.root)}:{line}"


def absolute_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of each import of `tree` that names its module absolutely."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _absolute(node: ast.ImportFrom, room: Room) -> str:
    """The absolute name of what a `from` statement names; one that climbs out of `treadle` keeps its dots."""
    if node.level == 0:
        return node.module or ""
    package = room.package.split(".")
    if node.level > len(package):
        return "." * node.level + (node.module or "")
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _imported_by_call(node: ast.Call) -> str | None:
    """The literal name given to `import_module` or `__import__`: an arrow must not hide in a string."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called not in {"import_module", "__import__"} or not node.args:
        return None
    first = node.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def inside(name: str, package: str) -> bool:
    """Whether `name` is `package` or something in it."""
    return name == package or name.startswith(package + ".")


def top_of(target: str) -> str:
    return target.partition(".")[0]


@cache
def the_house() -> House:
    """This one, read once a run."""
    return House(ROOT)
