"""The checkers of transactions: histories that break their invariants, and that keep them."""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import PartitionChanged, PartitionImage, TopicCreated
from sparklog.metadata.topic_names import TRANSACTION_STATE
from tests.simulation.chain_records import Input, output_text
from tests.simulation.checkers import (
    atomicity,
    committed_reads,
    consistent_cuts,
    decisions,
    exactly_once,
    fenced_producers,
    stable_offsets,
)
from tests.simulation.compaction_events import CompactionEvent
from tests.simulation.events import BrokerDied, Event, LogId
from tests.simulation.final_state import CommittedLog, FinalState
from tests.simulation.history import History
from tests.simulation.partition_story import LOG, NAME, committed, created
from tests.simulation.partition_story import STATE as THREE
from tests.simulation.partition_story import Told as Story
from tests.simulation.transaction_events import (
    ChainDrained,
    CommittedRead,
    CutTaken,
    EndTxnAnswered,
    EndTxnInvoked,
    MarkerAppended,
    Producer,
    ProducerInitialized,
    TransactionalRecordAcked,
    TransactionalRecordSent,
    TransactionBegun,
    TransactionEvent,
    TransactionsSettled,
    TransactionStateCommitted,
)

Told = Event | CompactionEvent | TransactionEvent

ALONE = PartitionImage(replicas=(1, 2), isr=(1,), last_known=(1, 2), leader=1)
#: The topic of the coordinator; its one partition is led by broker 1, which alone is in sync.
STATE = TopicCreated(topic=TRANSACTION_STATE, topic_id=UUID(int=8), partitions=(ALONE,))
STATE_LOG = LogId(TRANSACTION_STATE, UUID(int=8), 0)
A, B = (LogId(name, UUID(int=number), 0) for number, name in enumerate("ab", 1))
#: The producer of ``decided``.
PRODUCER = Producer(7, 1)


def history(*events: Told) -> History:
    return History.of(committed(STATE), *events)


def lost() -> tuple[Told, Told]:
    """The disk of broker 1, which alone had the decisions; broker 2 leads."""
    state = replace(ALONE, leader=2, isr=(2,), leader_epoch=1, partition_epoch=1)
    moved = PartitionChanged(topic=TRANSACTION_STATE, partition=0, state=state)
    return BrokerDied(broker=1, disk_lost=True), committed(moved)


def begun(number: int = 1, instance: str = "i") -> TransactionBegun:
    return TransactionBegun(transaction=number, transactional_id="t", instance=instance)


def sent(value: bytes, log: LogId, number: int = 1) -> TransactionalRecordSent:
    return TransactionalRecordSent(transaction=number, log=log, value=value)


def asked_to_end(op: int = 10, *, commits: bool = True, number: int = 1) -> EndTxnInvoked:
    return EndTxnInvoked(op=op, transaction=number, committed=commits)


def answered(code: str = "", op: int = 10) -> EndTxnAnswered:
    return EndTxnAnswered(op=op, code=code)


def holding(a: tuple[bytes, ...] = (), b: tuple[bytes, ...] = (), damage: str = "") -> FinalState:
    """What readers of committed records get of both logs at the end."""
    return FinalState(
        committed_logs={
            log: CommittedLog(
                end=9, last_stable_offset=9, records=dict(enumerate(values)), damage=damage
            )
            for log, values in ((A, a), (B, b))
        }
    )


BOTH = (begun(), sent(b"x", A), sent(b"y", B))


# atomicity


def test_a_committed_transaction_is_visible_as_a_whole() -> None:
    told = history(*BOTH, asked_to_end(), answered())
    assert atomicity.check(told, holding((b"x",), (b"y",))) == []
    assert atomicity.check(told, holding((b"x",))) == [
        f"y of transaction 1 of i is not visible in {B}, although the commit was answered"
    ]
    assert len(atomicity.check(told, holding())) == 1
    assert atomicity.check(told, holding(damage="cut")) == []


