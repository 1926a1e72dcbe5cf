"""Whatever call a process dies at, the next one finishes its work: real processes and SIGKILL on the embedded store.

Here each role dies after its first call of each kind; ``make chaos`` adds before it, the second and the last ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.enumeration import ROLES, Backend, Extent, enumerate_role
from tests.support.fork_server import ForkServer


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_lost_whatever_call_a_process_dies_at(role: str, forks: ForkServer, tmp_path: Path) -> None:
    """Every kind of call of the role; and each of those deaths took place."""
    result = enumerate_role(role, Backend("local", {}), forks, tmp_path, Extent.FIRST)

    assert not result.not_reached
    assert len(result.kinds) >= 4, "every role asks and writes both tables at least"
