"""Every import statement of the package, read from its source: who, whom, where, and when it is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = "ai4s.jobq"


class When(Enum):
    """When an import statement is executed."""

    LOADING = "when the module is imported"
    LATER = "when a function is called"
    NEVER = "only by type checkers"


@dataclass(frozen=True, slots=True)
class Import:
    """One module that one module imports. ``importer`` and ``imported`` are full dotted names of modules."""

    importer: str
    imported: str
    path: Path
    line: int
    when: When

    def __str__(self) -> str:
        return f"{self.path.relative_to(SOURCE.parent)}:{self.line}: {self.importer} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    """All modules of the package, by dotted name; a package goes by its own name."""
    paths = sorted((SOURCE / PACKAGE.replace(".", "/")).rglob("*.py"))
    return {_module_name(path): path for path in paths}


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


@cache
def all_imports() -> tuple[Import, ...]:
    """Every import statement of every module, one entry for each module it names."""
    return tuple(found for module in modules() for found in imports_of(module))


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """The imports of one module, in the order of its text."""
    return tuple(
        Import(module, name, modules()[module], node.lineno, when)
        for node, when in _statements(tree(module), When.LOADING)
        for name in _imported(module, node)
    )


def local_name(module: str) -> str:
    """A module's name below the package: ``engine.decide``; empty for the package itself."""
    return module.removeprefix(PACKAGE).removeprefix(".")


def is_within(module: str, room: str) -> bool:
    """Whether a module (by its local name) is this room or lies in it."""
    return module == room or module.startswith(f"{room}.")


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _statements(node: ast.AST, when: When) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _statements(child, When.LATER if when is When.LOADING else when)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for statement in child.body:
                yield from _statements(ast.Module([statement], []), When.NEVER)
            for statement in child.orelse:
                yield from _statements(ast.Module([statement], []), when)
        else:
            yield from _statements(child, when)


def _imported(module: str, node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules a statement names; ``from package import module`` names the module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = _absolute(module, node)
    inside = [f"{base}.{alias.name}" for alias in node.names]
    found = [name for name in inside if name in modules()]
    return found if len(found) == len(inside) else [base, *found]


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    is_package = modules()[module].name == "__init__.py"
    parts = module.split(".")
    above = parts[: len(parts) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])
