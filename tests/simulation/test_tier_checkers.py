"""Every checker of tiers: a history that breaks its invariant, and one that keeps it."""

from dataclasses import replace

from sparklog.metadata.records import PartitionChanged
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.remote_log.manifest_records import (
    LogStartMoved,
    ManifestRecord,
    SegmentShortened,
    TruncatedAfter,
)
from sparklog.remote_log.remote_segment import EpochStart
from sparklog.remote_log.takeover import LeaderLog
from tests.simulation.checkers import (
    tier_coverage,
    tier_followers,
    tier_leaders,
    tier_log_start,
    tier_objects,
    tier_segments,
    tier_takeovers,
)
from tests.simulation.events import (
    Fetched,
    ReplicaSeen,
    SeenBatch,
)
from tests.simulation.final_state import (
    FinalLog,
    FinalState,
    ProducerSeen,
    TieredReplica,
)
from tests.simulation.history import AnyEvent, History
from tests.simulation.partition_story import LOG, NAME, STATE, Told, committed, created
from tests.simulation.tier_events import (
    ReadRefused,
    TierObjectDeleted,
    TierSegment,
)
from tests.simulation.tier_story import (
    FIRST,
    FOLDER,
    NOTHING,
    SECOND,
    Manifest,
    batch,
    began,
    mark,
    removed,
    segment,
)


def added(*segments: TierSegment) -> list[AnyEvent]:
    """The topic, with everything committed, and the segments in the bucket."""
    manifest = Manifest()
    return [created(), mark(100), manifest.commit(began()), *map(manifest.commit, segments)]


def replica(broker: int = 1, local_start: int = 0, **more: object) -> TieredReplica:
    whole = TieredReplica(
        broker=broker,
        log=LOG,
        leads=broker == 1,
        log_start=0,
        local_start=local_start,
        high_watermark=30,
    )
    return replace(whole, **more)  # type: ignore[arg-type]


# leaders


def test_a_manifest_is_extended_by_its_newest_leader() -> None:
    manifest, told = Manifest(), Told()
    history = History.of(
        created(),
        manifest.commit(began()),
        manifest.commit(FIRST),
        committed(told.now(2, (1, 2))),
        manifest.commit(began(1), epoch=1, broker=2),
        manifest.commit(SECOND, epoch=1, broker=2),
    )
    assert tier_leaders.check(history, NOTHING) == []


def test_a_commit_of_a_deposed_leader_is_found() -> None:
    manifest, told = Manifest(), Told()
    history = History.of(
        created(),
        manifest.commit(began()),
        committed(told.now(2, (1, 2))),
        manifest.commit(began(1), epoch=1, broker=2),
        manifest.commit(FIRST),
    )
    assert tier_leaders.check(history, NOTHING) == [
        f"{NAME}: the manifest has commit 3 of epoch 0, after epoch 1 had begun",
        f"{NAME}: the manifest has commit 3 of epoch 0, in the leadership of epoch 1",
    ]


def test_a_leader_that_the_journal_does_not_know_is_found() -> None:
    manifest = Manifest()
    history = History.of(created(), manifest.commit(began(), broker=3))
    assert tier_leaders.check(history, NOTHING) == [
        f"{NAME}: the manifest was taken over by broker 3 in epoch 0, in which it did not lead"
    ]


# takeovers


def test_a_new_leader_cuts_what_its_own_log_does_not_have() -> None:
    """By epochs: its log reaches further, and has other records from 14 on."""
    ahead = leader_log(30, (0, 0), (2, 14))
    behind = segment(10, 20, batch(10, 14), batch(14, 20))
    assert takeover_of((FIRST, behind), ahead, truncated(14)) == []
    assert takeover_of((FIRST, behind), ahead) == [
        "leaves segments up to 20, the leader's log has them up to 14"
    ]
    other = segment(10, 20, batch(10, 20, leader_epoch=1))
    assert takeover_of((FIRST, other), ahead, truncated(10)) == []
    assert takeover_of((FIRST, other), ahead) == [
        "leaves segments up to 20, the leader's log has them up to 10"
    ]


