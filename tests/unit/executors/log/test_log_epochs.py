from hypothesis import given
from hypothesis import strategies as st

from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.epoch_cache import EpochCache


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache([EpochEntry(*entry) for entry in entries])


def pairs(epochs: EpochCache) -> list[tuple[int, int]]:
    epochs.check_invariants()
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_epochs_are_assigned_once() -> None:
    epochs = cache()
    assert epochs.latest_epoch == -1
    epochs.assign(-1, 0)
    assert epochs.encode() == b"0\n0\n"
    for epoch, offset in ((0, 0), (0, 5), (2, 10), (2, 12)):
        epochs.assign(epoch, offset)
    assert pairs(epochs) == [(0, 0), (2, 10)]
    assert epochs.dirty
    assert epochs.encode() == b"0\n2\n0 0\n2 10\n"


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    epochs = cache((0, 0), (1, 10))
    epochs.assign(2, 10)
    assert pairs(epochs) == [(0, 0), (2, 10)]


def test_entries_that_the_log_contradicts_are_dropped() -> None:
    epochs = cache((0, 0), (2, 50), (5, 90))
    epochs.assign(3, 70)
    assert pairs(epochs) == [(0, 0), (2, 50), (3, 70)]
    epochs.assign(2, 80)
    assert pairs(epochs) == [(0, 0), (2, 50)]


def test_what_a_batch_says_of_its_offset_is_believed() -> None:
    epochs = cache((5, 50), (7, 100), (8, 110))
    for epoch, offset in ((5, 50), (5, 99), (7, 105), (8, 110), (9, 99), (4, 40), (-1, 50)):
        epochs.correct(epoch, offset)
    assert pairs(epochs) == [(5, 50), (7, 100), (8, 110)]
    told = []
    for epoch, offset in ((5, 100), (6, 115), (4, 50)):
        epochs.correct(epoch, offset)
        told.append(pairs(epochs))
    assert told == [[(5, 50), (8, 110)], [(5, 50), (6, 115)], [(4, 50), (6, 115)]]


def test_an_offset_has_an_epoch() -> None:
    epochs = cache((1, 10), (4, 20))
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 1, 1, 4, 4]


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    epochs = cache((1, 10), (4, 20), (6, 35))
    answers = {epoch: epochs.end_offset_for(epoch, 50) for epoch in (-1, 0, 1, 3, 4, 5, 6, 7)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 20),
        3: (1, 20),
        4: (4, 35),
        5: (4, 35),
        6: (6, 50),
        7: (-1, -1),
    }
    assert cache().end_offset_for(0, 50) == (-1, -1)


def test_truncation_forgets_epochs() -> None:
    epochs = cache((1, 10), (4, 20), (6, 35))
    epochs.truncate_from_end(36)
    assert not epochs.dirty
    epochs.truncate_from_end(35)
    assert pairs(epochs) == [(1, 10), (4, 20)]
    assert epochs.dirty


def test_the_epoch_of_the_log_start_begins_there() -> None:
    epochs = cache((1, 10), (4, 20), (6, 35))
    epochs.truncate_from_start(10, 50)
    assert not epochs.dirty
    epochs.truncate_from_start(5, 50)
    assert pairs(epochs) == [(1, 10), (4, 20), (6, 35)]
    epochs.truncate_from_start(25, 50)
    assert pairs(epochs) == [(4, 25), (6, 35)]
    epochs.truncate_from_start(35, 50)
    assert pairs(epochs) == [(6, 35)]
    epochs.clear()
    assert pairs(epochs) == []


def test_an_empty_log_knows_which_epoch_wrote_last() -> None:
    epochs = cache((1, 10), (4, 20), (6, 35))
    epochs.truncate_from_start(35, 35)
    assert pairs(epochs) == [(4, 34), (6, 35)]
    epochs.truncate_from_end(35)
    assert (pairs(epochs), epochs.epoch_at(34)) == ([(4, 34)], 4)
    epochs.truncate_from_start(35, 36)
    assert pairs(epochs) == [(4, 35)]
    fresh = cache((3, 0))
    fresh.truncate_from_start(0, 0)
    assert pairs(fresh) == [(3, 0)]


def test_where_later_epochs_begin() -> None:
    epochs = cache((0, 0), (2, 50), (5, 90))
    asked = (-1, 0, 1, 2, 4, 5, 9)
    assert [epochs.start_after(epoch) for epoch in asked] == [0, 50, 50, 90, 90, None, None]


def test_epochs_from_the_bucket_come_in_front() -> None:
    epochs = cache((5, 50), (7, 70))
    epochs.take_over([EpochEntry(0, 0), EpochEntry(3, 40), EpochEntry(6, 50)], 50)
    assert pairs(epochs) == [(0, 0), (3, 40), (5, 50), (7, 70)]
    assert epochs.dirty


def test_an_epoch_that_began_earlier_than_this_log_knew() -> None:
    epochs = cache((5, 50), (7, 70))
    epochs.take_over([EpochEntry(3, 0), EpochEntry(5, 40)], 50)
    assert pairs(epochs) == [(3, 0), (5, 40), (7, 70)]


def test_nothing_to_take_over_is_no_change() -> None:
    epochs = cache((5, 50))
    epochs.take_over([EpochEntry(5, 50), EpochEntry(6, 60)], 60)
    epochs.take_over([EpochEntry(6, 40)], 50)
    epochs.take_over([], 50)
    assert pairs(epochs) == [(5, 50)]
    assert not epochs.dirty


#: Epochs and their start offsets; both rise.
_ENTRIES = st.dictionaries(st.integers(0, 30), st.integers(0, 3), min_size=0, max_size=5).map(
    lambda steps: [
        EpochEntry(sum(list(steps.values())[: index + 1]) + index, offset)
        for index, offset in enumerate(sorted(steps))
    ]
)


@given(known=_ENTRIES, other=_ENTRIES, end_offset=st.integers(0, 31))
def test_epochs_that_are_taken_over_tell_of_the_offsets_below_the_known_ones(
    known: list[EpochEntry], other: list[EpochEntry], end_offset: int
) -> None:
    def expected(offset: int) -> int:
        if known and offset >= known[0].start_offset:
            return max(e.epoch for e in known if e.start_offset <= offset)
        believed = [
            e.epoch
            for e in other
            if e.start_offset <= offset
            and e.start_offset < end_offset
            and (not known or e.epoch <= known[0].epoch)
        ]
        return max(believed, default=-1)

    epochs = EpochCache(known)
    epochs.take_over(other, end_offset)
    epochs.check_invariants()
    assert [epochs.epoch_at(offset) for offset in range(32)] == [expected(o) for o in range(32)]
    assert epochs.dirty == (list(epochs.entries) != known)
