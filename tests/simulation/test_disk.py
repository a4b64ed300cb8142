"""What a disk keeps when its process ends, and what blocking work is worth then."""

import asyncio
import random
from collections.abc import Callable

import pytest

from sparklog.errors import LockedError, StorageError
from sparklog.storage_backends.blocking import replaced_runner, run_blocking
from tests.simulation.actors import Node, close_coroutines
from tests.simulation.blocking_work import VirtualRunner
from tests.simulation.disk import HostDisk
from tests.simulation.loop import VirtualLoop

SEEDS = range(40)


class Bench:
    """A disk, and a process that works on it."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop(random.Random(seed), 1_000.0)
        self.disk = HostDisk("bench", self.loop, random.Random(seed))
        self.backend = self.disk.backend
        self.node = self.loop.add(Node("worker"))
        self._seed = seed

    def __enter__(self) -> "Bench":
        self.runner = VirtualRunner(self.loop, random.Random(self._seed))
        self._replaced = replaced_runner(self.runner)
        self._replaced.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.loop.nodes:
            self.loop.kill(node)
        self.runner.end()
        close_coroutines(self.loop.nodes)
        self.loop.close()
        self._replaced.__exit__(None, None, None)


def after_power_loss(seed: int) -> bytes | None:
    """Flushed: ``safe``; written after it: ``perhaps``."""
    with Bench(seed) as bench:
        handle = bench.backend.open("log", create=True)
        handle.writev([b"safe"])
        bench.backend.flush("log")
        handle.writev([b"per", b"haps"])
        bench.disk.lose_power()
        with pytest.raises(StorageError, match="was open when its disk crashed"):
            handle.read(0, 1)
        return bench.backend.read("log")


def test_a_power_loss_tears_what_was_not_flushed_anywhere() -> None:
    left = {after_power_loss(seed) for seed in SEEDS}
    assert all(data is not None and data.startswith(b"safe") for data in left)
    assert all(b"safeperhaps".startswith(data or b"?") for data in left)
    assert {b"safe", b"safeperhaps"} < left  # nothing, all of it, and something between


def test_a_power_loss_may_lose_names_that_were_not_flushed() -> None:
    outcomes = set()
    for seed in SEEDS:
        with Bench(seed) as bench:
            bench.backend.put("old", b"1")
            bench.backend.rename("old", "new")
            bench.disk.lose_power()
            outcomes.add(tuple(bench.backend.list("")))
    assert outcomes == {("old",), ("new",)}


def test_a_killed_process_leaves_everything_but_its_locks() -> None:
    with Bench() as bench:
        handle = bench.backend.open("log", create=True)
        handle.writev([b"not flushed"])
        mapped = bench.backend.open("index", create=True)
        bytes_of = mapped.map(8)
        bytes_of.buffer[:3] = b"abc"
        bench.backend.lock(".lock")
        with pytest.raises(LockedError):
            bench.backend.lock(".lock")
        bench.disk.end_process()
        bytes_of.buffer[:3] = b"xyz"  # a dead process's stores reach nobody
        with pytest.raises(StorageError):
            handle.writev([b"more"])
        bench.backend.lock(".lock").release()
        assert bench.backend.read("log") == b"not flushed"
        assert bench.backend.read("index") == b"abc" + bytes(5)
        bench.backend.open("index").truncate(3)  # its map is gone too
        bench.backend.crash()
        assert bench.backend.read("log") == b""  # it was in the page cache only


def written_when_killed(seed: int) -> bool:
    """Whether work that was under way at a kill had happened."""
    with Bench() as bench, replaced_runner(VirtualRunner(bench.loop, random.Random(seed))):

        async def work() -> None:
            await run_blocking(bench.backend.put, "file", b"x")
            raise AssertionError("a dead process hears of its work")

        async def main() -> None:
            bench.node.spawn(bench.loop, work())
            await asyncio.sleep(0.001)
            bench.loop.kill(bench.node)
            await asyncio.sleep(10)

        bench.loop.run_until_complete(main())
        return bench.backend.exists("file")


def test_blocking_work_of_a_killed_process_happened_or_not() -> None:
    assert {written_when_killed(seed) for seed in SEEDS} == {False, True}


def slices(seed: int) -> tuple[list[str], list[str]]:
    """What two pieces of work and a process that goes on meanwhile do, in what order; the disk."""
    with Bench(seed) as bench:
        steps: list[str] = []

        def work(name: str) -> None:
            for number in range(3):
                bench.backend.put(f"{name}{number}", b"x")
                steps.append(f"{name}{number}")

        async def main() -> None:
            spawn = bench.node.spawn
            doing = asyncio.gather(*(spawn(bench.loop, run_blocking(work, n)) for n in "ab"))
            while not doing.done():
                steps.append(".")
                await asyncio.sleep(0.001)

        bench.loop.run_until_complete(main())
        return [step for step in steps if step != "."], bench.backend.list("")


def test_blocking_work_is_done_in_slices_at_times() -> None:
    orders = [slices(seed) for seed in range(60)]
    assert orders == [slices(seed) for seed in range(60)]
    assert all(names == ["a0", "a1", "a2", "b0", "b1", "b2"] for _, names in orders)
    turns = {"".join(step[0] for step in steps) for steps, _ in orders}
    assert {"aaabbb", "bbbaaa"} < turns  # and some where they took turns


def test_sliced_work_of_a_killed_process_is_done_in_part() -> None:
    left = set()
    for seed in range(200):
        with Bench(seed) as bench:

            def work(bench: Bench = bench) -> None:
                for number in range(3):
                    bench.backend.put(f"file-{number}", b"x")

            async def main(bench: Bench = bench, work: Callable[[], None] = work) -> None:
                bench.node.spawn(bench.loop, run_blocking(work))
                await asyncio.sleep(0.002)
                bench.loop.kill(bench.node)

            bench.loop.run_until_complete(main())
            bench.runner.end()  # what still stood still does nothing any more
            left.add(len(bench.backend.list("")))
    assert left == {0, 1, 2, 3}


def test_blocking_work_gives_its_result_its_error_and_takes_time() -> None:
    with Bench() as bench:

        async def main() -> None:
            assert await run_blocking(lambda: 42) == 42
            assert 0 < bench.loop.time() < 1
            with pytest.raises(StorageError, match="cannot find"):
                await run_blocking(bench.backend.read, "missing")

        bench.loop.run_until_complete(main())


def test_cancelled_work_is_forgotten_or_waited_for() -> None:
    ends = set()
    with Bench() as bench:

        async def main() -> None:
            for number in range(200):
                done: list[int] = []
                task = asyncio.ensure_future(run_blocking(done.append, number))
                await asyncio.sleep(0.001)
                task.cancel()
                (answer,) = await asyncio.gather(task, return_exceptions=True)
                await asyncio.sleep(1)
                ends.add((isinstance(answer, asyncio.CancelledError), bool(done)))

        bench.loop.run_until_complete(main())
    assert ends == {(True, False), (True, True), (False, True)}


def test_a_process_can_be_killed_inside_an_operation() -> None:
    with Bench() as bench:
        steps: list[str] = []

        async def work() -> None:
            try:
                for number in range(5):
                    bench.backend.put(f"file-{number}", b"x")
                    steps.append(f"put {number}")
            finally:
                bench.backend.put("good-bye", b"x")

        async def main() -> None:
            bench.disk.kill_after(3, lambda: bench.loop.kill(bench.node))
            bench.node.spawn(bench.loop, work())
            await asyncio.sleep(10)

        bench.loop.run_until_complete(main())
        assert steps == ["put 0", "put 1"]
        assert bench.backend.list("") == ["file-0", "file-1"]
        assert bench.loop.unhandled == []


def test_a_slow_disk_holds_its_process_up() -> None:
    with Bench() as bench:

        async def work() -> float:
            for number in range(10):
                bench.backend.put(f"file-{number}", b"x")
            await asyncio.sleep(0)
            return bench.loop.time()

        bench.disk.slow_s = 1.0
        task = bench.node.spawn(bench.loop, work())
        assert 5 < bench.loop.run_until_complete(task) < 15
        bench.disk.heal()
        again = bench.node.spawn(bench.loop, work())
        before_s = bench.loop.time()
        assert bench.loop.run_until_complete(again) == before_s


def test_corruption_changes_one_byte_for_good() -> None:
    with Bench() as bench:
        bench.backend.put("a.log", bytes(100))
        bench.backend.put("b.index", bytes(100))
        path, position = bench.disk.corrupt(".log") or ("", -1)
        assert path == "a.log"
        bench.backend.crash()
        data = bench.backend.read("a.log")
        assert [at for at, byte in enumerate(data) if byte] == [position]
        assert bench.backend.read("b.index") == bytes(100)
        assert bench.disk.corrupt(".snapshot") is None
