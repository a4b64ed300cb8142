"""What is read ahead of sequential readers."""

from sparklog.remote_log.read_ahead import ReadAhead


def planned(reads: list[tuple[int, int]], chunks_max: int = 8, count: int = 1000) -> list[range]:
    ahead = ReadAhead(chunks_max, readers_max=10)
    return [ahead.plan("a", first, last, count) for first, last in reads]


def test_the_window_of_a_sequential_reader_doubles_up_to_a_limit() -> None:
    plans = planned([(number, number) for number in range(3, 9)])
    assert plans == [
        range(4, 4),
        range(5, 6),
        range(6, 8),
        range(7, 11),
        range(8, 16),
        range(9, 17),
    ]


def test_a_reader_that_stays_in_a_chunk_keeps_its_window() -> None:
    plans = planned([(3, 3), (3, 3), (4, 4), (4, 4), (4, 5), (5, 5), (5, 6)])
    assert [len(plan) for plan in plans] == [0, 0, 1, 1, 2, 2, 4]


def test_reads_of_several_chunks_continue_each_other() -> None:
    assert planned([(0, 3), (3, 6), (7, 9)]) == [range(4, 4), range(7, 8), range(10, 12)]


def test_a_jump_begins_anew() -> None:
    plans = planned([(0, 0), (1, 1), (2, 2), (9, 9), (10, 10), (8, 8), (6, 6)])
    assert [len(plan) for plan in plans] == [0, 1, 2, 0, 1, 0, 0]


def test_nothing_is_read_beyond_the_end() -> None:
    reads = [(number, number) for number in range(5)]
    plans = planned(reads, count=5)
    assert plans == [range(1, 1), range(2, 3), range(3, 5), range(4, 5), range(5, 5)]


def test_readers_of_one_object_and_of_several_do_not_disturb_each_other() -> None:
    ahead = ReadAhead(8, readers_max=10)
    plans = [
        [len(ahead.plan(path, at + step, at + step, 1000)) for step in range(4)]
        for path, at in (("a", 0), ("b", 0), ("a", 500))
    ]
    mixed = ReadAhead(8, readers_max=10)
    interleaved = [
        [len(mixed.plan(path, at + step, at + step, 1000)) for path, at in (("a", 0), ("a", 500))]
        for step in range(4)
    ]
    assert plans == [[0, 1, 2, 4]] * 3
    assert interleaved == [[0, 0], [1, 1], [2, 2], [4, 4]]


def test_the_reader_that_has_read_longest_ago_is_forgotten() -> None:
    ahead = ReadAhead(8, readers_max=2)
    for path in ("a", "b", "c"):
        ahead.plan(path, 0, 0, 10)
    plans = [len(ahead.plan(path, 1, 1, 10)) for path in ("b", "c", "a")]
    assert plans == [1, 1, 0]


def test_read_ahead_can_be_off() -> None:
    plans = planned([(number, number) for number in range(5)], chunks_max=0)
    assert [len(plan) for plan in plans] == [0] * 5
