"""The durable stable offset: no crash takes back what is below it, nor the ends of transactions."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executors.partition.open_transactions import UNFLUSHED_MAX, OpenTransactions
from sparklog.executors.partition.partition import Partition
from sparklog.types import MAX_INT64
from tests.unit.executors.partition.partition_maker import NOW, Maker, led
from tests.unit.executors.partition.test_transactions import ABORT, COMMIT, finish, put


def flush(partition: Partition) -> None:
    job = partition.log.start_flush(NOW, force=True)
    assert job is not None
    job.run()
    partition.log.finish_flush(job, NOW)


def test_a_transaction_counts_as_open_until_its_marker_is_flushed() -> None:
    partition = Maker().open(led())
    put(partition, b"before")
    put(partition, b"a", b"b", pid=7)
    flush(partition)
    assert partition.durable_stable_offset == 1
    finish(partition, 7, COMMIT)
    put(partition, b"after")
    assert partition.last_stable_offset == 5
    assert partition.durable_stable_offset == 1  # a crash may take the marker
    flush(partition)
    assert partition.durable_stable_offset == 5
    partition.check_invariants()


def test_what_is_not_flushed_is_not_durable() -> None:
    partition = Maker().open(led())
    put(partition, b"a")
    assert (partition.last_stable_offset, partition.durable_stable_offset) == (1, 0)
    flush(partition)
    put(partition, b"b")
    assert (partition.last_stable_offset, partition.durable_stable_offset) == (2, 1)


def test_the_ends_below_a_snapshot_are_not_known_after_a_crash() -> None:
    maker = Maker()
    partition = maker.open(led(), segment_bytes=400)
    put(partition, b"a", pid=7)
    finish(partition, 7, ABORT)
    put(partition, b"x" * 200)  # rolls, with a snapshot
    put(partition, b"y" * 200)
    again = maker.open(led(1), segment_bytes=400, recovery_point=1)
    assert again.last_stable_offset == again.log.log_end_offset
    assert again.durable_stable_offset == 0
    flush(again)
    assert again.durable_stable_offset == again.log.log_end_offset


Steps = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=3 * UNFLUSHED_MAX)


@given(Steps, st.integers(0, 2_000))
def test_more_ends_than_are_remembered_hold_back_more_and_never_less(
    steps: list[tuple[int, bool]], recovery_point: int
) -> None:
    """Transactions of ``length`` records; some begin before others have ended."""
    transactions, ended, offset = OpenTransactions(), [], 0
    held: list[int] = []
    for length, overlaps in steps:
        transactions.begin(offset, offset)
        held.append(offset)
        offset += length
        if overlaps:
            continue
        for first in held:
            transactions.end(first, offset)
            ended.append((first, offset))
            offset += 1
        held = []
    transactions.replicate(MAX_INT64)
    exact = [first for first, marker in ended if marker >= recovery_point] + held
    found = transactions.durable_stable_offset(offset, recovery_point)
    assert found <= min([offset, recovery_point, *exact])
    if len(ended) <= UNFLUSHED_MAX:
        assert found == min([offset, recovery_point, *exact])
    assert transactions.durable_stable_offset(offset, offset) == min([offset, *held])