def test_a_transaction_of_unknown_end_is_visible_as_a_whole_or_not_at_all() -> None:
    for last in ((), (answered("COORDINATOR_NOT_AVAILABLE"), asked_to_end(11))):
        told = history(*BOTH, asked_to_end(), *last)
        assert atomicity.check(told, holding((b"x",), (b"y",))) == []
        assert atomicity.check(told, holding()) == []
        assert atomicity.check(told, holding((), (b"y",))) == [
            f"transaction 1 of i is torn: y is visible in {B}, x is not in {A}"
        ]


def test_a_transaction_that_did_not_commit_is_not_visible() -> None:
    wrong = ["x of transaction 1 of i is visible, which never committed"]
    abort = (asked_to_end(commits=False), answered())
    refused = (asked_to_end(), answered("PRODUCER_FENCED"))
    for last in ((), abort, refused):
        told = history(*BOTH, *last)
        assert atomicity.check(told, holding()) == []
        assert atomicity.check(told, holding((b"x",), (b"y",))) == wrong


def test_a_record_is_visible_once() -> None:
    told = history(*BOTH, asked_to_end(), answered())
    assert atomicity.check(told, holding((b"x", b"x"), (b"y",))) == [
        f"x of transaction 1 of i is at [({A!r}, 0), ({A!r}, 1)]"
    ]


def test_a_decision_may_be_lost_with_all_disks_that_had_it() -> None:
    told = history(*BOTH, asked_to_end(), answered(), *lost())
    assert atomicity.check(told, holding((b"x",))) == []
    later = history(*lost(), *BOTH, asked_to_end(), answered())
    assert len(atomicity.check(later, holding((b"x",)))) == 1


def test_instances_that_did_not_fence_each_other_may_end_each_others_transactions() -> None:
    """The coordinator's log was lost between them."""
    both = [initialized("i", 0), *lost(), initialized("j", 4)]
    told = history(*both, *BOTH, asked_to_end(), answered())
    assert atomicity.check(told, holding((b"x",))) == []
    fenced = history(initialized("i", 0), initialized("j", 2), *BOTH, asked_to_end(), answered())
    assert len(atomicity.check(fenced, holding((b"x",)))) == 1


# reads


def read(*values: bytes, stable: int = 9, high_watermark: int = 9) -> CommittedRead:
    return CommittedRead(
        asked=0,
        reader="r",
        log=A,
        offset=0,
        last_stable_offset=stable,
        high_watermark=high_watermark,
        records=tuple(enumerate(values)),
    )


def test_a_record_is_read_after_its_commit_was_asked_for() -> None:
    where = f"{A}: r read committed records from offset 0"

    def check(*events: Told, there: tuple[bytes, ...] = (b"x",)) -> list[str]:
        return committed_reads.check(history(*events), holding(there, (b"y",)))

    early = [f"{where} and got x of transaction 1 of i, which had not been committed"]
    assert check(*BOTH, asked_to_end(), read(b"x")) == []
    assert check(*BOTH, read(b"x"), asked_to_end()) == early
    assert check(*BOTH, *lost(), read(b"x")) == []
    assert check(*BOTH, asked_to_end(commits=False), read(b"x")) == early
    assert check(*BOTH, asked_to_end(), answered("INVALID_TXN_STATE"), read(b"x")) == early
    assert check(read(b"plain"), there=(b"plain",)) == []


def test_a_read_stays_below_the_last_stable_offset() -> None:
    where = f"{A}: r read committed records from offset 0"
    final = holding((b"p", b"q"))
    assert committed_reads.check(history(read(b"p", b"q", stable=2)), final) == []
    assert committed_reads.check(history(read(b"p", b"q", stable=1)), final) == [
        f"{where} and got offset 1, the last stable offset is 1"
    ]
    assert committed_reads.check(history(read(stable=3, high_watermark=2)), final) == [
        f"{where}: last stable offset 3 above high watermark 2"
    ]


def test_what_was_read_is_there_at_the_end() -> None:
    where = f"{A}: r read committed records from offset 0"
    assert committed_reads.check(history(read(b"p")), holding((b"q",))) == [
        f"{where} and got p at 0, which is not there now"
    ]
    assert committed_reads.check(history(read(b"p")), holding(damage="cut")) == []


