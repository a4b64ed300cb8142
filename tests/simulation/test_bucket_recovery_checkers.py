"""Checkers after recoveries from the bucket alone: what may be gone, and what may not."""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import PartitionChanged
from sparklog.remote_log.manifest_records import LogStartMoved
from tests.simulation.checkers import decisions, deletions, elections
from tests.simulation.checkers.copies import follow
from tests.simulation.events import (
    BrokerDied,
    HighWatermarkSeen,
    LogLost,
    ReplicaEnd,
    ReplicasOffline,
    SeenBatch,
    UncleanElectionAsked,
)
from tests.simulation.events import ReplicaSeen as Seen
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import AnyEvent, History
from tests.simulation.partition_story import (
    LOG,
    NAME,
    STATE,
    Told,
    committed,
    created,
    registered,
)
from tests.simulation.tier_events import TierBatch
from tests.simulation.tier_story import FIRST, Manifest, batch, began, segment
from tests.simulation.transaction_events import (
    MarkerAppended,
    Producer,
    TransactionStateCommitted,
)

TIERED = created(remote_storage_enable="true")


def wiped(told: Told | None = None, *brokers: int) -> list[AnyEvent]:
    """Every replica loses its directory, and broker 2 leads."""
    told = told or Told()
    return [
        *(BrokerDied(broker=each, disk_lost=True) for each in brokers or (1, 2, 3)),
        committed(*map(registered, (1, 2, 3)), told.now(-1, ())),
        committed(told.now(2, (2,))),
    ]


# where a log begins that was lost


def starting(start: int) -> FinalState:
    return FinalState(logs={LOG: FinalLog(start=start, end=start, batches=())})


def told_end(end: int) -> HighWatermarkSeen:
    ends = (ReplicaEnd(broker=1, end=end, flushed=0),)
    return HighWatermarkSeen(log=LOG, broker=1, leader_epoch=0, high_watermark=0, ends=ends)


def test_a_lost_log_without_records_in_the_bucket_begins_behind_the_used_offsets() -> None:
    manifest = Manifest()
    first = [TIERED, manifest.commit(began())]

    def check(start: int, *events: AnyEvent) -> list[str]:
        return deletions.check(History.of(*first, *events), starting(start))

    def wrong(start: int, limit: int = 0) -> list[str]:
        return [f"{NAME} starts at {start}, deletion was asked up to {limit}"]

    assert check(18, told_end(18), *wiped()) == []
    seen = Seen(
        broker=1,
        log=LOG,
        leads=True,
        leader_epoch=0,
        start=0,
        high_watermark=3,
        batches=(SeenBatch(0, 18, 1),),
    )
    assert check(18, seen, *wiped()) == []
    assert check(19, told_end(18), *wiped()) == wrong(19, 18)
    assert check(18, told_end(18)) == wrong(18)
    assert check(18, *wiped(), told_end(18)) == wrong(18)
    assert check(18, told_end(18), *wiped(None, 1, 3)) == wrong(18)  # broker 2 has its log
    copied = manifest.commit(FIRST)
    assert check(18, told_end(18), copied, *wiped()) == wrong(18)
    deleted = manifest.commit(LogStartMoved(log_start_offset=10))
    assert check(18, told_end(18), copied, deleted, *wiped()) == []


def test_a_log_may_begin_behind_what_an_unclean_election_has_lost() -> None:
    """The files of the new leader begin at 18, and the bucket ends below."""
    manifest = Manifest()
    first = [TIERED, manifest.commit(began()), manifest.commit(FIRST)]
    led = manifest.commit(began(epoch=1))
    moved = manifest.commit(LogStartMoved(log_start_offset=18))
    wrong = [f"{NAME} starts at 18, deletion was asked up to 0"]

    def check(*events: AnyEvent) -> list[str]:
        return deletions.check(History.of(*first, *events), starting(18))

    assert check(*wiped(), led, moved) == []
    assert check(led, moved) == wrong
    assert check(*wiped(), moved) == wrong


def test_a_replica_that_is_elected_without_its_log_has_not_copied_it() -> None:
    """Its broker tells of the loss later, and another replica goes on behind the bucket."""
    told = Told()
    events = [*wiped(told)[:-1], committed(told.now(2, (2,))), committed(told.now(-1, ()))]
    again = committed(registered(2), told.now(1, (1,)))
    lost = [LogLost(broker=each, log=LOG, whole=True) for each in (1, 2, 3)]
    assert elections.check(History.of(TIERED, *lost, *events, again), FinalState()) == []


def test_a_replica_whose_old_log_never_had_a_record_may_lead_when_the_others_are_lost() -> None:
    """Seed 1020078.  The journal does not tell that it is empty; the reports of log ends did."""
    told = Told()
    alone, lost = committed(told.now(1, (1,))), LogLost(broker=1, log=LOG, whole=True)
    offline, led = committed(told.now(-1, ())), committed(told.now(2, (2,)))

    def check(*events: AnyEvent) -> list[str]:
        found = elections.check(History.of(TIERED, alone, *events, offline, led), FinalState())
        return [text for text in found if "never held" in text]

    assert check(lost) == []
    wrong = f"{NAME}: broker 2 was elected, which never held or has lost what was acknowledged"
    assert check() == [wrong]


def test_who_joins_with_a_move_that_began_before_its_log_was_lost_has_not_copied_it() -> None:
    """The leader completes the move, and knows by then only what the replica had fetched."""
    moving = replace(STATE, replicas=(2, 3), adding=(2,), removing=(3,), isr=(3,), leader=3)
    moved = replace(
        moving, replicas=(2,), adding=(), removing=(), isr=(2,), leader=2, leader_epoch=1
    )
    lost = LogLost(broker=2, log=LOG, whole=True)

    def damaged(*events: AnyEvent) -> set[int]:
        change = committed(PartitionChanged(topic="t", partition=0, state=moved))
        return follow(History.of(created(state=moving), *events, change))[LOG].damaged

    assert damaged(lost) == {2}
    assert damaged() == damaged(lost, committed(registered(2))) == set()


