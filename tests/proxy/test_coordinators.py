"""Several coordinators as real processes, each behind a proxy of its own: frozen, cut off, killed.

Who leads is seen from outside: in the lease row, in the logs, and in what each one asks of the storage. A standby asks for
the lease row and for nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from ai4s.jobq.store.layout import LEASE, Names
from ai4s.jobq.store.lease import ROW
from tests.proxy.conftest import services_at
from tests.proxy.plant import check_all_ran_after_their_parents, diamonds, executions
from tests.support.azurite import Azurite
from tests.support.fault_proxy import SERVICES, FaultProxy
from tests.support.fork_server import shared_fork_server
from tests.support.project import PATIENCE_S, Project, Running, project, until
from tests.support.trace import traced

pytestmark = pytest.mark.azurite

TTL_S = 3.0  # the least there is
TAKEOVER_S = TTL_S + 5.0


@dataclass
class Candidate:
    """One coordinator process, its proxy and its log."""

    process: Running
    proxy: FaultProxy
    log: Path

    @property
    def lines(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def leads(self) -> int:
        """How often it has said that it leads."""
        return self.lines.count("This coordinator leads now")

    @property
    def decided(self) -> int:
        """How many requests it has sent that only a leader sends."""
        requests = self.proxy.requests
        return sum(count for kind, count in requests.items() if kind != "table.get" and not kind.startswith("blob."))


@dataclass
class Election:
    """A project with some coordinators and one worker that no fault meets."""

    here: Project
    azurite: Azurite
    candidates: list[Candidate] = field(default_factory=list)

    def submit(self, name: str) -> str:
        """Submit 40 tasks with a trace of their own; the workflow id."""
        definition = traced(self.definition(name), self.here.folder / f"{name}.trace")
        (self.here.folder / f"{name}.trace").touch()
        (self.here.folder / f"{name}.json").write_text(json.dumps(definition))
        return self.here.workflow("submit", f"{name}.json").strip()

    def definition(self, name: str) -> dict[str, object]:
        return {**diamonds("default", cmd="sleep 0.1"), "name": name}

    def progress(self, name: str) -> int:
        return len(executions(self.here.folder / f"{name}.trace"))

    def check(self, name: str, workflow_id: str) -> None:
        """In the record nothing is lost and nothing doubled, whatever was sent or begun a second time on the way."""
        watched = self.here.cli(
            "workflow", "watch", workflow_id, "--timeout", f"{PATIENCE_S:.0f}s", timeout_s=2 * PATIENCE_S
        )
        assert watched.returncode == 0, self.here.logs()
        trace = self.here.folder / f"{name}.trace"
        check_all_ran_after_their_parents(self.definition(name), trace)
        tasks = self.here.tasks(workflow_id).values()
        assert Counter((task["status"], task["attempt"]) for task in tasks) == {("completed", 1): 40}

    def holder(self) -> tuple[int, float]:
        """The process that the lease row names, and since when (epoch seconds) it leads."""

        async def read() -> tuple[int, float]:
            async with services_at(self.azurite.ports) as services:
                entity = await services.table(Names(self.here.prefix).index_table).get(LEASE, ROW)
                assert entity is not None
                pid = int(str(entity.values["owner"]).split("-")[-2])
                return pid, datetime.fromisoformat(str(entity.values["since"])).timestamp()

        return asyncio.run(read())

    def leader(self) -> Candidate:
        pid, _ = self.holder()
        return next(candidate for candidate in self.candidates if candidate.process.pid == pid)

    def others(self, than: Candidate) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate is not than]

    def until_taken_over(self, from_: Candidate, lost_at: float) -> Candidate:
        """Wait until another one leads, and check how long nobody did."""
        until(lambda: self.holder()[0] != from_.process.pid, "another one to lead")
        taken = self.leader()
        until(lambda: taken.leads, "the new leader to say so")
        assert self.holder()[1] - lost_at <= TAKEOVER_S
        return taken

    def check_one_decides(self) -> None:
        """A second workflow is worked on by the holder of the lease alone."""
        leader = self.leader()
        before = {id(other): other.decided for other in self.others(leader)}
        workflow_id = self.submit("after")
        self.check("after", workflow_id)
        assert set(executions(self.here.folder / "after.trace").values()) == {1}
        assert self.leader() is leader
        assert {id(other): other.decided for other in self.others(leader)} == before


@contextmanager
def election(azurite: Azurite, folder: Path, count: int) -> Iterator[Election]:
    with ExitStack() as stack:
        direct = {f"JOBQ_AZURITE_{service.upper()}_PORT": str(azurite.port(service)) for service in SERVICES}
        here = stack.enter_context(project(folder, "devstoreaccount1", direct, forks=shared_fork_server()))
        made = Election(here, azurite)
        for number in range(count):
            proxy = stack.enter_context(FaultProxy(azurite.ports))
            process = here.start(
                *("workflow", "coordinator", "--lease-ttl-s", f"{TTL_S:g}", "--sweep-s", "1", "--visibility-s", "3"),
                log=f"coordinator-{number}.log",
                environment=proxy.environment,
            )
            made.candidates.append(Candidate(process, proxy, folder / f"coordinator-{number}.log"))
        here.worker("default", "-n", "4")
        until(lambda: sum(candidate.leads for candidate in made.candidates) == 1, "one to lead")
        until(lambda: all(c.leads or "Standing by" in c.lines for c in made.candidates), "the others to stand by")
        yield made


@pytest.fixture
def own_azurite() -> Iterator[Azurite]:
    """Its tables are this test's alone, as projects share one prefix."""
    with Azurite() as azurite:
        yield azurite


@pytest.mark.long
def test_a_killed_and_a_frozen_leader_are_replaced_and_the_thawed_one_stands_by(
    own_azurite: Azurite, tmp_path: Path
) -> None:
    """Three coordinators: one is killed in the middle of work, the next one stopped for longer than its lease."""
    with election(own_azurite, tmp_path, 3) as vote:
        workflow_id = vote.submit("first")
        until(lambda: vote.progress("first") >= 5, "some tasks to run")
        killed = vote.leader()
        os.kill(killed.process.pid, signal.SIGKILL)
        frozen = vote.until_taken_over(killed, time.time())
        until(lambda: vote.progress("first") >= 15, "some more tasks to run")
        os.kill(frozen.process.pid, signal.SIGSTOP)
        vote.until_taken_over(frozen, time.time())
        vote.check("first", workflow_id)

        os.kill(frozen.process.pid, signal.SIGCONT)
        until(lambda: "Standing by" in frozen.lines or "standing by" in frozen.lines, "the thawed one to stand by")
        vote.check_one_decides()


@pytest.mark.long
def test_a_leader_cut_off_from_the_tables_is_replaced_and_stands_by_when_it_is_back(
    own_azurite: Azurite, tmp_path: Path
) -> None:
    """Its queues still answer: it must not go on receiving."""
    with election(own_azurite, tmp_path, 2) as vote:
        workflow_id = vote.submit("first")
        until(lambda: vote.progress("first") >= 8, "some tasks to run")
        alone = vote.leader()
        alone.proxy.cut_off("table")
        vote.until_taken_over(alone, time.time())
        received = alone.proxy.requests["queue.receive"]
        vote.check("first", workflow_id)
        assert alone.proxy.requests["queue.receive"] == received

        alone.proxy.restore("table")
        until(lambda: "Standing by" in alone.lines or "standing by" in alone.lines, "the lonely one to stand by")
        vote.check_one_decides()
