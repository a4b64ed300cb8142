"""The checker of compaction: histories that break what it promises, and that keep it."""

from dataclasses import replace

from tests.simulation.checkers import compaction
from tests.simulation.compaction_events import (
    CommittedMarker,
    CommittedRecord,
    CompactedReplica,
    CompactionEvent,
    LeaderBegan,
    RecordsCommitted,
    Step,
    TableRead,
    TimeLookedUp,
)
from tests.simulation.events import (
    Event,
    LogLost,
    ProduceAcked,
    ProduceInvoked,
    TopicCreated,
    TopicCreateInvoked,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.partition_story import (
    LOG,
    NAME,
    STATE,
    TOPIC_ID,
    Told,
    created,
    lost_power,
    registered,
)
from tests.simulation.partition_story import committed as commit

CONFIGS = (("cleanup.policy", "compact"), ("delete.retention.ms", "2000"))
ALONE = replace(STATE, replicas=(1,), isr=(1,), last_known=(1,))


def judged(
    *events: Event | CompactionEvent, alone: bool = False, read_last: bool = False
) -> list[str]:
    """Every event is a second behind the one before; ``read_last``: the log is read at the end."""
    times = iter(range(0, 1_000_000, 1000))
    history = History(lambda: next(times))
    begun = TopicCreateInvoked(op=99, topic="t", configs=CONFIGS, partitions=1)
    there = TopicCreated(op=99, topic="t", topic_id=TOPIC_ID, leaders=(1,))
    for event in (begun, there, created(state=ALONE if alone else STATE), *events):
        history.record(event)
    return compaction.check(history, FinalState(compacted_logs=(LOG,) if read_last else ()))


def committed(begin: int, *texts: str, broker: int = 1) -> RecordsCommitted:
    """Records from an offset on, each at its offset's second."""
    records = tuple(
        CommittedRecord(offset, text.encode(), offset * 1000)
        for offset, text in enumerate(texts, begin)
        if text
    )
    return RecordsCommitted(
        log=LOG, broker=broker, leader_epoch=0, begin=begin, end=begin + len(texts), records=records
    )


def table(end: int, *held: tuple[int, str], at_ms: int = 0, began_ms: int = 0) -> TableRead:
    return TableRead(
        reader="r",
        log=LOG,
        asked=0,
        began_ms=began_ms,
        start=0,
        end=end,
        steps=(Step(end, at_ms),),
        table=tuple((offset, text.encode()) for offset, text in held),
    )


def copy(high_watermark: int, *held: tuple[int, str], start: int = 0) -> CompactedReplica:
    return CompactedReplica(
        broker=2,
        log=LOG,
        start=start,
        high_watermark=high_watermark,
        records=tuple((offset, text.encode()) for offset, text in held),
    )


def test_a_table_has_the_last_record_of_each_key() -> None:
    written = committed(0, "a=1", "b=1", "a=2")
    assert judged(written, table(3, (1, "b=1"), (2, "a=2"))) == []
    assert judged(written, table(3, (0, "a=1"), (1, "b=1"))) == [
        f"{NAME}: r, which has read up to 3, has a=1 of offset 0 where a=2 of offset 2 is the last"
    ]
    assert judged(written, table(3, (2, "a=2"))) == [
        f"{NAME}: r, which has read up to 3, has nothing where b=1 of offset 1 is the last"
    ]


def test_a_later_record_that_is_known_already_excuses_an_earlier_one() -> None:
    written = committed(0, "a=1", "b=1", "a=2")
    assert judged(written, table(2, (1, "b=1"))) == []
    assert judged(committed(0, "a=1", "b=1"), table(2, (1, "b=1")), committed(2, "a=2")) == [
        f"{NAME}: r, which has read up to 2, has nothing where a=1 of offset 0 is the last"
    ]


def test_a_reader_that_keeps_up_sees_every_tombstone() -> None:
    written = committed(0, "a=1", "a!1")  # at 3,000 ms
    stale = (
        f"{NAME}: r, which has read up to 2, has a=1 of offset 0 where a!1 of offset 1 is the last"
    )
    assert judged(written, table(2, (1, "a!1"))) == []
    assert judged(written, table(2)) == []
    assert judged(written, table(2, (0, "a=1"), at_ms=4000)) == [stale]
    assert judged(written, table(2, (0, "a=1"), at_ms=4500)) == []
    assert judged(written, table(2, (0, "a=1"), at_ms=8000, began_ms=7000)) == [stale]
    assert judged(written, table(2, (0, "a=1"), at_ms=8000, began_ms=6000)) == []


def test_copies_agree_on_the_last_record_however_far_each_was_cleaned() -> None:
    written = committed(0, "a=1", "b=1", "a=2", "b!1")
    assert judged(written, copy(4, (0, "a=1"), (1, "b=1"), (2, "a=2"), (3, "b!1"))) == []
    assert judged(written, copy(4, (2, "a=2"))) == []
    assert judged(written, copy(2, (0, "a=1"))) == []
    assert judged(written, copy(4, start=3)) == []
    assert judged(written, copy(4, (1, "b=1"), (2, "a=2"))) == [
        f"{NAME}: the copy of broker 2 up to 4 has b=1 of offset 1 where b!1 of offset 3 is the "
        "last"
    ]
    assert judged(written, copy(4, (2, "a=3"))) == [
        f"{NAME}: the copy of broker 2 up to 4 has a=3 at offset 2, where a=2 was"
    ]


def test_a_committed_record_stays_at_its_offset() -> None:
    first = committed(0, "a=1", "b=1")
    assert judged(first, committed(0, "", "b=1", "c=1", broker=2)) == []
    assert judged(first, committed(0, "a=1", "c=1", broker=2)) == [
        f"{NAME}: offset 1 held b=1 and holds c=1 on broker 2"
    ]
    assert judged(committed(0, "", "b=1"), committed(0, "a=1", broker=2)) == [
        f"{NAME}: a=1 is at offset 0 on broker 2, where nothing was committed"
    ]


def test_an_acknowledged_record_was_committed_where_it_was_said_to_be() -> None:
    sent = ProduceInvoked(op=1, log=LOG, producer="p", values=(b"a=1",))
    acked = ProduceAcked(op=1, base_offset=0)
    assert judged(sent, committed(0, "a=1"), acked) == []
    assert judged(sent, committed(0, ""), acked) == [
        f"{NAME}: a=1 was acknowledged at offset 0, where nothing was committed"
    ]


def test_aborted_records_supersede_nothing() -> None:
    data = CommittedRecord(1, b"a=2", 1000, producer_id=7)

    def written(commits: bool) -> RecordsCommitted:
        one = CommittedRecord(0, b"a=1", 0)
        return replace(
            committed(0, "", "", ""), records=(one, data, CommittedMarker(2, 7, commits))
        )

    assert judged(written(False), table(3, (0, "a=1"))) == []
    assert judged(written(True), table(3, (1, "a=2"))) == []
    assert judged(written(False), table(3, (1, "a=2"))) == [
        f"{NAME}: r, which has read up to 3, has a=2 of offset 1, which was aborted"
    ]
    assert judged(written(True), table(3, (0, "a=1"))) == [
        f"{NAME}: r, which has read up to 3, has a=1 of offset 0 where a=2 of offset 1 is the last"
    ]


def test_a_leader_has_what_was_committed() -> None:
    written = committed(0, "a=1", "b=1")
    began = LeaderBegan(log=LOG, broker=2, leader_epoch=1, log_end=1)
    assert judged(written, replace(began, log_end=2)) == []
    assert judged(written, began) == [
        f"{NAME}: broker 2 leads with the log up to 1, 2 were committed"
    ]
    told = Told(STATE)
    told.now(2, (1, 2))
    moved_on = commit(told.now(1, (1, 2)))
    assert judged(moved_on, written, began) == [], "another leads in epoch 2"
    assert len(judged(moved_on, written, replace(began, leader_epoch=2))) == 1


def test_what_one_replica_kept_of_a_log_keeps_the_last_record_of_each_key() -> None:
    """The third record is lost with the power, and none of it may have superseded the first."""
    told = Told(ALONE)
    lost = (lost_power(1), commit(registered(1), told.now(-1, ())), commit(told.now(1, (1,))))
    began = LeaderBegan(log=LOG, broker=1, leader_epoch=2, log_end=2)
    written = committed(0, "a=1", "b=1", "a=2")
    read = replace(table(2, (1, "b=1")), asked=20)
    assert judged(written, *lost, began, read, alone=True) == [
        f"{NAME}: r, which has read up to 2, has nothing where a=1 of offset 0 is the last"
    ]
    assert judged(written, *lost, began, replace(read, asked=0), alone=True) == []
    cut = LogLost(broker=1, log=LOG, whole=False)
    assert judged(written, *lost, cut, began, read, alone=True) == []


def test_the_last_reader_gets_to_the_end_or_to_a_transaction_that_is_open() -> None:
    """The marker is lost with the power, and nobody sends it again."""
    data = CommittedRecord(1, b"a=2", 1000, producer_id=7)
    written = replace(
        committed(0, "a=1", "", ""),
        records=(CommittedRecord(0, b"a=1", 0), data, CommittedMarker(2, 7, True)),
    )
    not_read = [f"{NAME} could not be read at the end"]
    whole, stable = table(3, (1, "a=2")), table(1, (0, "a=1"))
    assert judged(written, whole, read_last=True) == []
    assert judged(written, stable, read_last=True)[-1:] == not_read
    told = Told(ALONE)
    lost = (lost_power(1), commit(registered(1), told.now(-1, ())), commit(told.now(1, (1,))))
    began = LeaderBegan(log=LOG, broker=1, leader_epoch=2, log_end=2)
    ended = (written, *lost, began)
    assert judged(*ended, replace(stable, asked=20), alone=True, read_last=True) == []
    assert judged(*ended, replace(table(0), asked=20), alone=True, read_last=True) == not_read


def test_a_lookup_by_time_names_a_record_of_that_time() -> None:
    written = committed(0, "a=1", "b=1")
    found = TimeLookedUp(asked=0, log=LOG, timestamp=500, offset=1, found_timestamp=1000)
    assert judged(written, found) == []
    assert judged(written, replace(found, found_timestamp=700)) == [
        f"{NAME}: the first record since 500 is that of 1000, 700 was answered"
    ]
    assert judged(written, replace(found, offset=0, found_timestamp=0)) == [
        f"{NAME}: the first record since 500 is said to be at offset 0, of 0"
    ]