def test_a_process_with_open_files_joins_again_with_nothing_on_its_disk() -> None:
    """Seed 1031032.  The directories vanished after the start, before the registration."""
    process = UUID(int=2)

    def held(*, notices: bool) -> list[bool]:
        told = Told(replace(STATE, replicas=(1, 2), isr=(1, 2)))
        events: list[AnyEvent] = [
            created(state=told.state, remote_storage_enable="true"),
            *(LogLost(broker=each, log=LOG, whole=True, incarnation=process) for each in (1, 2)),
            committed(registered(1), registered(2), told.now(-1, ())),
            committed(told.now(1, (1,))),
        ]
        if notices:
            events += [
                ReplicasOffline(broker=2, logs=logs, incarnation=process) for logs in ((LOG,), ())
            ]
            events.append(committed(told.now(2, ())))
            events.append(committed(told.now(1, (1,))))
        events.append(committed(told.now(1, (1, 2))))
        events += [committed(told.now(2, (2,))), committed(told.now(-1, ()))]
        events += [committed(registered(1, life=3), told.now(1, (1,)))]
        return [each.held for each in follow(History.of(*events))[LOG].recoveries]

    assert held(notices=False)[-1]
    assert not held(notices=True)[-1]


def test_a_replica_with_an_old_log_of_its_own_does_not_go_on_behind_the_bucket() -> None:
    """It lacks markers, maybe, and the bucket tells nothing of them."""
    asked, told = UncleanElectionAsked(log=LOG), Told()
    alone = committed(told.now(1, (1,)))
    lost = LogLost(broker=1, log=LOG, whole=True)
    offline, led = committed(told.now(-1, ())), committed(told.now(2, (2,)))

    def recovers_from_the_bucket(*more: AnyEvent) -> list[bool]:
        history = History.of(TIERED, alone, lost, *more, offline, asked, led)
        return [each.from_bucket for each in follow(history)[LOG].recoveries]

    assert recovers_from_the_bucket() == [False]
    assert recovers_from_the_bucket(replace(lost, broker=2)) == [True]


# transactions that were open where the bucket ends

PRODUCER, BUMPED = Producer(7, 1), Producer(7, 2)


def marker(offset: int, *, commits: bool = False, producer: Producer = PRODUCER) -> MarkerAppended:
    return MarkerAppended(log=LOG, offset=offset, producer=producer, committed=commits)


LOST = marker(12, producer=BUMPED)


def decided(offset: int, *, commits: bool = False) -> TransactionStateCommitted:
    return TransactionStateCommitted(
        log=LOG._replace(topic="decisions"),
        offset=offset,
        transactional_id="t",
        state="PrepareCommit" if commits else "PrepareAbort",
        producer=BUMPED,
        partitions=frozenset({("t", 0)}),
    )


def test_a_marker_that_a_recovery_has_lost_is_repeated_with_its_outcome() -> None:
    """The bucket has records of the transaction up to offset 10, its marker was at 12."""
    of_it = batch(8, 10, producer_id=7, is_transactional=True)
    ended = batch(9, 10, producer_id=7, is_transactional=True, ends_transaction=True)

    def check(
        *events: AnyEvent,
        lost: MarkerAppended | None = LOST,
        records: tuple[TierBatch, ...] = (batch(0, 8), of_it),
    ) -> list[str]:
        manifest = Manifest()
        copied = manifest.commit(segment(0, 10, *records))
        told = [decided(0), *([lost] if lost else []), copied, *events]
        return decisions.check(History.of(TIERED, manifest.commit(began()), *told), FinalState())

    aborts = f"{NAME}: the marker at offset 10 aborts {PRODUCER}"
    commits = f"{NAME}: the marker at offset 10 commits {PRODUCER}"
    assert check(*wiped(), marker(10)) == []
    assert check(*wiped(), marker(10), *wiped(), marker(10)) == []
    assert check(*wiped(), marker(10, producer=BUMPED)) == []  # by the coordinator
    assert check(*wiped(), marker(10, commits=True)) == [
        f"{commits}, and the lost one at offset 12 had the other outcome"
    ]
    assert check(*wiped(), marker(10), lost=None) == [
        f"{aborts}, of which records were copied before it had ended"
    ]
    older = Producer(7, 0)
    assert check(*wiped(), marker(10, producer=older)) == [
        f"{NAME}: the marker at offset 10 aborts {older}, and the lost one at offset 12 is of "
        f"{BUMPED}"
    ]
    # Nothing was lost, the transaction has its marker already, or it ends in the bucket.
    unknown = "which nobody had decided"
    assert check(marker(10)) == [f"{aborts}, {unknown}"]
    assert check(*wiped(), marker(10), marker(11)) == [
        f"{NAME}: the marker at offset 11 aborts {PRODUCER}, {unknown}"
    ]
    assert check(*wiped(), marker(10), records=(batch(0, 8), ended)) == [f"{aborts}, {unknown}"]


def test_a_marker_in_place_of_another_one_is_looked_at_too() -> None:
    """A log that was lost gives its offsets to other records."""
    events = (decided(0), marker(5, producer=BUMPED), *wiped(), marker(5))
    assert decisions.check(History.of(TIERED, *events), FinalState()) == [
        f"{NAME}: the marker at offset 5 aborts {PRODUCER}, which nobody had decided"
    ]
