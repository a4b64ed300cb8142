"""Timers: order, later deadlines without work, and bounded memory."""

from sparklog.executors.groups.timers import REBUILD_ENTRIES_MIN, Timer, TimerQueue


def due(queue: TimerQueue, now_ms: int) -> list[object]:
    found = []
    while (timer := queue.take_due(now_ms)) is not None:
        found.append(timer.subject)
    return found


def test_timers_are_due_in_their_order() -> None:
    queue = TimerQueue()
    for subject, deadline_ms in (("b", 20), ("a", 10), ("c", 20), ("d", 30)):
        queue.set(Timer(subject), deadline_ms)
    assert queue.next_deadline_ms() == 10
    assert due(queue, 9) == []
    assert due(queue, 20) == ["a", "b", "c"]
    assert due(queue, 1_000) == ["d"]
    assert queue.next_deadline_ms() is None


def test_a_timer_that_is_set_again_has_its_last_deadline() -> None:
    queue, timer = TimerQueue(), Timer("t")
    for deadline_ms in (10, 30, 20, 25):
        queue.set(timer, deadline_ms)
    assert due(queue, 24) == []
    assert due(queue, 25) == ["t"]
    assert due(queue, 1_000) == []


def test_a_cancelled_timer_is_not_due() -> None:
    queue, timer = TimerQueue(), Timer("t")
    queue.set(timer, 10)
    queue.cancel(timer)
    queue.cancel(timer)
    assert (queue.next_deadline_ms(), due(queue, 10)) == (None, [])
    queue.set(timer, 10)
    assert due(queue, 10) == ["t"]
    assert due(queue, 10) == []


def test_later_deadlines_take_no_room() -> None:
    queue, timer = TimerQueue(), Timer("t")
    for deadline_ms in range(10_000):
        queue.set(timer, deadline_ms)
    assert len(queue) == 1
    assert queue.next_deadline_ms() == 0
    assert due(queue, 9_998) == []
    assert queue.next_deadline_ms() == 9_999


def test_void_entries_take_no_more_room_than_valid_ones() -> None:
    queue = TimerQueue()
    kept = [Timer(each) for each in range(100)]
    for timer in kept:
        queue.set(timer, 1_000_000)
    for each in range(10_000):
        timer = Timer(f"void {each}")
        queue.set(timer, 2_000_000)
        queue.cancel(timer)
        assert len(queue) <= 2 * len(kept) + REBUILD_ENTRIES_MIN
    for deadline_ms in range(900_000, 890_000, -1):
        queue.set(kept[0], deadline_ms)
    assert len(queue) <= 2 * len(kept) + REBUILD_ENTRIES_MIN
    assert due(queue, 899_999) == [0]
    assert due(queue, 1_000_000) == list(range(1, 100))
