"""Delayed operations: which are tried, when they expire, and when they are cancelled."""

import asyncio
from collections.abc import Awaitable, Callable

from sparklog.executors.purgatory.purgatory import Owner, Purgatory
from sparklog.executors.purgatory.timer import Timers


class FakeOperation:
    """A delayed operation that completes once ``enough`` bytes came."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.seen: list[tuple[str, int]] = []
        self.expired = 0
        self.cancelled = 0

    def try_complete(self, key: str, size: int) -> bool:
        self.seen.append((key, size))
        self.enough -= size
        return self.enough <= 0

    def expire(self) -> None:
        self.expired += 1

    def cancel(self) -> None:
        self.cancelled += 1


def run(test: Callable[[Purgatory[str]], Awaitable[None]], operations_max: int = 10) -> None:
    async def within() -> None:
        timers = Timers()
        purgatory: Purgatory[str] = Purgatory(timers, operations_max=operations_max, keys_max=10)
        await test(purgatory)
        purgatory.check_invariants()
        purgatory.close()
        assert (len(purgatory), len(timers), timers.armed) == (0, 0, False)

    asyncio.run(within())


def test_an_operation_is_tried_until_it_has_completed() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        operation = FakeOperation(10)
        purgatory.watch(operation, ["a", "b", "a"], 5)
        purgatory.check_and_complete("c", 100)
        purgatory.check_and_complete("a", 4)
        assert len(purgatory) == 1
        purgatory.check_and_complete("b", 6)
        purgatory.check_and_complete("a", 9)
        assert (operation.seen, operation.expired, len(purgatory)) == ([("a", 4), ("b", 6)], 0, 0)

    run(test)


def test_an_operation_expires_once() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        late, answered = FakeOperation(10), FakeOperation(1)
        purgatory.watch(late, ["a"], 0.01)
        purgatory.watch(answered, ["a"], 0.01)
        purgatory.check_and_complete("a", 1)
        while not late.expired:
            await asyncio.sleep(0.005)
        purgatory.check_and_complete("a", 100)
        assert (late.expired, answered.expired, len(late.seen)) == (1, 0, 1)

    run(test)


def test_an_operation_too_many_and_one_without_time_expire_at_once() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        operations = [FakeOperation(1) for _ in range(3)]
        for operation in operations:
            purgatory.watch(operation, ["a"], 5)
        assert [operation.expired for operation in operations] == [0, 0, 1]
        impatient = FakeOperation(1)
        purgatory.watch(impatient, ["a"], 0)
        assert impatient.expired == 1

    run(test, operations_max=2)


def test_a_key_too_many_expires_at_once_and_ended_operations_make_room() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        first, second, third = FakeOperation(1), FakeOperation(1), FakeOperation(1)
        purgatory.watch(first, ["a", "b", "c", "d", "e", "f"], 5)
        purgatory.watch(second, ["a", "b", "c", "d", "e"], 5)
        assert [operation.expired for operation in (first, second)] == [0, 1]
        purgatory.check_and_complete("f", 1)
        purgatory.watch(third, ["a"] * 10, 5)
        assert (third.expired, len(purgatory)) == (0, 1)

    run(test)


def test_closing_expires_all_operations() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        operations = [FakeOperation(1) for _ in range(3)]
        for operation in operations:
            purgatory.watch(operation, ["a", "b"], 5)
        purgatory.close()
        purgatory.watch(operations[0], ["a"], 5)
        assert [operation.expired for operation in operations] == [2, 1, 1]

    run(test)


def test_a_closed_owner_cancels_its_operations() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        owner, other = Owner(), Owner()
        operations = [FakeOperation(2) for _ in range(4)]
        for operation, of in zip(operations, (owner, owner, other, None), strict=True):
            purgatory.watch(operation, ["a"], 5, of)
        assert (len(owner), len(other)) == (2, 1)
        owner.close()
        purgatory.check_invariants()
        assert (len(owner), len(other)) == (0, 1)
        purgatory.check_and_complete("a", 2)
        assert (len(owner), len(other)) == (0, 0)
        purgatory.watch(operations[3], ["a"], 5, owner)
        assert [(w.cancelled, w.expired, len(w.seen)) for w in operations] == [
            (1, 0, 0),
            (1, 0, 0),
            (0, 0, 1),
            (1, 0, 1),
        ]

    run(test)


def test_an_owner_expires_its_operations_of_one_purgatory() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        owner = Owner()
        fetch, produce = FakeOperation(1), FakeOperation(1)
        other: Purgatory[str] = Purgatory(Timers())
        purgatory.watch(fetch, ["a"], 5, owner)
        other.watch(produce, ["a"], 5, owner)
        owner.expire(purgatory)
        assert (fetch.expired, produce.expired, len(owner)) == (1, 0, 1)
        other.close()

    run(test)


def test_an_operation_that_ends_another_one() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        owner = Owner()
        ended = FakeOperation(1)

        class Ends(FakeOperation):
            def try_complete(self, key: str, size: int) -> bool:
                owner.close()
                return super().try_complete(key, size)

        purgatory.watch(Ends(1), ["a"], 5)
        purgatory.watch(ended, ["a"], 5, owner)
        purgatory.check_and_complete("a", 1)
        assert (ended.cancelled, ended.seen, len(purgatory)) == (1, [], 0)

    run(test)


def test_all_operations_can_be_tried() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        operation = FakeOperation(1)
        purgatory.watch(operation, ["a", "b"], 5)
        purgatory.check_and_complete_all()
        assert (operation.seen, len(purgatory)) == ([("a", 0), ("b", 0)], 1)

    run(test)
