"""Every shell block of the README and the tutorial is run, in order, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs import shell_blocks
from tests.support.azurite import Azurite, free_ports

REPOSITORY = Path(__file__).parents[2]
PAGES = ["README.md", "docs/tutorial.md"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: the repository's files that the pages speak of."""
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    for name in ("Makefile", "pyproject.toml", "package-lock.json"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for path in (REPOSITORY / "examples" / "tutorial").glob("*.*"):
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """A shell with the package installed, emulator commands on free ports, and an identity that logs in to nothing."""
    ports = free_ports()
    tools = folder / "tools"
    tools.mkdir()
    for service, port in (("blob", ports.blob), ("queue", ports.queue), ("table", ports.table)):
        real = REPOSITORY / "node_modules" / ".bin" / f"azurite-{service}"
        _write_tool(tools / f"azurite-{service}", f'exec "{real}" "$@" --{service}Port {port} --silent')
    _write_tool(tools / "az", 'test "$1" = login')
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBQ_")}
    return {
        **clean,
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), clean["PATH"]]),
        "HOME": str(folder),
        "JOBQ_LOCAL_DIR": str(folder / "store"),
        "JOBQ_AZURITE_BLOB_PORT": str(ports.blob),
        "JOBQ_AZURITE_QUEUE_PORT": str(ports.queue),
        "JOBQ_AZURITE_TABLE_PORT": str(ports.table),
    }


@pytest.mark.azurite
@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, folder: Path, environment: dict[str, str]) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8").replace("myaccount/", "devstoreaccount1/")

    if "azurite-queue" in text:
        shell_blocks.run(text, folder=folder, environment=environment, timeout_s=240)
    else:
        with Azurite() as azurite:
            ports = azurite.ports
            here = {
                "JOBQ_AZURITE_BLOB_PORT": str(ports.blob),
                "JOBQ_AZURITE_QUEUE_PORT": str(ports.queue),
                "JOBQ_AZURITE_TABLE_PORT": str(ports.table),
            }
            shell_blocks.run(text, folder=folder, environment={**environment, **here}, timeout_s=240)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_commands(page: str) -> None:
    assert len(shell_blocks.commands((REPOSITORY / page).read_text(encoding="utf-8"))) > 5


def _write_tool(path: Path, line: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{line}\n")
    path.chmod(0o755)