def test_a_new_leader_cuts_what_lies_behind_its_log_end() -> None:
    assert takeover_of((FIRST, SECOND), leader_log(10, (0, 0)), truncated(10)) == []
    assert takeover_of((FIRST, SECOND), leader_log(10, (0, 0))) == [
        "leaves segments up to 20, the leader's log has them up to 10"
    ]


def test_a_new_leader_leaves_what_both_logs_have() -> None:
    """Its files need it, unless the log starts above, or the files begin above its end."""
    whole = leader_log(30, (0, 0), (2, 20), local=20)
    assert takeover_of((FIRST, SECOND), whole) == []
    assert takeover_of((FIRST, SECOND), whole, truncated(10)) == [
        "cuts the segments at 10, the leader's log has them up to 20, and its files begin at 20"
    ]
    assert (
        takeover_of((FIRST, SECOND), replace(whole, local_log_start_offset=9), truncated(10)) == []
    )
    assert takeover_of((FIRST, SECOND), replace(whole, local_log_start_offset=21)) == []
    assert takeover_of((FIRST, SECOND), replace(whole, log_start_offset=20), truncated(10)) == []
    halves = segment(10, 20, batch(10, 14), batch(14, 20))
    parted = leader_log(30, (0, 0), (2, 14), local=13)
    assert takeover_of((FIRST, halves), parted, *shortened(halves, 14)) == []
    assert takeover_of((FIRST, halves), parted, truncated(14)) == [
        "cuts the segments at 10, the leader's log has them up to 14, and its files begin at 13"
    ]


def test_what_lies_below_the_known_epochs_of_a_new_leader_is_not_known_to_differ() -> None:
    """Its log starts inside of the second batch."""
    whole = leader_log(20, (1, 12), start=12)
    second = segment(10, 20, batch(10, 20, leader_epoch=1))
    assert takeover_of((FIRST, second), whole) == []


def leader_log(end: int, *epochs: tuple[int, int], start: int = 0, local: int = 0) -> LeaderLog:
    return LeaderLog(
        log_start_offset=start,
        local_log_start_offset=local,
        log_end_offset=end,
        leader_epochs=tuple(EpochStart(*each) for each in epochs),
    )


def truncated(offset: int) -> TruncatedAfter:
    return TruncatedAfter(offset=offset, removed_ms=0)


def takeover_of(
    segments: tuple[TierSegment, ...], log: LeaderLog, *records: ManifestRecord
) -> list[str]:
    """What is wrong when broker 2 takes over with this log, in epoch 2."""
    manifest = Manifest()
    before = [manifest.commit(began()), *map(manifest.commit, segments)]
    after = manifest.commit(began(2), *records, epoch=2, broker=2, log=log)
    found = tier_takeovers.check(History.of(created(), *before, after), NOTHING)
    return [text.removeprefix(f"{NAME}: the takeover by broker 2 in epoch 2 ") for text in found]


# segments


def test_a_segment_of_committed_records_is_fine() -> None:
    assert tier_segments.check(History.of(*added(FIRST, SECOND)), NOTHING) == []


def test_records_that_were_not_committed_are_found() -> None:
    manifest = Manifest()
    history = History.of(
        created(), mark(9), manifest.commit(began()), manifest.commit(FIRST), mark(100)
    )
    assert tier_segments.check(history, NOTHING) == [
        f"{NAME}: segment 0 of epoch 0 reaches up to 10 when it is added, the highest high "
        "watermark is 9"
    ]


def test_gaps_and_damage_are_found() -> None:
    torn = segment(0, 10, batch(0, 4), batch(5, 10))
    lost = replace(SECOND, damage="it is gone")
    assert tier_segments.check(History.of(*added(torn, lost)), NOTHING) == [
        f"{NAME}: segment 0 of epoch 0 has offset 5 after 3",
        f"{NAME}: segment 10 of epoch 0 is damaged: it is gone",
    ]


