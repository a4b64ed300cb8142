"""Every checker of records: a history that breaks its invariant, and one that keeps it."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sparklog.metadata import (
    BrokerFenced,
    BrokerImage,
    BrokerRegistered,
    BrokerUnfenced,
    ConfigChanged,
    PartitionChanged,
    PartitionImage,
)
from sparklog.metadata import TopicCreated as TopicCreatedRecord
from sparklog.types import ResourceType
from tests.simulation.checkers import (
    acknowledged,
    deletions,
    duplicates,
    gapless,
    ghosts,
    monotone,
    order,
    read_bounds,
    same_record,
)
from tests.simulation.events import (
    BrokerDied,
    BrokerStopped,
    Committed,
    Consumed,
    DeleteRecordsInvoked,
    DeletionDone,
    EndListed,
    Event,
    FetchDamaged,
    Fetched,
    LogId,
    LogStartTold,
    ProduceAcked,
    ProduceInvoked,
    ProduceRefused,
    ProduceUnknown,
    RecordsDeleted,
    TopicCreated,
    TopicCreateInvoked,
    TopicDeleteInvoked,
)
from tests.simulation.final_state import FinalBatch, FinalLog, FinalState
from tests.simulation.history import History
from tests.simulation.partition_story import LOG, NAME, TOPIC_ID

STATE = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)


def created(**configs: str) -> list[Event]:
    """The topic, led by broker 1: three events."""
    settings = tuple((name.replace("_", "."), value) for name, value in configs.items())
    overrides = tuple(
        ConfigChanged(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
        for name, value in settings
    )
    record = TopicCreatedRecord(topic="t", topic_id=TOPIC_ID, partitions=(STATE,))
    return [
        TopicCreateInvoked(op=100, topic="t", configs=settings, partitions=1),
        Committed(number=1, records=(record, *overrides)),
        TopicCreated(op=100, topic="t", topic_id=TOPIC_ID, leaders=(1,)),
    ]


def restarted(*, power_lost: bool, broker: int = 1) -> list[Event]:
    """A broker is killed and comes back, and leads again if it is the only one: two events."""
    back = BrokerRegistered(broker=BrokerImage(broker_id=broker), clean=False)
    led = replace(STATE, leader_epoch=1, partition_epoch=1)
    again = PartitionChanged(topic="t", partition=0, state=led)
    return [
        BrokerDied(broker=broker, power_lost=power_lost),
        Committed(number=2, records=(back, again) if broker == 1 else (back,)),
    ]


def sent(op: int, *values: str, **more: object) -> ProduceInvoked:
    encoded = tuple(value.encode() for value in values)
    return ProduceInvoked(op=op, log=LOG, producer="p", values=encoded, **more)  # type: ignore[arg-type]


def acked(op: int, base_offset: int) -> ProduceAcked:
    return ProduceAcked(op=op, base_offset=base_offset)


def fetched(
    offset: int, *values: str, asked: int = 0, hw: int = 99, start: int = 0, epoch: int = 0
) -> Fetched:
    records = tuple(enumerate((value.encode() for value in values), offset))
    return Fetched(
        asked=asked,
        reader="r",
        log=LOG,
        offset=offset,
        leader_epoch=epoch,
        high_watermark=hw,
        log_start=start,
        records=records,
    )


def holds(*batches: Sequence[str], start: int = 0, first: int = 0) -> FinalState:
    """The log at the end: values in batches from offset ``first`` on."""
    found, offset = [], first
    for values in batches:
        encoded = tuple(value.encode() for value in values)
        found.append(FinalBatch(base_offset=offset, values=encoded))
        offset += len(values)
    return FinalState(logs={LOG: FinalLog(start=start, end=offset, batches=tuple(found))})


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    history = History.of(*created(), sent(1, "a"), acked(1, 0), sent(2, "b"), acked(2, 1))
    assert acknowledged.check(history, holds("a", "b")) == []
    assert acknowledged.check(history, holds("a")) == [
        f"b of p was acknowledged at offset 1 of {NAME}, where nothing is; the log is [0, 1)"
    ]
    assert acknowledged.check(history, holds("a", "c")) == [
        f"b of p was acknowledged at offset 1 of {NAME}, where c is; the log is [0, 2)"
    ]
    assert acknowledged.check(history, FinalState()) == [
        f"{NAME} is gone with a of p, and nobody deleted the topic",
        f"{NAME} is gone with b of p, and nobody deleted the topic",
    ]


def test_what_nobody_promised_may_be_lost() -> None:
    write = [sent(1, "a"), acked(1, 0)]
    died, killed = restarted(power_lost=True), restarted(power_lost=False)
    other = restarted(power_lost=True, broker=2)
    deleted = TopicDeleteInvoked(op=2, topic="t", topic_id=TOPIC_ID)
    lost = [f"a of p was acknowledged at offset 0 of {NAME}, where nothing is; the log is [0, 0)"]
    assert acknowledged.check(History.of(*created(), *write, *died), holds()) == []
    assert acknowledged.check(History.of(*created(), *died, *write), holds()) == lost
    assert acknowledged.check(History.of(*created(), *write, *killed), holds()) == lost
    assert acknowledged.check(History.of(*created(), *write, *other), holds()) == lost
    flushed = created(flush_messages="1")
    assert acknowledged.check(History.of(*flushed, *write, *died), holds()) == lost
    assert acknowledged.check(History.of(*created(), *write, deleted), FinalState()) == []
    assert acknowledged.check(History.of(*created(), *write), holds(start=1, first=1)) == []
    unknown = History.of(*created(), sent(1, "a"), ProduceUnknown(op=1, reason="reset"))
    assert acknowledged.check(unknown, holds()) == []


def test_an_acknowledgement_without_an_offset_still_promises_the_record() -> None:
    history = History.of(*created(), sent(1, "a"), acked(1, -1))
    assert acknowledged.check(history, holds("b", "a")) == []
    assert acknowledged.check(history, holds("b")) == [
        f"a of p was acknowledged without an offset and is not in {NAME}"
    ]


def test_what_was_acknowledged_before_stands_before() -> None:
    one_by_one = [sent(1, "a"), acked(1, 1), sent(2, "b"), acked(2, 0)]
    together = [sent(1, "a"), sent(2, "b"), acked(1, 1), acked(2, 0)]
    assert order.check(History.of(*created(), *together), FinalState()) == []
    assert order.check(History.of(*created(), *one_by_one), FinalState()) == [
        f"{NAME}: a batch of p went to offset 0 although offset 1 had been acknowledged before it "
        "was sent"
    ]
    lost = restarted(power_lost=True)
    excused = History.of(*created(), *one_by_one[:2], *lost, *one_by_one[2:])
    assert order.check(excused, FinalState()) == []


def test_a_stream_keeps_its_order() -> None:
    events = [
        sent(1, "a", stream="s"),
        sent(2, "b", stream="s"),
        acked(1, 1),
        acked(2, 0),
    ]
    assert order.check(History.of(*created(), *events), FinalState()) == [
        f"{NAME}: a batch of stream s went to offset 0, an earlier one to 1"
    ]


def test_sequences_ascend_without_a_gap() -> None:
    def log(*sequences: int) -> FinalState:
        batches = tuple(
            FinalBatch(
                base_offset=2 * index,
                values=(b"x", b"y"),
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
            )
            for index, sequence in enumerate(sequences)
        )
        return FinalState(logs={LOG: FinalLog(start=0, end=2 * len(batches), batches=batches)})

    assert order.check(History(), log(4, 6, 8)) == []
    assert order.check(History(), log(0, 4)) == [
        f"{NAME}: producer 7 has sequence 4 at offset 2 where 2 follows"
    ]
    assert duplicates.check(History(), log(0, 2)) == []
    assert duplicates.check(History(), log(0, 0)) == [
        f"{NAME}: sequence 0 of producer 7 is at offsets 0 and 2"
    ]


def test_only_what_is_sent_again_without_protection_may_be_there_twice() -> None:
    twice = holds("a", "a")
    found = [f"{NAME}: a is at offsets 0 and 1"]
    assert duplicates.check(History.of(sent(1, "a")), twice) == found
    assert duplicates.check(History.of(sent(1, "a", idempotent=True, resent=True)), twice) == found
    assert duplicates.check(History.of(sent(1, "a", resent=True)), twice) == []
    assert duplicates.check(History.of(sent(1, "a"), fetched(0, "a", "a")), FinalState()) == found
    assert duplicates.check(History.of(sent(1, "a"), fetched(0, "a")), FinalState()) == []


def test_a_client_that_raises_its_epoch_may_send_once_in_each() -> None:
    def twice(*producers: tuple[int, int]) -> FinalState:
        batches = tuple(
            FinalBatch(
                base_offset=offset,
                values=(b"a",),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=offset,
            )
            for offset, (producer_id, epoch) in enumerate(producers)
        )
        return FinalState(logs={LOG: FinalLog(start=0, end=len(batches), batches=batches)})

    found = [f"{NAME}: a is at offsets 0 and 1"]
    raises = History.of(sent(1, "a", idempotent=True, raises_epoch=True))
    assert duplicates.check(raises, twice((7, 0), (7, 1))) == []
    assert duplicates.check(raises, twice((7, 1), (7, 0))) == found
    assert duplicates.check(raises, twice((7, 0), (7, 0))) == found
    assert duplicates.check(raises, twice((7, 0), (8, 1))) == found
    assert duplicates.check(raises, twice((-1, -1), (-1, -1))) == found
    keeps = History.of(sent(1, "a", idempotent=True))
    assert duplicates.check(keeps, twice((7, 0), (7, 1))) == found


def test_offsets_have_no_gaps() -> None:
    assert gapless.check(History(), holds("a", "b", start=0)) == []
    assert gapless.check(History(), holds("ab", start=1)) == []
    assert gapless.check(History(), holds("a", start=0, first=1)) == [
        f"{NAME} starts at 0, its first batch at 1"
    ]
    apart = (
        FinalBatch(base_offset=0, values=(b"a",)),
        FinalBatch(base_offset=2, values=(b"b",)),
    )
    gap = FinalState(logs={LOG: FinalLog(start=0, end=4, batches=apart)})
    assert gapless.check(History(), gap) == [
        f"{NAME}: a batch at offset 2 where 1 follows",
        f"{NAME} ends at 4, its last batch at 3",
    ]
    damaged = FinalState(logs={LOG: FinalLog(start=0, end=1, batches=(), damage="CRC")})
    assert gapless.check(History(), damaged) == [f"{NAME} cannot be read to its end: CRC"]


def test_reads_have_no_gaps() -> None:
    def read(offset: int, *offsets: int) -> History:
        records = tuple((number, b"v") for number in offsets)
        return History.of(
            Fetched(
                asked=0,
                reader="r",
                log=LOG,
                offset=offset,
                high_watermark=9,
                log_start=0,
                records=records,
            )
        )

    assert gapless.check(read(2, 1, 2, 3), FinalState()) == []
    assert gapless.check(read(1, 2, 3), FinalState()) == [f"{NAME}: a read from 1 began at 2"]
    assert gapless.check(read(3, 1, 2), FinalState()) == [f"{NAME}: a read from 3 ended at 2"]
    assert gapless.check(read(1, 1, 3), FinalState()) == [
        f"{NAME}: a read from 1 gave the offsets [1, 3]"
    ]
    late = Consumed(asked=0, reader="c", log=LOG, offset=1, records=((2, b"v"),))
    assert gapless.check(History.of(late), FinalState()) == [f"{NAME}: a read from 1 began at 2"]


def test_an_offset_keeps_its_record() -> None:
    lost = restarted(power_lost=True)
    reads = [fetched(0, "a", asked=3), fetched(0, "b", asked=4)]
    found = [f"offset 0 of {NAME} was a for r and is b for r"]
    assert same_record.check(History.of(*created(), *reads), FinalState()) == found
    assert same_record.check(History.of(*created(), *reads[:1]), holds("a")) == []
    later = fetched(0, "b", asked=6, epoch=1)
    legal = History.of(*created(), reads[0], *lost, later)
    assert same_record.check(legal, FinalState()) == []
    promised = History.of(*created(flush_messages="1"), reads[0], *lost, later)
    assert same_record.check(promised, FinalState()) == found
    told = History.of(*created(), sent(1, "a"), acked(1, 0))
    assert same_record.check(told, holds("b")) == [
        f"offset 0 of {NAME} was a for p and is b for the end"
    ]


def test_reads_stay_within_bounds() -> None:
    where = f"{NAME}: r read from offset"

    def found(*events: Event) -> list[str]:
        return read_bounds.check(History.of(*events), FinalState())

    assert found(fetched(0, "a", hw=1), fetched(1, hw=1)) == []
    assert found(fetched(0, "a", "b", hw=1)) == [
        f"{where} 0 and got offset 1, the high watermark is 1"
    ]
    assert found(fetched(0, hw=1)) == [f"{where} 0 and got nothing, the high watermark is 1"]
    assert found(fetched(0, "a", start=1)) == [f"{where} 0, below the log start 1"]
    assert found(fetched(5, hw=4, start=5)) == [f"{where} 5: log start 5 above high watermark 4"]
    damaged = FetchDamaged(asked=0, reader="r", log=LOG, offset=3, error="CRC")
    assert found(damaged) == [f"{NAME}: r read damaged bytes from offset 3: CRC"]


def test_deleted_records_stay_hidden_while_the_broker_lives() -> None:
    deleted = [DeleteRecordsInvoked(op=1, log=LOG, before=2), RecordsDeleted(op=1, low_watermark=2)]
    late = fetched(1, "b", asked=5)
    found = [f"{NAME}: r read from offset 1, records below 2 had been deleted"]
    assert read_bounds.check(History.of(*created(), *deleted, late), FinalState()) == found
    early = History.of(*created(), *deleted, fetched(1, "b", asked=4))
    assert read_bounds.check(early, FinalState()) == []
    killed = [*deleted, BrokerDied(broker=1), fetched(1, "b", asked=6)]
    assert read_bounds.check(History.of(*created(), *killed), FinalState()) == []
    stopped = [*deleted, BrokerStopped(broker=1), fetched(1, "b", asked=6)]
    assert read_bounds.check(History.of(*created(), *stopped), FinalState()) == found


def test_only_what_was_asked_for_is_deleted() -> None:
    deleted = [DeleteRecordsInvoked(op=1, log=LOG, before=2), RecordsDeleted(op=1, low_watermark=2)]
    kept = holds("c", start=2, first=2)
    assert deletions.check(History.of(*created(), *deleted), kept) == []
    assert deletions.check(History.of(*created(), deleted[0]), kept) == []
    assert deletions.check(History.of(*created()), kept) == [
        f"{NAME} starts at 2, deletion was asked up to 0"
    ]
    assert deletions.check(History.of(*created(retention_ms="1")), kept) == []
    assert deletions.check(History.of(*created(), *deleted), holds("abc")) == [
        f"{NAME}: records below 2 had been deleted, the log starts at 0"
    ]
    killed = BrokerDied(broker=1)
    assert deletions.check(History.of(*created(), *deleted, killed), holds("abc")) == []
    short = [deleted[0], RecordsDeleted(op=1, low_watermark=1)]
    assert deletions.check(History.of(*created(), *short), kept) == [
        f"{NAME}: records below 2 were to be deleted, the answer was 1"
    ]


def test_directories_of_unknown_topics_are_left_behind() -> None:
    state = FinalState(partition_dirs={1: {"t-0": TOPIC_ID}})
    assert deletions.check(History(), state) == [
        f"broker 1 holds t-0 of topic {TOPIC_ID}, which does not exist"
    ]


def test_marks_do_not_go_back() -> None:
    def found(*events: Event) -> list[str]:
        return monotone.check(History.of(*created(), *events), FinalState())

    def listed(offset: int, asked: int, epoch: int = 0) -> EndListed:
        return EndListed(asked=asked, log=LOG, offset=offset, leader_epoch=epoch)

    back = [f"{NAME}: the high watermark is 4 after the high watermark was 5"]
    five = fetched(0, "a", asked=3, hw=5)
    assert found(five, fetched(0, "a", asked=4, hw=4)) == back
    assert found(five, fetched(0, "a", asked=3, hw=4)) == []
    killed = restarted(power_lost=False)
    assert found(five, *killed, fetched(0, "a", asked=6, hw=4, epoch=1)) == []
    assert found(fetched(2, "a", asked=3, start=2), fetched(2, "a", asked=4, start=1)) == [
        f"{NAME}: the log start is 1 after the log start was 2"
    ]
    assert found(five, *killed, listed(4, asked=6, epoch=1)) == [
        f"{NAME}: the latest offset is 4 after the high watermark was 5"
    ]
    assert found(sent(1, "a"), acked(1, 6), listed(6, asked=5)) == [
        f"{NAME}: the latest offset is 6 after the acknowledged end was 7"
    ]
    gone = TopicDeleteInvoked(op=2, topic=LOG.topic, topic_id=LOG.topic_id)
    assert found(sent(1, "a"), acked(1, 6), gone, listed(0, asked=5)) == []
    lost = restarted(power_lost=True)
    assert found(sent(1, "a"), acked(1, 6), *lost, listed(6, asked=7, epoch=1)) == []
    last = [listed(4, asked=6, epoch=1), listed(3, asked=7, epoch=1)]
    assert found(listed(9, asked=3), *lost, *last) == [
        f"{NAME}: the latest offset is 3 after the latest offset was 4"
    ]


def test_a_leader_that_was_replaced_may_tell_what_it_told_before() -> None:
    seen = [fetched(0, "a", hw=5, asked=5, epoch=1), fetched(0, "a", hw=4, asked=6, epoch=0)]
    moved = [*created(), *restarted(power_lost=False)]
    assert monotone.check(History.of(*moved, *seen), FinalState()) == []
    old = EndListed(asked=6, log=LOG, offset=4, leader_epoch=0)
    assert monotone.check(History.of(*moved, seen[0], old), FinalState()) == []
    new = EndListed(asked=6, log=LOG, offset=4, leader_epoch=1)
    assert monotone.check(History.of(*moved, seen[0], new), FinalState()) == [
        f"{NAME}: the latest offset is 4 after the high watermark was 5"
    ]


def test_ghosts_were_never_sent_to_this_topic() -> None:
    other = LogId("t", UUID(int=2), 0)
    elsewhere = ProduceInvoked(op=1, log=other, producer="p", values=(b"a",))
    assert ghosts.check(History.of(sent(1, "a")), holds("a")) == []
    assert ghosts.check(History.of(elsewhere), holds("a")) == [
        f"{NAME}: a at offset 0 was never sent there"
    ]
    refused = History.of(sent(1, "a"), ProduceRefused(op=1, code="INVALID_RECORD"))
    assert ghosts.check(refused, holds("a")) == [f"{NAME}: a at offset 0 had been refused"]
    early = History.of(fetched(0, "a"), sent(1, "a"))
    assert ghosts.check(early, FinalState()) == [
        f"{NAME}: a at offset 0 was read before it was sent"
    ]


def test_marks_do_not_go_back_on_one_follower_while_it_runs() -> None:
    def found(*events: Event) -> list[str]:
        return monotone.check(History.of(*created(), *events), FinalState())

    behind = replace(fetched(0, asked=4, hw=3), follower=2)
    assert found(fetched(0, hw=5), behind) == []
    assert found(replace(fetched(0, hw=5), follower=3), behind) == []
    further = replace(fetched(0, hw=5), follower=2)
    assert found(further, behind) == [
        f"{NAME}: the high watermark is 3 after the high watermark was 5"
    ]
    assert found(further, BrokerDied(broker=3), replace(behind, asked=5)) != []
    assert found(further, BrokerDied(broker=2), replace(behind, asked=5)) == []
    told = EndListed(asked=4, log=LOG, offset=4, leader_epoch=0)
    assert found(further, told) == [
        f"{NAME}: the latest offset is 4 after the high watermark was 5"
    ]


def test_a_follower_that_was_away_may_have_deleted_records() -> None:
    deleted = [DeleteRecordsInvoked(op=1, log=LOG, before=2), RecordsDeleted(op=1, low_watermark=2)]
    read = replace(fetched(0, "a", asked=6), follower=2)

    def found(*events: Event) -> list[str]:
        return read_bounds.check(History.of(*created(), *events), FinalState())

    fenced = Committed(number=2, records=(BrokerFenced(broker_id=2, reason="silent"),))
    back = Committed(number=3, records=(BrokerUnfenced(broker_id=2),))
    assert found(*deleted, back, read) != []
    assert found(*deleted, fenced, read) == []
    assert found(fenced, *deleted, back, replace(read, asked=7)) == []
    assert found(fenced, back, *deleted, replace(read, asked=7)) != []
    asked, answered = deleted
    done = DeletionDone(broker=1, log=LOG, version=2, low_watermark=2)
    behind = [fenced, back, asked, done, answered]
    assert found(*behind, replace(read, asked=8)) == []
    heard = LogStartTold(broker=2, log=LOG, log_start=2)
    assert found(*behind, replace(read, asked=8), heard) == []
    assert found(*behind, heard, replace(read, asked=9)) != []
    informed = [fenced, back, asked, replace(done, version=3), answered]
    assert found(*informed, replace(read, asked=8)) != []
