"""The same project on every backend."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import shared_fork_server
from tests.support.project import Project, project

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(params=["local", pytest.param("devstoreaccount1", marks=pytest.mark.azurite)])
def account(request: pytest.FixtureRequest) -> str:
    """The account part of ``ACCOUNT/PREFIX``."""
    return str(request.param)


@pytest.fixture
def backend_environment(account: str, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """What a user exports for this backend. Azurite is shared; a module that puts weight on it has its own ``azurite``."""
    if account == "local":
        return {"JOBQ_LOCAL_DIR": str(tmp_path / "store")}
    ports = request.getfixturevalue("azurite").ports
    return {
        "JOBQ_AZURITE_BLOB_PORT": str(ports.blob),
        "JOBQ_AZURITE_QUEUE_PORT": str(ports.queue),
        "JOBQ_AZURITE_TABLE_PORT": str(ports.table),
    }


@pytest.fixture
def here(account: str, backend_environment: dict[str, str], tmp_path: Path) -> Iterator[Project]:
    """A user's project on this backend; its tables are this test's alone."""
    folder = tmp_path / "project"
    folder.mkdir()
    prefix = "Tutorial" if account == "local" else f"Tutorial{secrets.token_hex(4)}"
    with project(folder, account, backend_environment, prefix=prefix, forks=shared_fork_server()) as made:
        yield made


def write_definition(here: Project, definition: dict[str, Any], name: str = "workflow.json") -> str:
    """Put a definition into the project's folder; its file name."""
    (here.folder / name).write_text(json.dumps(definition))
    return name
