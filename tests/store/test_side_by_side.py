"""The same work for many items: in order, a few at a time, and over with the first error."""

from __future__ import annotations

import asyncio

import pytest

from ai4s.jobq.store.side_by_side import side_by_side


async def test_results_are_in_the_order_of_the_items() -> None:
    async def slower_first(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number * number

    assert await side_by_side(range(10), slower_first, at_once=3) == [number * number for number in range(10)]


async def test_no_items_are_no_work() -> None:
    assert await side_by_side([], asyncio.sleep, at_once=3) == []


@pytest.mark.parametrize("at_once", [1, 4])
async def test_no_more_are_worked_on_than_allowed(at_once: int) -> None:
    under_way: set[int] = set()
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        under_way.add(number)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(number)

    await side_by_side(range(20), work, at_once=at_once)

    assert most == at_once


async def test_the_first_error_is_raised_as_it_is_and_stops_the_others() -> None:
    ended: list[str] = []

    async def work(number: int) -> None:
        if number == 1:
            raise KeyError("one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("stopped")

    with pytest.raises(KeyError, match="one"):
        await side_by_side(range(10), work, at_once=2)

    assert ended == ["stopped"]
