"""Which way imports go, which packages are at home where, and what keeps a module findable.

``ARROWS`` is the architecture: a room may import what its arrows reach, directly or through others. Modules that are in no
room of their own (``client``, ``explain``, ``doctor``, …) are the ``ACTORS``: they put the rooms below together for the
command line, which nobody imports.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.imports import (
    PACKAGE,
    Import,
    When,
    all_imports,
    imports_of,
    is_within,
    local_name,
    modules,
    tree,
)

ACTORS = "every other module"

ARROWS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "logs": (),
    "ids": ("errors",),
    "processes": (),
    "owner": ("processes",),
    "durations": ("errors",),
    "plain.replies": ("ports", "store"),
    "purge.erase": ("store",),
    "config_file": ("errors", "ids"),
    "settings": ("config_file", "ports.limits", "store.layout"),
    "definition": ("ids", "errors"),
    "engine": ("definition",),
    "ports": ("errors",),
    "adapters.azure": ("ports", "errors"),
    "adapters.local": ("ports", "errors", "processes"),
    "adapters.factory": ("adapters.azure", "adapters.local", "store", "settings"),
    "store": ("engine", "ports", "ids"),
    "coordinator": ("store", "logs", "durations", "purge.erase"),
    "worker": ("store", "logs", "settings", "adapters.factory", "plain.replies", "owner"),
    "views": ("store", "durations", "owner", "settings"),
    "control": ("views.reading", "store"),
    ACTORS: (
        *("views", "control"),
        *("coordinator", "worker", "store", "settings", "logs", "adapters.factory"),
        *("processes", "owner", "durations", "plain.replies", "purge.erase"),
    ),
    "cli": (ACTORS,),
}

PASS_ON_NOTHING = ("adapters.factory",)
"""Rooms that hide what they import: who may import them may not import what lies behind them."""

AT_HOME: dict[str, tuple[str, ...]] = {
    "azure": ("adapters.azure",),
    "aiohttp": ("adapters.azure",),
    "click": ("cli",),
    "rich": ("cli", "progress"),
    "jsonschema": ("definition",),
    "yaml": ("definition", "config_file"),
}
"""Where packages of others may be imported at all."""

SLOW_TO_LOAD = ("rich", "jsonschema")
"""Packages that are imported where they are needed, never while a module of ours is loaded."""

NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "_shared", "shared", "misc", "base"}

OWN = [found for found in all_imports() if is_within(found.imported, PACKAGE)]
OTHERS = [found for found in all_imports() if not is_within(found.imported, PACKAGE)]


def room_of(module: str) -> str:
    """The room that a module of the package is in."""
    name = local_name(module)
    return next((room for room in ARROWS if is_within(name, room)), ACTORS)


def reach(room: str) -> Iterator[str]:
    """All rooms, and single modules of rooms, that a room's arrows lead to."""
    for target in ARROWS.get(room, ()):
        yield target
        if target not in PASS_ON_NOTHING:
            yield from reach(target)


def may_import(found: Import) -> bool:
    room, name = room_of(found.importer), local_name(found.imported)
    if room == room_of(found.imported):
        return True
    return any(
        room_of(found.imported) == target or (target != ACTORS and is_within(name, target)) for target in reach(room)
    )


def listed(violations: list[Import]) -> str:
    return "\n".join(str(found) for found in violations)


# -- the arrows


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_reach(room: str) -> None:
    violations = [found for found in OWN if room_of(found.importer) == room and not may_import(found)]

    assert not violations, listed(violations)


def test_every_room_exists() -> None:
    rooms = {room_of(module) for module in modules()}

    assert rooms == set(ARROWS)


@pytest.mark.parametrize(
    ("room", "never"),
    [
        ("engine", "ports"),
        ("engine", "store"),
        ("definition", "engine"),
        ("store", "adapters.local"),
        ("worker", "adapters.azure"),
        ("coordinator", "worker"),
        ("ids", "definition"),
        (ACTORS, "cli"),
    ],
)
def test_the_arrows_say_what_they_are_meant_to_say(room: str, never: str) -> None:
    assert never not in set(reach(room))


def test_nobody_imports_the_command_line() -> None:
    violations = [found for found in OWN if room_of(found.imported) == "cli" and room_of(found.importer) != "cli"]

    assert not violations, listed(violations)


@pytest.mark.parametrize("adapter", ["adapters.azure", "adapters.local"])
def test_only_the_factory_knows_an_adapter(adapter: str) -> None:
    users = [found for found in OWN if is_within(local_name(found.imported), adapter)]
    violations = [found for found in users if room_of(found.importer) not in (adapter, "adapters.factory")]

    assert not violations, listed(violations)


# -- packages of others


def test_packages_of_others_are_imported_only_where_they_are_at_home() -> None:
    foreign = [found for found in OTHERS if top_level(found) not in sys.stdlib_module_names]
    violations = [
        found
        for found in foreign
        if not any(is_within(local_name(found.importer), home) for home in AT_HOME.get(top_level(found), ()))
    ]

    assert not violations, listed(violations)


def test_what_is_slow_to_load_is_imported_where_it_is_needed() -> None:
    violations = [found for found in OTHERS if top_level(found) in SLOW_TO_LOAD and found.when is When.LOADING]

    assert not violations, listed(violations)


@pytest.mark.parametrize("module", ["task", "workflow"])
def test_what_the_scripts_of_tasks_import_loads_nothing_else_of_the_package(module: str) -> None:
    loaded = loaded_with(f"{PACKAGE}.{module}") | loaded_with(PACKAGE)

    assert loaded == {PACKAGE, f"{PACKAGE}.{module}"}


def test_no_modules_need_each_other_to_load() -> None:
    graph = {
        module: {found.imported for found in imports_of(module) if found in OWN and found.when is When.LOADING}
        for module in modules()
    }

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        pytest.fail(f"a cycle of imports: {' -> '.join(exc.args[1])}")


# -- modules that can be found and understood


@pytest.mark.parametrize("module", modules())
def test_a_module_says_what_lives_in_it(module: str) -> None:
    assert ast.get_docstring(tree(module))


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [module for module in modules() if NAMES_THAT_SAY_NOTHING & set(module.split("."))]


def top_level(found: Import) -> str:
    return found.imported.partition(".")[0]


def loaded_with(module: str) -> set[str]:
    """The modules of the package that importing this one loads, itself included."""
    loaded: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in loaded:
            loaded.add(name)
            waiting += [found.imported for found in imports_of(name) if found in OWN and found.when is When.LOADING]
    return loaded
