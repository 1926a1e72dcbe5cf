from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ai4s.jobq.adapters.azure.services import open_azure
from ai4s.jobq.errors import UsageError
from tests.support import azurite


async def test_opening_and_naming_makes_no_request_and_needs_no_identity() -> None:
    async with open_azure("realaccount", "realaccount", "realaccount") as services:
        services.table("Rows")
        services.queue("jobs")
        services.blobs("files")

        assert services.requests == {}


async def test_the_same_name_gives_the_same_handle() -> None:
    async with open_azure("realaccount", "realaccount", "realaccount") as services:
        assert services.table("Rows") is services.table("Rows")
        assert services.queue("jobs") is services.queue("jobs")
        assert services.blobs("files") is services.blobs("files")


@pytest.mark.parametrize("name", ["", "ab", "-a", "a--b", "Upper", "x" * 64])
async def test_bad_queue_and_container_names_are_refused_at_once(name: str) -> None:
    async with open_azure("realaccount", "realaccount", "realaccount") as services:
        with pytest.raises(UsageError):
            services.queue(name)
        with pytest.raises(UsageError):
            services.blobs(name)


async def test_a_bad_table_name_is_refused_at_once() -> None:
    async with open_azure("realaccount", "realaccount", "realaccount") as services:
        with pytest.raises(UsageError):
            services.table("1st")


def test_a_missing_azurite_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(azurite, "BINARIES", tmp_path)

    with pytest.raises(azurite.AzuriteStartError, match="npm ci"):
        azurite.Azurite().start()


def test_commands_that_read_tables_load_no_other_sdk() -> None:
    script = (
        "import asyncio, sys\n"
        "from ai4s.jobq.adapters.azure.services import open_azure\n"
        "async def main():\n"
        "    async with open_azure('devstoreaccount1', 'devstoreaccount1', 'devstoreaccount1') as services:\n"
        "        services.table('Rows')\n"
        "        print([name for name in ('azure.storage.queue', 'azure.storage.blob') if name in sys.modules])\n"
        "asyncio.run(main())"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
