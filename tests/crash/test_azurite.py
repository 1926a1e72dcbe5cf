"""Whatever call a process dies at, the next one finishes its work: real processes and SIGKILL on Azurite.

Here each role dies after its first call of each kind; ``make chaos`` adds before it, the second and the last ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.enumeration import ROLES, Extent, enumerate_role, on_azurite
from tests.support.azurite import Azurite
from tests.support.fork_server import ForkServer


@pytest.mark.azurite
@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_lost_whatever_call_a_process_dies_at(
    role: str, azurite: Azurite, forks: ForkServer, tmp_path: Path
) -> None:
    """Every kind of call of the role; and each of those deaths took place."""
    result = enumerate_role(role, on_azurite(azurite.ports), forks, tmp_path, Extent.FIRST)

    assert not result.not_reached
    assert len(result.kinds) >= 4, "every role asks and writes both tables at least"