def test_wrong_epochs_are_found() -> None:
    wrong = segment(0, 10, batch(0, 10, leader_epoch=1))
    assert tier_segments.check(History.of(*added(wrong)), NOTHING) == [
        f"{NAME}: segment 0 of epoch 0 has a batch of leader epoch 1 at 0, its list of epochs is "
        "[(0, 0)]"
    ]


def test_bytes_that_no_replica_has_are_found() -> None:
    seen = ReplicaSeen(
        broker=1,
        log=LOG,
        leads=True,
        leader_epoch=0,
        start=0,
        high_watermark=10,
        batches=(SeenBatch(0, 10, 4711),),
    )
    assert tier_segments.check(History.of(*added(FIRST), seen), NOTHING) == [
        f"{NAME}: segment 0 of epoch 0 has other bytes at offset 0 than the log"
    ]


DATA = batch(0, 9, producer_id=7, is_transactional=True)
ABORT = batch(10, 20, producer_id=7, is_transactional=True, ends_transaction=True)


def test_an_aborted_transaction_is_listed_by_every_segment_that_has_records_of_it() -> None:
    entry = (RemoteAbortedTxn(7, 0, 10),)
    first = replace(segment(0, 10, DATA, batch(9, 10)), aborted=entry)
    second = replace(segment(10, 20, ABORT), aborted=entry)
    assert tier_segments.check(History.of(*added(first, second)), NOTHING) == []
    without = replace(first, aborted=())
    assert tier_segments.check(History.of(*added(without, second)), NOTHING) == [
        f"{NAME}: segment 0 of epoch 0 lists the aborted transactions [], [(7, 0, 10)] have "
        "records in it"
    ]


def test_a_transaction_that_is_open_when_its_records_are_added_is_found() -> None:
    manifest = Manifest()
    history = History.of(
        created(),
        mark(10),
        manifest.commit(began()),
        manifest.commit(segment(0, 10, DATA, batch(9, 10))),
    )
    final = FinalState(tiered_replicas=(replica(batches=(ABORT._replace(commits=True),)),))
    assert tier_segments.check(history, final) == [
        f"{NAME}: segment 0 of epoch 0 has records of a transaction of producer 7 from 0 on, whose "
        "end is not below the high watermark 10 when it is added"
    ]


# objects


def objects(*segments: TierSegment) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in segments:
        found[names.log_object(FOLDER, each.segment.segment_id)] = 10
        found[names.indexes_object(FOLDER, each.segment.segment_id)] = 0
    return found


def test_objects_of_segments_that_have_left_may_go_after_the_delay() -> None:
    times = iter([0, 0, 0, 0, 0, 1000, 3000])
    history, manifest = History(lambda: next(times)), Manifest()
    for event in (
        *(created(), mark(100), manifest.commit(began())),
        *(manifest.commit(FIRST), manifest.commit(SECOND)),
        manifest.commit(removed(FIRST)),
        TierObjectDeleted(log=LOG, segment_id=FIRST.segment.segment_id),
    ):
        history.record(event)
    final = FinalState(remote_objects=objects(SECOND), delete_delay_ms=2000)
    assert tier_objects.check(history, final) == []
    assert tier_objects.check(history, replace(final, delete_delay_ms=4000)) == [
        f"{NAME}: an object of segment {FIRST.segment.segment_id} was deleted 2000 ms after it "
        "left the manifest, the delay is 4000 ms"
    ]


