"""Three replicas through any order of appends, fetches, crashes and elections.

The controller is a small one by the rules of KIP-966, and within the fault bound (fewer than
min.insync.replicas members of ISR and eligible set damaged at once) nothing that was acknowledged
may be lost, no two replicas may differ in what is committed, and when all is healed they are the
same: records, epochs, producers, aborted transactions.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.executors.partition.partition import Partition
from sparklog.types import Isolation
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.unit.executors.partition.replica_cluster import Cluster

Move = tuple[str, int, int]


def check_healed(cluster: Cluster) -> None:
    for node in cluster.replicas:
        cluster.hosts[node].replica.log.check_invariants()
    # Where they start may differ, until clients delete again.
    start = max(cluster[node].log.log_start_offset for node in cluster.replicas)
    first, *others = [_state_of(cluster[node], start) for node in cluster.replicas]
    assert others == [first, first]
    first_records, *other_records = [
        [record for record in cluster.hosts[node].records() if record[1] >= start]
        for node in cluster.replicas
    ]
    assert other_records == [first_records, first_records]


def _state_of(partition: Partition, start: int) -> object:
    """What replicas must have in common."""
    log = partition.log
    producers = {
        pid: (entry.producer_epoch, entry.batches[-1], entry.current_txn_first_offset)
        for pid, entry in partition.producers.entries.items()
        # Who starts over does not learn of what was deleted.
        if entry.batches and entry.batches[-1].last_offset >= start
    }
    return (
        log.log_end_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        [log.leader_epochs.epoch_at(offset) for offset in range(start, log.log_end_offset)],
        producers,
        dict(partition.producers.transactions.ongoing),
        _committed(partition, start),
    )


def _committed(partition: Partition, start: int) -> list[bytes | None]:
    """The values that a reader of committed data gets."""
    found: list[bytes | None] = []
    offset = start
    while offset < partition.last_stable_offset:
        read = partition.read(offset, 200, isolation=Isolation.READ_COMMITTED, only_leader=False)
        assert read.records is not None
        data = read.records.read()
        read.records.release()
        drops = AbortedFilter(
            [
                AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                for txn in read.aborted
            ]
        ).drops
        for header, position in iter_batches(data):
            if not drops(data, position, header) and not header.is_control:
                found += [
                    r.value for r in iter_records(data, position, header) if r.offset >= start
                ]
            offset = header.next_offset
    return found


WRITES = ("put", "put", "put", "data", "data", "abort")
FETCHES = (*["round"] * 8, "ask_for", "arrive", "alter", "alter", "tell_all", "cut")
TROUBLE = ("kill", "power", "stop", *["start"] * 3, "flush", "lag", "delete")


def moves() -> st.SearchStrategy[list[Move]]:
    kinds = st.sampled_from((*WRITES, *FETCHES, *TROUBLE))
    return st.lists(
        st.tuples(kinds, st.integers(1, 3), st.integers(1, 4)), min_size=20, max_size=120
    )


def run(cluster: Cluster, steps: Sequence[Move]) -> None:
    for kind, node, size in steps:
        getattr(cluster, kind)(node, size)
        cluster.check_all()
    cluster.heal()
    check_healed(cluster)


@settings(max_examples=100, deadline=None)
@given(steps=moves())
def test_with_two_in_sync_one_may_be_damaged(steps: list[Move]) -> None:
    run(Cluster(min_isr=2), steps)


@settings(max_examples=60, deadline=None)
@given(steps=moves())
def test_with_one_in_sync_none_may_be(steps: list[Move]) -> None:
    run(Cluster(min_isr=1), steps)
