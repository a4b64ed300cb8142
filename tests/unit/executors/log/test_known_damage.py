"""What a log knows of its damaged ranges: gaps that are none, ranges that grow, that are final."""

from tests.unit.executors.log.log_fixtures import batch, headers_of, put
from tests.unit.executors.log.test_damaged_ranges import Damaged, values


def test_damage_that_grows_is_stepped_around_as_a_whole() -> None:
    """Where no other replica has the bytes, what is behind the range must stay readable."""
    log = Damaged()
    log.flip(5, 70)
    log.check()
    log.flip(6, 9)
    log.check()
    assert [(d.first_offset, d.end_offset) for _, d in log.log.damage.ranges] == [(5, 7)]
    assert values(log.log, range(60)) == [each for each in range(60) if each not in (5, 6)]


def test_a_batch_with_a_wrong_epoch_that_rots_further_is_refused() -> None:
    log = Damaged()
    log.flip(5, 13)
    log.check()
    assert [damaged.readable for _, damaged in log.log.damage.ranges] == [True]
    log.flip(5, 9)
    log.check()
    assert values(log.log, range(60)) == [each for each in range(60) if each != 5]


def test_a_range_that_was_cut_off_is_not_remembered_as_unrepairable() -> None:
    log = Damaged()
    log.flip(5, 70)
    (damaged,) = log.check().found
    log.log.damage.unrepairable.add(damaged)
    log.log.truncate_to(4, 0)
    log.log.roll(0)
    log.flip(2, 70)
    (other,) = log.check(segment=log.log.segments[0]).found
    assert other.first_offset == 2
    assert log.log.damage.unrepairable == set()


def test_a_base_offset_that_is_a_little_too_large_is_no_gap_of_compaction() -> None:
    log = Damaged()
    log.overwrite(log.starts[5] + 7, bytes([6]))
    assert log.found() == [log.expected(5, 6)]


def test_a_gap_between_offsets_is_no_damage() -> None:
    log = Damaged(count=5)
    data = batch(9, (1,))
    log.log.append([data], headers_of(data), 0)
    put(log.log, 1)
    assert log.check(segment=log.log.segments[0]).found == []


def test_only_the_range_that_no_replica_could_repair_is_known_as_such() -> None:
    log = Damaged()
    log.flip(3, 70)
    log.flip(7, 70)
    unrepairable, other = log.check().found
    log.log.damage.unrepairable.add(unrepairable)
    path = log.segment.log_path
    assert log.log.damage.is_unrepairable(unrepairable.error(path))
    assert not log.log.damage.is_unrepairable(other.error(path))