def test_the_age_of_garbage_counts_from_when_nobody_is_told_of_the_segment() -> None:
    """The process has stood still in the middle of the commit."""
    times = iter([0, 0, 0, 0, 5000, 5010])
    history, manifest = History(lambda: next(times)), Manifest()
    for event in (
        *(created(), mark(100), manifest.commit(began()), manifest.commit(FIRST)),
        manifest.commit(removed(FIRST), locked_ms=3000),
        TierObjectDeleted(log=LOG, segment_id=FIRST.segment.segment_id),
    ):
        history.record(event)
    assert tier_objects.check(history, FinalState(delete_delay_ms=2000)) == []
    assert tier_objects.check(history, FinalState(delete_delay_ms=4000)) == [
        f"{NAME}: an object of segment {FIRST.segment.segment_id} was deleted 2010 ms after it "
        "left the manifest, the delay is 4000 ms"
    ]


def test_a_deleted_object_of_a_live_segment_is_found() -> None:
    gone = TierObjectDeleted(log=LOG, segment_id=FIRST.segment.segment_id)
    history = History.of(*added(FIRST), gone)
    indexes = names.indexes_object(FOLDER, FIRST.segment.segment_id)
    assert tier_objects.check(history, FinalState(remote_objects={indexes: 0})) == [
        f"{NAME}: an object of segment {FIRST.segment.segment_id} was deleted, which the manifest "
        "names",
        f"{NAME}: {names.log_object(FOLDER, FIRST.segment.segment_id)} should have 10 bytes, it "
        "has None",
    ]


# coverage


def seen(local_start: int) -> ReplicaSeen:
    return ReplicaSeen(
        broker=1,
        log=LOG,
        leads=True,
        leader_epoch=0,
        start=0,
        local_start=local_start,
        high_watermark=30,
        batches=(),
    )


def test_files_may_begin_where_the_bucket_ends_and_not_later() -> None:
    history = History.of(*added(FIRST), seen(10))
    final = FinalState(tiered_replicas=(replica(local_start=10),))
    assert tier_coverage.check(history, final) == []
    history = History.of(*added(FIRST), seen(12))
    final = FinalState(tiered_replicas=(replica(local_start=12),))
    assert tier_coverage.check(history, final) == [
        f"{NAME}: broker 1 has the log from 0 on and the files from 12 on, the manifest has [0, "
        "10)",
        f"{NAME}: broker 1 at the end has the log from 0 on and the files from 12 on, the manifest "
        "has [0, 10)",
    ]


def test_a_replica_that_was_removed_is_not_blamed() -> None:
    """Its topic may have left the bucket meanwhile, and it does not know of either."""
    others = replace(STATE, replicas=(2, 3), isr=(2, 3), leader=2, partition_epoch=1)
    moved = committed(PartitionChanged(topic="t", partition=0, state=others))
    assert tier_coverage.check(History.of(*added(FIRST), moved, seen(12)), FinalState()) == []
    stays = replace(others, replicas=(1, 2, 3))
    moved = committed(PartitionChanged(topic="t", partition=0, state=stays))
    assert tier_coverage.check(History.of(*added(FIRST), moved, seen(12)), FinalState()) != []


def shortened(segment: TierSegment, end: int) -> tuple[ManifestRecord, ...]:
    """Of the last segment the beginning up to ``end`` stays."""
    beginning = replace(segment.segment, next_offset=end, log_size=4)
    whole = TruncatedAfter(offset=segment.segment.next_offset, removed_ms=0)
    return whole, SegmentShortened(segment=beginning)


def test_the_bucket_ends_where_its_last_segment_was_shortened() -> None:
    manifest, whole = Manifest(), segment(0, 10, batch(0, 4), batch(4, 10))
    history = History.of(
        *(created(), mark(100), manifest.commit(began()), manifest.commit(whole)),
        manifest.commit(*shortened(whole, 4)),
    )
    other = batch(4, 10)._replace(checksum=1)
    kept = replica(local_start=4, batches=(batch(0, 4), other))
    final = FinalState(tiered_replicas=(kept,), remote_objects=objects(whole))
    assert tier_coverage.check(history, final) == []
    assert tier_objects.check(history, final) == []
    final = FinalState(tiered_replicas=(replica(local_start=5),))
    assert tier_coverage.check(history, final) == [
        f"{NAME}: broker 1 at the end has the log from 0 on and the files from 5 on, the manifest "
        "has [0, 4)"
    ]


