"""One store, many processes: nothing is lost, doubled or damaged, and the dead hold nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from ai4s.jobq import processes
from ai4s.jobq.adapters.local import open_local, schema
from ai4s.jobq.adapters.local.services import LocalServices
from ai4s.jobq.ports.queue import OutgoingMessage
from ai4s.jobq.ports.table import Insert
from tests.contract.local_processes import (
    acknowledged_by,
    insert_until_killed,
    receive_and_hold,
    spawned,
    work_on_queue_and_table,
)
from tests.contract.waiting import DEADLINE_S, until

WORKERS, ROUNDS = 8, 25


def integrity(directory: Path) -> str:
    with closing(sqlite3.connect(directory / schema.FILE_NAME)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


async def joined(process: object) -> None:
    await asyncio.to_thread(process.join)  # type: ignore[attr-defined]  # multiprocessing's class has no public name


async def drain(services: LocalServices) -> None:
    while messages := await services.queue("shared").receive(32, visibility_s=600):
        for message in messages:
            await services.table("Done").transact("p", [Insert(message.body, {"n": 1})])


async def test_eight_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.table("Counter").transact("p", [Insert("row", {"n": 0})])

    with spawned(work_on_queue_and_table, str(tmp_path), ROUNDS, count=WORKERS) as workers:
        await asyncio.gather(*map(joined, workers))
        exits = [worker.exitcode for worker in workers]

    async with open_local(tmp_path) as services:
        await drain(services)  # Insert fails on a message that was delivered to a worker, too
        counter = await services.table("Counter").get("p", "row")
        done = (await services.table("Done").query("p")).entities
    assert exits == [0] * WORKERS
    assert counter is not None
    assert counter.values["n"] == WORKERS * ROUNDS
    assert len(done) == WORKERS * ROUNDS
    assert integrity(tmp_path) == "ok"


async def test_kill_9_of_all_loses_nothing_acknowledged_and_damages_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "store"

    async def all_are_at_work() -> bool:
        files = [acknowledged_by(n, directory) for n in range(4)]
        return all(file.exists() and len(file.read_text()) > 200 for file in files)

    with spawned(insert_until_killed, str(directory), count=4) as writers:
        await until(all_are_at_work)
        for writer in writers:
            writer.kill()
        await asyncio.gather(*map(joined, writers))

    assert integrity(directory) == "ok"
    async with open_local(directory) as services:
        for n in range(4):
            acknowledged = [line for line in acknowledged_by(n, directory).read_text().split("\n")[:-1] if line]
            found = await services.table("Rows").get_many(f"p{n}", acknowledged)
            assert sorted(found) == acknowledged
            partners = await services.table("Rows").get_many(f"p{n}", [f"x{int(row)}" for row in acknowledged])
            assert len(partners) == len(acknowledged)


async def test_messages_of_a_killed_process_come_back_at_once(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        queue = services.queue("queue")
        await queue.send([OutgoingMessage(body=str(n), message_id="") for n in range(40)])

        with spawned(receive_and_hold, str(tmp_path), "queue") as [holder]:
            await until(lambda: services.table("Held").get("p", "held"))
            hidden = await queue.receive(1, visibility_s=600)
            holder.kill()
            await joined(holder)

            async with asyncio.timeout(DEADLINE_S):  # against an hour of visibility timeout
                await queue.arrival(3600)
        back = await queue.receive(1, visibility_s=600)

    assert hidden == []
    assert [message.delivery_count for message in back] == [2]


async def test_messages_of_a_stopped_but_living_process_stay_hidden(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        queue = services.queue("queue")
        await queue.send([OutgoingMessage(body="body", message_id="")])

        with spawned(receive_and_hold, str(tmp_path), "queue") as [holder]:
            await until(lambda: services.table("Held").get("p", "held"))
            assert holder.pid is not None
            os.kill(holder.pid, signal.SIGSTOP)
            await queue.arrival(2.5)  # long enough for two looks at the holders

            assert await queue.receive(1, visibility_s=600) == []


async def test_send_of_another_process_ends_the_wait(tmp_path: Path) -> None:
    async with open_local(tmp_path) as ours, open_local(tmp_path) as theirs:
        waiting = asyncio.create_task(ours.queue("queue").arrival(3600))
        await asyncio.sleep(0)

        await theirs.queue("queue").send([OutgoingMessage(body="body", message_id="")])

        async with asyncio.timeout(DEADLINE_S):
            await waiting
        assert len(await ours.queue("queue").receive(1, visibility_s=600)) == 1


async def test_send_of_this_process_ends_the_wait(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        waiting = asyncio.create_task(services.queue("queue").arrival(3600))
        await asyncio.sleep(0)

        await services.queue("queue").send([OutgoingMessage(body="body", message_id="")])

        async with asyncio.timeout(DEADLINE_S):
            await waiting


async def test_end_of_a_delay_ends_the_wait(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        queue = services.queue("queue")
        await queue.send([OutgoingMessage(body="body", message_id="")])
        [message] = await queue.receive(1, visibility_s=600)
        await queue.abandon(message, delay_s=0.2)

        async with asyncio.timeout(DEADLINE_S):
            await queue.arrival(3600)

        assert len(await queue.receive(1, visibility_s=600)) == 1


async def test_restart_of_the_machine_ends_every_lease(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.queue("queue").send([OutgoingMessage(body="body", message_id="")])
        await services.queue("queue").receive(1, visibility_s=1e6)
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection, connection:
        connection.execute("UPDATE boots SET boot_id='the boot before'")

    async with open_local(tmp_path) as services:
        [message] = await services.queue("queue").receive(1, visibility_s=600)

    assert message.delivery_count == 2


async def test_old_messages_are_still_delivered(tmp_path: Path) -> None:
    async with open_local(tmp_path) as services:
        await services.queue("queue").send([OutgoingMessage(body="body", message_id="")])
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection, connection:
        connection.execute("UPDATE messages SET sent_at_s=0")

    async with open_local(tmp_path) as services:
        [message] = await services.queue("queue").receive(1, visibility_s=600)

    assert message.sent_at_s == 0


def test_this_process_is_not_gone() -> None:
    assert not processes.is_gone(processes.this_process())


def test_process_that_started_at_another_time_is_gone_even_if_its_pid_is_in_use() -> None:
    namespace, pid, start_time = processes.this_process().split(".")

    assert processes.is_gone(f"{namespace}.{pid}.{int(start_time) - 1}")


def test_process_of_another_namespace_cannot_be_judged() -> None:
    namespace, pid, start_time = processes.this_process().split(".")

    assert not processes.is_gone(f"{int(namespace) + 1}.{pid}.{int(start_time) - 1}")