def test_a_cut_tears_no_transaction() -> None:
    final = holding((b"p", b"x", b"z"), (b"y",))

    def check(*ends: tuple[LogId, int], told: tuple[Told, ...] = BOTH) -> list[str]:
        cut = CutTaken(reader="r", ends=ends)
        return consistent_cuts.check(history(*told, sent(b"z", A), cut), final)

    assert check((A, 3), (B, 1)) == check((A, 1), (B, 0)) == check((B, 1)) == []
    assert check((A, 1), (B, 1)) == [
        f"a cut of r tears transaction 1 of i: offset 0 of {B} is below 1, offset 2 of {A} is not "
        "below 1"
    ]
    assert len(check((A, 3), (B, 0))) == len(check((A, 2))) == 1
    assert check((A, 1), (B, 1), told=(*BOTH, *lost())) == []


# fences


def initialized(instance: str, asked: int, transactional_id: str = "t") -> ProducerInitialized:
    return ProducerInitialized(
        asked=asked, transactional_id=transactional_id, instance=instance, producer=PRODUCER
    )


def fence_check(*events: Told, final: FinalState | None = None) -> list[str]:
    return fenced_producers.check(history(*events), final or holding())


def test_a_fenced_instance_writes_nothing() -> None:
    first, second = initialized("i", 0), initialized("j", 2)
    ack = TransactionalRecordAcked(transaction=1, value=b"x")
    assert fence_check(first, second, *BOTH) == []
    assert fence_check(first, second, *BOTH, ack) == [
        "x of transaction 1 of i was acknowledged, and j had fenced it before it was sent"
    ]
    assert fence_check(first, *BOTH, second, ack) == []  # it was sent before
    assert fence_check(second, initialized("i", 2), *BOTH, ack) == []
    concurrent = initialized("j", 1)  # asked for before the first one was answered
    assert fence_check(first, concurrent, *BOTH, ack) == []
    assert fence_check(first, initialized("j", 2, "another"), *BOTH, ack) == []
    assert fence_check(first, second, *BOTH, ack, *lost()) == []


def test_a_fenced_instance_commits_nothing() -> None:
    first, second = initialized("i", 0), initialized("j", 5)
    end = (asked_to_end(), answered())
    assert fence_check(first, *BOTH, *end, second, final=holding((b"x",))) == []
    assert fence_check(first, *BOTH, second, *end) == [
        "the end of transaction 1 of i was taken, and j had fenced it before"
    ]
    assert fence_check(first, *BOTH, second, asked_to_end(), final=holding((b"x",))) == [
        "x of transaction 1 of i is visible, and j had fenced it before its commit"
    ]
    before = (first, *BOTH, asked_to_end(), second, answered())
    assert fence_check(*before, final=holding((b"x",))) == []


# decisions


def decided(offset: int, state: str, producer: Producer = PRODUCER) -> TransactionStateCommitted:
    return TransactionStateCommitted(
        log=STATE_LOG,
        offset=offset,
        transactional_id="t",
        state=state,
        producer=producer,
        partitions=frozenset({("a", 0)}),
    )


def marker(
    *, commits: bool = True, log: LogId = A, producer: Producer = PRODUCER
) -> MarkerAppended:
    return MarkerAppended(log=log, offset=5, producer=producer, committed=commits)


def test_a_transaction_is_decided_once() -> None:
    def check(*states: str) -> list[str]:
        told = [decided(offset, state) for offset, state in enumerate(states)]
        return decisions.check(history(*told, told[0]), FinalState())

    assert check("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing") == []
    assert check("Ongoing", "PrepareAbort", "CompleteAbort", "Dead", "Empty") == []
    assert check("PrepareCommit", "PrepareAbort") == [
        f"{STATE_LOG}: t goes from PrepareCommit to PrepareAbort at offset 1"
    ]
    assert len(check("CompleteCommit", "CompleteAbort")) == 1


def test_a_producer_epoch_does_not_go_back() -> None:
    older, other = Producer(7, 0), Producer(8, 0)
    first = decided(0, "Empty")
    assert decisions.check(history(first, decided(1, "Empty", other)), FinalState()) == []
    assert decisions.check(history(first, decided(1, "Empty", older)), FinalState()) == [
        f"{STATE_LOG}: t goes from epoch 1 to 0 at offset 1"
    ]
    again = history(first, decided(1, "Empty", older), *lost())
    assert decisions.check(again, FinalState()) == []