def test_other_bytes_in_the_bucket_than_on_the_disk_are_found() -> None:
    final = FinalState(tiered_replicas=(replica(batches=(batch(0, 10)._replace(checksum=1),)),))
    assert tier_coverage.check(History.of(*added(FIRST)), final) == [
        f"{NAME}: broker 1 at the end holds other bytes at offset 0 than the bucket"
    ]


# the log start


def fetched(log_start: int) -> Fetched:
    return Fetched(
        asked=100,
        reader="r",
        log=LOG,
        offset=20,
        leader_epoch=0,
        high_watermark=30,
        log_start=log_start,
        records=(),
    )


def test_the_log_start_moves_in_the_log_first() -> None:
    manifest = Manifest()
    before = [created(), mark(100), *map(manifest.commit, (began(), FIRST, SECOND))]
    moved = manifest.commit(removed(FIRST), LogStartMoved(log_start_offset=12), start=12)
    final = FinalState(tiered_replicas=(replica(log_start=12),))
    assert tier_log_start.check(History.of(*before, moved), final) == []
    early = replace(moved, log_start=3)
    final = FinalState(tiered_replicas=(replica(log_start=3),))
    assert tier_log_start.check(History.of(*before, early), final) == [
        f"{NAME}: broker 1 has moved the start of the manifest to 12, its log starts at 3",
        f"{NAME}: the log starts at 3 at the end, the manifest at 12",
    ]


def test_a_leader_that_has_copied_tells_no_earlier_log_start_than_the_manifest() -> None:
    manifest = Manifest()
    events = [
        *(created(), mark(100), manifest.commit(began()), manifest.commit(FIRST)),
        manifest.commit(LogStartMoved(log_start_offset=5), start=5),
        manifest.commit(SECOND),
    ]
    assert tier_log_start.check(History.of(*events, fetched(5)), NOTHING) == []
    assert tier_log_start.check(History.of(*events, fetched(4)), NOTHING) == [
        f"{NAME}: r was told the log start 4 in epoch 0, the manifest had 5 before"
    ]


def test_a_refused_read_of_what_the_bucket_has_is_found() -> None:
    refused = ReadRefused(asked=90, reader="r", log=LOG, offset=7)
    history = History.of(*added(FIRST), refused)
    final = FinalState(logs={LOG: FinalLog(start=8, end=30, batches=())})
    assert tier_log_start.check(history, final) == []
    final = FinalState(logs={LOG: FinalLog(start=7, end=30, batches=())})
    assert tier_log_start.check(history, final) == [
        f"{NAME}: r was refused offset 7 as out of range; the log starts at 7 at the end, and the "
        "bucket had it up to 10"
    ]


# followers


def test_followers_know_what_their_leader_knows_from_the_later_log_start_on() -> None:
    old = ProducerSeen(producer_id=1, epoch=0, last_sequence=3, last_offset=4)
    new = ProducerSeen(producer_id=2, epoch=0, last_sequence=3, last_offset=24)
    leader = replica(epochs=((0, 0), (2, 12)), producers=(old, new))
    follower = replica(2, log_start=5, epochs=((0, 5), (2, 12)), producers=(new,))
    assert tier_followers.check(History(), FinalState(tiered_replicas=(leader, follower))) == []
    wrong = replace(follower, epochs=((2, 12),), producers=())
    assert tier_followers.check(History(), FinalState(tiered_replicas=(leader, wrong))) == [
        f"{NAME}: broker 2 knows the leader epochs [(2, 12)] of [5, 30), the leader 1 knows "
        "[(0, 5), (2, 12)]",
        f"{NAME}: broker 2 knows None of the producer of which the leader 1 knows {new}",
    ]
