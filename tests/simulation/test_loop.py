"""Virtual time, the order of processes, and what becomes of those that are killed or paused."""

import asyncio
import random
import time

import pytest

from tests.simulation.actors import Node, close_coroutines
from tests.simulation.loop import Stalled, VirtualLoop


def new_loop(seed: int = 1, limit_s: float = 10_000.0) -> VirtualLoop:
    return VirtualLoop(random.Random(seed), limit_s)


def end(loop: VirtualLoop) -> None:
    for node in loop.nodes:
        loop.kill(node)
    close_coroutines(loop.nodes)
    loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    loop, seen = new_loop(), []

    async def main() -> None:
        for seconds in (3_000.0, 10.0, 200.0):
            loop.call_later(seconds, seen.append, seconds)
        await asyncio.sleep(5_000)
        seen.append(loop.time())

    began = time.monotonic()
    loop.run_until_complete(main())
    assert seen == [10.0, 200.0, 3_000.0, 5_000.0]
    assert time.monotonic() - began < 60
    end(loop)


def test_timeouts_of_asyncio_run_on_virtual_time() -> None:
    loop = new_loop()

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(31)
        return loop.time()

    assert loop.run_until_complete(main()) == 90.0
    end(loop)


def test_a_stall_says_who_waits() -> None:
    loop = new_loop()
    node = loop.add(Node("broker-9"))

    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = node.spawn(loop, wait_for_nothing())
        await asyncio.sleep(2)
        await task

    with pytest.raises(Stalled, match=r"nothing is scheduled at 2\.000 s") as caught:
        loop.run_until_complete(main())
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(": ")[0].strip() for line in lines] == [
        "<broker-9, running>",
        "<world, running>",
    ]
    assert "wait_for_nothing" in lines[0] or "Event.wait" in lines[0]
    end(loop)


def test_virtual_time_has_a_limit_and_spinning_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def for_ever(seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)

    loop = new_loop(limit_s=5)
    with pytest.raises(Stalled, match="5 s of virtual time are over"):
        loop.run_until_complete(for_ever(1))
    end(loop)
    monkeypatch.setattr("tests.simulation.loop.STEPS_AT_ONCE_MAX", 1_000)
    loop = new_loop()
    with pytest.raises(Stalled, match="spins at 0"):
        loop.run_until_complete(for_ever(0))
    end(loop)


def interleaving(seed: int) -> str:
    """Two processes that take turns as the seed likes."""
    loop, seen = new_loop(seed), []

    async def count(name: str) -> None:
        for number in range(10):
            seen.append(f"{name}{number}")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(loop.add(Node(n)).spawn(loop, count(n)) for n in "ab"))

    loop.run_until_complete(main())
    end(loop)
    return " ".join(seen)


def test_the_seed_decides_the_order_of_processes_but_not_within_one() -> None:
    orders = [interleaving(seed) for seed in range(10)]
    assert orders == [interleaving(seed) for seed in range(10)]
    assert len(set(orders)) > 5
    for order in orders:
        for name in "ab":
            own = [step for step in order.split() if step.startswith(name)]
            assert own == [f"{name}{number}" for number in range(10)]


class Ticking:
    """A process that notes every second, and its ``finally``."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.node = loop.add(Node("ticker"))
        self.ticks: list[float] = []
        self.ended = False
        self.node.spawn(loop, self._tick())

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                self.ticks.append(self.loop.time())
        finally:
            self.ended = True
            await asyncio.sleep(1)


def test_a_killed_process_stays_silent() -> None:
    loop = new_loop()

    async def main() -> None:
        ticking = Ticking(loop)
        await asyncio.sleep(2.5)
        loop.kill(ticking.node)
        await asyncio.sleep(100)
        assert ticking.ticks == [1.0, 2.0]
        assert not ticking.ended  # no ``finally`` of it either, while the world lasts

    loop.run_until_complete(main())
    assert loop.unhandled == []
    end(loop)


def test_a_paused_process_catches_up() -> None:
    loop = new_loop()

    async def main() -> None:
        ticking = Ticking(loop)
        await asyncio.sleep(1.5)
        loop.hold(ticking.node)
        await asyncio.sleep(5)
        assert ticking.ticks == [1.0]
        loop.release(ticking.node)
        await asyncio.sleep(2)
        assert ticking.ticks == [1.0, 6.5, 7.5]  # it was due long ago

    loop.run_until_complete(main())
    end(loop)


def test_a_process_that_is_held_up_goes_on_by_itself() -> None:
    loop = new_loop()

    async def main() -> None:
        ticking = Ticking(loop)
        loop.hold_for(ticking.node, 3.25)
        loop.hold_for(ticking.node, 1)
        await asyncio.sleep(6)
        assert ticking.ticks == [5.25]  # it could begin at 4.25

    loop.run_until_complete(main())
    end(loop)


def test_an_exception_that_nobody_catches_is_kept() -> None:
    loop = new_loop()

    def fail() -> None:
        raise ZeroDivisionError("oops")

    async def main() -> None:
        node = loop.add(Node("broker-1"))
        loop.call_soon(fail, context=node.context.copy())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert [(t["node"], repr(t["exception"])) for t in loop.unhandled] == [
        ("broker-1", "ZeroDivisionError('oops')")
    ]
    end(loop)


def test_no_thread_may_be_left_for() -> None:
    loop = new_loop()

    async def main() -> None:
        with pytest.raises(AssertionError, match="use run_blocking"):
            await asyncio.to_thread(print)

    loop.run_until_complete(main())
    end(loop)
