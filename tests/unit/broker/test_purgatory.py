"""Who waits, who is woken, and when patience ends."""

import asyncio
from collections.abc import Awaitable, Callable

from sparklog.executors.purgatory import Purgatory


class Waits:
    """Answers once it has seen ``enough`` bytes."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.seen: list[tuple[str, int]] = []
        self.expired = 0

    def look(self, key: str, size: int) -> bool:
        self.seen.append((key, size))
        self.enough -= size
        return self.enough <= 0

    def expire(self) -> None:
        self.expired += 1


def run(test: Callable[[Purgatory[str]], Awaitable[None]], waiters_max: int = 10) -> None:
    async def within() -> None:
        purgatory: Purgatory[str] = Purgatory(waiters_max=waiters_max)
        await test(purgatory)
        purgatory.check_invariants()
        purgatory.close()
        assert len(purgatory) == 0

    asyncio.run(within())


def test_a_waiter_is_asked_until_it_has_answered() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        waiter = Waits(10)
        purgatory.park(waiter, ["a", "b", "a"], 5)
        purgatory.wake("c", 100)
        purgatory.wake("a", 4)
        assert len(purgatory) == 1
        purgatory.wake("b", 6)
        purgatory.wake("a", 9)
        assert (waiter.seen, waiter.expired, len(purgatory)) == ([("a", 4), ("b", 6)], 0, 0)

    run(test)


def test_a_waiter_expires_once() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        late, answered = Waits(10), Waits(1)
        purgatory.park(late, ["a"], 0.01)
        purgatory.park(answered, ["a"], 0.01)
        purgatory.wake("a", 1)
        while not late.expired:
            await asyncio.sleep(0.005)
        purgatory.wake("a", 100)
        assert (late.expired, answered.expired, len(late.seen)) == (1, 0, 1)

    run(test)


def test_one_too_many_and_no_patience_are_answered_at_once() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        waiters = [Waits(1) for _ in range(3)]
        for waiter in waiters:
            purgatory.park(waiter, ["a"], 5)
        assert [waiter.expired for waiter in waiters] == [0, 0, 1]
        impatient = Waits(1)
        purgatory.park(impatient, ["a"], 0)
        assert impatient.expired == 1

    run(test, waiters_max=2)


def test_closing_answers_everybody() -> None:
    async def test(purgatory: Purgatory[str]) -> None:
        waiters = [Waits(1) for _ in range(3)]
        for waiter in waiters:
            purgatory.park(waiter, ["a", "b"], 5)
        purgatory.close()
        purgatory.park(waiters[0], ["a"], 5)
        assert [waiter.expired for waiter in waiters] == [2, 1, 1]

    run(test)