def test_a_marker_repeats_a_decision_that_came_before_it() -> None:
    def check(*events: Told) -> list[str]:
        return decisions.check(history(*events), FinalState())

    where = f"{A}: the marker at offset 5 commits {PRODUCER}"
    commit = decided(0, "PrepareCommit")
    assert check(commit, marker(), marker()) == []
    assert check(marker(), commit) == [f"{where}, which nobody had decided"]
    assert check(decided(0, "Ongoing"), marker()) == [f"{where}, which nobody had decided"]
    assert check(decided(0, "PrepareAbort"), marker()) == [
        f"{where}, and the decision is PrepareAbort"
    ]
    assert check(decided(0, "PrepareAbort"), marker(commits=False)) == []
    assert check(commit, marker(log=B)) == [
        f"{B}: the marker at offset 5 commits {PRODUCER}, and the transaction does not have the "
        "partition"
    ]
    assert len(check(commit, marker(producer=Producer(7, 2)))) == 1
    assert check(marker(), commit, *lost()) == []


# chains and stable offsets


def test_a_drained_chain_has_one_output_of_each_input() -> None:
    first, second = (output_text(Input("in", 0, offset), 1) for offset in (0, 1))
    again = output_text(Input("in", 0, 0), 2)
    log = LogId("in", UUID(int=4), 0)
    drained = ChainDrained(group="g", ends=((log, 2),), took_ms=5)

    def check(*outputs: bytes) -> list[str]:
        return exactly_once.check(history(drained), holding(outputs))

    wrong = (
        f"group g has {{}} outputs of offset 0 of {log}, and a wrong number for 0 others below 2"
    )
    assert check(first, second) == check(second, b"other", first) == []
    assert check(second) == [wrong.format(0)]
    assert check(first, second, again) == [wrong.format(2)]
    undrained = ChainDrained(group="g", ends=(), took_ms=5, error="late")
    assert exactly_once.check(history(undrained), holding()) == [
        "group g has not drained 5 ms after healing: late"
    ]
    assert exactly_once.check(history(undrained, *lost()), holding()) == []
    assert exactly_once.check(history(drained, *lost()), holding()) == []


def test_every_transaction_ends() -> None:
    final = holding((b"x",))
    settled = TransactionsSettled(took_ms=5, open=("t is Ongoing",), unstable=(A,))
    assert stable_offsets.check(history(TransactionsSettled(took_ms=5)), final) == []
    assert stable_offsets.check(history(settled), final) == [
        "5 ms after healing: t is Ongoing",
        f"5 ms after healing {A} has an open transaction",
    ]
    stuck = FinalState(committed_logs={A: CommittedLog(end=9, last_stable_offset=4, records={})})
    assert stable_offsets.check(history(), stuck) == [
        f"{A} has its last stable offset at 4, and its end at 9"
    ]
    assert len(stable_offsets.check(history(), holding(damage="cut"))) == 2
    assert stable_offsets.check(history(*lost()), stuck) == []


def test_no_transaction_stays_open_in_a_log_that_begins_where_the_bucket_ends() -> None:
    alone = replace(THREE, isr=(1,))
    story = Story(alone)
    gone = [BrokerDied(broker=1, disk_lost=True), committed(story.now(2, (2,)))]
    final = FinalState(committed_logs={LOG: CommittedLog(end=9, last_stable_offset=4, records={})})
    assert stable_offsets.check(History.of(created(state=alone), *gone), final) == []
    tiered = created(state=alone, remote_storage_enable="true")
    settled = TransactionsSettled(took_ms=5, unstable=(LOG,))
    found = [
        f"5 ms after healing {NAME} has an open transaction",
        f"{NAME} has its last stable offset at 4, and its end at 9",
    ]
    assert stable_offsets.check(History.of(tiered, *gone, settled), final) == found
    # What is lost on the disks later may be a marker.
    more = [BrokerDied(broker=2, power_lost=True), committed(story.now(3, (3,)))]
    assert stable_offsets.check(History.of(tiered, *gone, settled, *more), final) == found[:1]
