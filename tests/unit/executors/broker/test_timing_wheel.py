"""The timing wheel against a sorted list, and the one timer that drives it."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executors.purgatory.timer import Timers
from sparklog.executors.purgatory.timing_wheel import TimingWheel, WheelEntry

START_MS = 1_000_003
FAR_MS = 4000


@dataclass
class Model:
    """A wheel beside what it should hold, by deadline."""

    tick_ms: int
    ticks: int
    now_ms: int = START_MS
    held: dict[int, tuple[int, WheelEntry[int]]] = field(default_factory=dict)
    added: int = 0

    def __post_init__(self) -> None:
        self.wheel: TimingWheel[int] = TimingWheel(
            self.now_ms, tick_ms=self.tick_ms, ticks=self.ticks
        )

    def add(self, delay_ms: int) -> None:
        deadline_ms = self.now_ms + delay_ms
        rounded_ms = -(-deadline_ms // self.tick_ms) * self.tick_ms
        self.held[self.added] = (rounded_ms, self.wheel.add(self.added, deadline_ms))
        self.added += 1

    def cancel(self, pick: int) -> None:
        if self.held:
            number = sorted(self.held)[pick % len(self.held)]
            _, entry = self.held.pop(number)
            assert self.wheel.cancel(entry)
            assert not self.wheel.cancel(entry)

    def advance(self, step_ms: int) -> None:
        self.now_ms += step_ms
        due = sorted((at, number) for number, (at, _) in self.held.items() if at <= self.now_ms)
        found = self.wheel.advance(self.now_ms)
        assert sorted((entry.deadline_ms, entry.value) for entry in found) == due
        assert [entry.deadline_ms for entry in found] == [at for at, _ in due]
        assert not any(entry.waiting or self.wheel.cancel(entry) for entry in found)
        for _, number in due:
            del self.held[number]

    def check(self) -> None:
        self.wheel.check_invariants()
        assert len(self.wheel) == len(self.held)
        next_ms = self.wheel.next_ms
        if not self.held:
            assert next_ms is None
        else:
            # Something to do comes no later than the first deadline, and never in the past alone.
            assert next_ms is not None
            assert next_ms <= min(at for at, _ in self.held.values())


_steps = st.one_of(
    st.tuples(st.just("add"), st.integers(-5, FAR_MS)),
    st.tuples(st.just("cancel"), st.integers(0, 100)),
    st.tuples(st.just("advance"), st.integers(0, FAR_MS)),
)


@given(
    tick_ms=st.integers(1, 7),
    ticks=st.sampled_from([2, 3, 8, 64]),
    steps=st.lists(_steps, max_size=60),
)
def test_the_wheel_does_what_a_sorted_list_does(
    tick_ms: int, ticks: int, steps: list[tuple[str, int]]
) -> None:
    model = Model(tick_ms, ticks)
    for name, value in steps:
        getattr(model, name)(value)
        model.check()
    model.advance(2 * FAR_MS)
    model.check()


@given(delays=st.lists(st.integers(1, FAR_MS), min_size=1, max_size=30))
def test_advancing_from_one_wake_up_to_the_next_is_never_late(delays: list[int]) -> None:
    wheel: TimingWheel[int] = TimingWheel(START_MS, ticks=4)
    for delay in delays:
        wheel.add(delay, START_MS + delay)
    found: list[tuple[int, int]] = []
    while (next_ms := wheel.next_ms) is not None:
        found += [(next_ms, entry.value) for entry in wheel.advance(next_ms)]
    assert found == [(START_MS + delay, delay) for delay in sorted(delays)]


def test_an_empty_wheel_arms_no_timer() -> None:
    async def test() -> None:
        timers = Timers()
        assert not timers.armed
        first, second = (timers.call_later(60, lambda: None) for _ in range(2))
        assert timers.armed
        timers.cancel(first)
        timers.cancel(first)
        assert (timers.armed, len(timers)) == (True, 1)
        timers.cancel(second)
        assert (timers.armed, len(timers)) == (False, 0)

    asyncio.run(test())


def test_callbacks_come_in_order_once_and_never_early() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        timers, called, done = Timers(), [], asyncio.Event()
        began = loop.time()
        for delay_ms in (90, 5, 40, 40, 0):
            timers.call_later(
                delay_ms / 1000,
                lambda delay_ms=delay_ms: called.append((delay_ms, loop.time())),  # type: ignore[misc]
            )
        timers.call_later(0.1, done.set)
        await done.wait()
        assert [delay_ms for delay_ms, _ in called] == [0, 5, 40, 40, 90]
        assert all(at - began >= delay_ms / 1000 for delay_ms, at in called)
        assert not timers.armed

    asyncio.run(test())


def test_a_callback_that_fails_does_not_stop_the_others() -> None:
    async def test() -> None:
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        timers, done = Timers(), asyncio.Event()
        timers.call_later(0.001, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        timers.call_later(0.001, done.set)
        await done.wait()
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    asyncio.run(test())
