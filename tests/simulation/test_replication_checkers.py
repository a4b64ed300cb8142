"""The checkers of replication: histories that break them, and that do not."""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import (
    BrokerFenced,
    BrokerRemoved,
    BrokerUnfenced,
    ControllerChanged,
    PartitionsAdded,
)
from sparklog.types import NO_NODE
from tests.simulation.checkers import (
    acknowledged,
    deletions,
    elections,
    handover,
    leaders,
    monotone,
    read_bounds,
    replicas,
)
from tests.simulation.checkers import committed as committed_check
from tests.simulation.checkers.copies import follow
from tests.simulation.events import (
    BrokerDied,
    DeleteRecordsInvoked,
    DeletionDone,
    EndListed,
    Event,
    Fetched,
    HighWatermarkSeen,
    LogStartTold,
    MayStop,
    ProduceAcked,
    ProduceInvoked,
    RecordsDeleted,
    ReplicaEnd,
    ReplicaSeen,
    SeenBatch,
    StopAsked,
    UncleanElectionAsked,
)
from tests.simulation.final_state import FinalLog, FinalState
from tests.simulation.history import History
from tests.simulation.partition_story import (
    LOG,
    NAME,
    STATE,
    Told,
    committed,
    created,
    lost_power,
    registered,
)


def test_what_the_leader_alone_acknowledged_goes_with_its_leadership() -> None:
    def lost(acks: int, *events: Event) -> list[str]:
        write = ProduceInvoked(op=1, log=LOG, producer="p", values=(b"a",), acks=acks)
        history = History.of(created(), write, ProduceAcked(op=1, base_offset=0), *events)
        state = FinalState(logs={LOG: FinalLog(start=0, end=0, batches=())})
        return acknowledged.check(history, state)

    gone = [f"a of p was acknowledged at offset 0 of {NAME}, where nothing is; the log is [0, 0)"]
    moved = committed(Told().now(2, (2, 3)))
    assert lost(1) == gone
    assert lost(1, moved) == []
    assert lost(-1, moved) == gone


def test_what_the_leader_alone_acknowledged_is_no_end_of_the_log_yet() -> None:
    def found(acks: int) -> list[str]:
        write = ProduceInvoked(op=1, log=LOG, producer="p", values=(b"a",), acks=acks)
        listed = EndListed(asked=3, log=LOG, offset=0, leader_epoch=0)
        history = History.of(created(), write, ProduceAcked(op=1, base_offset=0), listed)
        return monotone.check(history, FinalState())

    assert found(1) == []
    assert found(-1) == [f"{NAME}: the latest offset is 0 after the acknowledged end was 1"]


def test_an_empty_disk_never_leads() -> None:
    told = Told(replace(STATE, replicas=(1,), isr=(1,)))
    events = [created(state=told.state), committed(registered(1, clean=True))]
    died = BrokerDied(broker=1, disk_lost=True)
    offline = committed(registered(1, disk=2), told.now(NO_NODE, ()))
    assert elections.check(History.of(*events, died, offline), FinalState()) == []
    led = committed(told.now(1, (1,)))
    assert elections.check(History.of(*events, died, offline, led), FinalState()) == [
        f"{NAME}: broker 1 was elected, which never held or has lost what was acknowledged"
    ]


def test_a_new_disk_counts_once_it_has_caught_up_although_its_process_has_ended() -> None:
    never_held = f"{NAME}: broker 2 was elected, which never held or has lost what was acknowledged"

    def is_found(death: BrokerDied) -> bool:
        told = Told(replace(STATE, replicas=(1, 2), isr=(1,), last_known=(1,)))
        events = [
            created(state=told.state),
            BrokerDied(broker=2, disk_lost=True),
            committed(registered(2, disk=2, life=2)),
            death,
            committed(told.now(1, (1, 2))),
            committed(told.now(2, (2,))),
            committed(registered(2, disk=2, life=3), told.now(NO_NODE, ())),
            committed(told.now(2, (2,))),
        ]
        return never_held in elections.check(History.of(*events), FinalState())

    assert not is_found(lost_power(2, life=2))
    assert is_found(BrokerDied(broker=2, disk_lost=True, incarnation=UUID(int=2)))


def test_who_lost_its_disk_may_be_elected_while_nobody_can_know() -> None:
    told = Told()
    known = committed(registered(1, clean=True, life=1), BrokerUnfenced(broker_id=1))
    both_out = committed(told.now(NO_NODE, ()))
    died = BrokerDied(broker=1, disk_lost=True, incarnation=UUID(int=1))
    events = [known, created(), both_out, died]
    led = committed(told.now(1, (1,)))
    allowed = [f"{NAME}: broker 1 was elected after 0 ms, [2, 3] were not waited for"]
    assert elections.check(History.of(*events, led), FinalState()) == allowed
    heard = committed(BrokerFenced(broker_id=1, reason="silent"))
    assert elections.check(History.of(*events, heard, led), FinalState()) == [
        *allowed,
        f"{NAME}: broker 1 was elected, which never held or has lost what was acknowledged",
    ]


def test_who_stopped_uncleanly_counts_in_a_topic_that_is_created_then() -> None:
    first = committed(registered(1, clean=True))
    both = committed(registered(1, life=3), *created().records)
    assert elections.check(History.of(first, both), FinalState()) == []


def test_a_disk_that_was_lost_before_a_partition_was_created_there_holds_nothing_of_it() -> None:
    """The simulated operator asks for an unclean election then."""

    def emptied(*events: Event) -> set[int]:
        return follow(History.of(known, *events))[LOG].emptied

    known = committed(registered(1, clean=True, life=1), BrokerUnfenced(broker_id=1))
    killed = BrokerDied(broker=1, incarnation=UUID(int=1))
    died = replace(killed, disk_lost=True)
    assert emptied(died, created()) == emptied(created(), died) == {1}
    assert emptied(killed, created()) == set()
    new_disk = registered(1, clean=True, disk=2, life=2)
    assert emptied(died, committed(new_disk, *created().records)) == set()
    added = committed(PartitionsAdded(topic="t", partitions=(STATE,)))
    both = follow(History.of(known, created(), died, added))
    assert [copies.emptied for copies in both.values()] == [{1}, {1}]


def test_a_disk_that_was_lost_before_a_partition_was_created_there_is_not_waited_for() -> None:
    told = Told()
    known = committed(*(registered(broker, clean=True, life=1) for broker in (1, 2, 3)))
    alive = committed(*(BrokerUnfenced(broker_id=broker) for broker in (1, 2, 3)))
    silent = BrokerFenced(broker_id=1, reason="silent")
    events = [
        created(),
        committed(silent, told.now(NO_NODE, ())),
        committed(told.now(2, (2,))),
    ]
    died = BrokerDied(broker=1, disk_lost=True, incarnation=UUID(int=1))
    assert elections.check(History.of(known, alive, died, *events), FinalState()) == []
    assert elections.check(History.of(known, alive, *events), FinalState()) == [
        f"{NAME}: broker 2 was elected after 0 ms, [1] were not waited for"
    ]


def test_who_stopped_uncleanly_does_not_count() -> None:
    died, back = BrokerDied(broker=2), committed(registered(2))
    assert elections.check(History.of(created(), died, back), FinalState()) == [
        f"{NAME}: broker 2 stopped uncleanly and counts as in sync"
    ]
    left = committed(registered(2), Told().now(1, (1, 3)))
    assert elections.check(History.of(created(), died, left), FinalState()) == []
    eligible = committed(registered(2), Told().now(1, (1, 3), (2,)))
    assert elections.check(History.of(created(3), died, eligible), FinalState()) == [
        f"{NAME}: broker 2 stopped uncleanly and counts as eligible"
    ]
    first = committed(registered(2, clean=True))
    other_disk = committed(registered(2, clean=True, disk=2), Told().now(1, (1, 3)))
    assert elections.check(History.of(created(), first, other_disk), FinalState()) == [
        "broker 2 came with another disk and counts as clean"
    ]
    removed = committed(BrokerRemoved(broker_id=2), Told().now(1, (1, 3)))
    again = committed(registered(2, clean=True, disk=2))
    assert elections.check(History.of(created(), first, removed, again), FinalState()) == []


def test_nobody_is_eligible_beside_an_isr_of_the_size_that_is_wanted() -> None:
    eligible = committed(Told().now(1, (1, 3), (2,)))
    assert elections.check(History.of(created(3), eligible), FinalState()) == []
    assert elections.check(History.of(created(2), eligible), FinalState()) == [
        f"{NAME}: [2] are eligible beside the in-sync [1, 3], of which there are enough"
    ]


def test_what_is_committed_is_in_every_log_that_counts() -> None:
    def found(*events: Event, **configs: str) -> list[str]:
        return committed_check.check(History.of(created(**configs), *events), FinalState())

    def moved(mark: int, *ends: ReplicaEnd, epoch: int = 0) -> HighWatermarkSeen:
        return HighWatermarkSeen(
            log=LOG, broker=1, leader_epoch=epoch, high_watermark=mark, ends=ends
        )

    whole, short = ReplicaEnd(1, 5, 5), ReplicaEnd(2, 3, 3)
    behind = [f"{NAME}: broker 1 has the high watermark at 4, broker 2 has the log up to 3"]
    assert found(moved(3, whole, short)) == []
    assert found(moved(4, whole, short)) == behind
    told = Told()
    assert found(committed(told.now(1, (1, 3))), moved(4, whole, short)) == []
    assert found(committed(told.now(1, (1,), (2,))), moved(4, whole, short)) == behind
    assert found(committed(told.now(3, (3,))), moved(4, whole, short)) == []
    unflushed = ReplicaEnd(2, 5, 3)
    assert found(moved(4, whole, unflushed)) == []
    assert found(moved(4, whole, unflushed), flush_messages="1") == behind


def test_what_is_acknowledged_was_committed_before() -> None:
    def found(acks: int, mark: int) -> list[str]:
        write = ProduceInvoked(op=1, log=LOG, producer="p", values=(b"a", b"b"), acks=acks)
        moved = HighWatermarkSeen(log=LOG, broker=1, leader_epoch=0, high_watermark=mark, ends=())
        acked = ProduceAcked(op=1, base_offset=0)
        return committed_check.check(History.of(created(), write, moved, acked), FinalState())

    assert [found(-1, 2), found(1, 1)] == [[], []]
    assert found(-1, 1) == [
        f"{NAME}: offset 1 was acknowledged before any high watermark was above it"
    ]


def test_what_is_read_was_committed_before() -> None:
    two = (0, b"a"), (1, b"b")

    def found(mark: int) -> list[str]:
        moved = HighWatermarkSeen(log=LOG, broker=1, leader_epoch=0, high_watermark=mark, ends=())
        read = Fetched(
            asked=2, reader="r", log=LOG, offset=0, high_watermark=2, log_start=0, records=two,
            follower=2,
        )  # fmt: skip
        return committed_check.check(History.of(created(), moved, read), FinalState())

    assert found(2) == []
    assert found(1) == [f"{NAME}: r read offset 1 before any high watermark was above it"]


def test_an_eligible_replica_that_was_away_during_a_deletion_leads_with_the_records() -> None:
    deletion = asked, answered = [
        DeleteRecordsInvoked(op=1, log=LOG, before=2),
        RecordsDeleted(op=1, low_watermark=2),
    ]

    def found(*story: Event) -> set[str]:
        begun = created(2, replace(STATE, replicas=(1, 2), isr=(1, 2), last_known=(1, 2)))
        read = Fetched(
            asked=len(story) + 1, reader="r", log=LOG, offset=0, leader_epoch=2, high_watermark=2,
            log_start=0, records=((0, b"a"), (1, b"b")),
        )  # fmt: skip
        history = History.of(begun, *story, read)
        final = FinalState(logs={LOG: FinalLog(start=0, end=2, batches=())})
        return {*read_bounds.check(history, FinalState()), *deletions.check(history, final)}

    blamed = {
        f"{NAME}: r read from offset 0, records below 2 had been deleted",
        f"{NAME}: records below 2 had been deleted, the log starts at 0",
    }
    told = Told(replace(STATE, replicas=(1, 2), isr=(1, 2), last_known=(1, 2)))
    fenced, late = BrokerFenced(broker_id=2, reason="silent"), told.now(1, (1,), (2,))
    away = replace(committed(fenced, late), number=1)
    both = committed(told.now(NO_NODE, (), (2, 1)))
    back = committed(BrokerUnfenced(broker_id=2), told.now(2, (2,), (1,)))
    assert found(away, *deletion, both, back) == set()
    unfenced = replace(committed(BrokerUnfenced(broker_id=2)), number=2)
    assert found(away, unfenced, *deletion, both, back) == blamed, "it was there again"
    behind = DeletionDone(broker=1, log=LOG, version=1, low_watermark=2)
    assert found(away, unfenced, asked, behind, answered, both, back) == set()
    assert found(away, both, back, asked, behind, answered) == set(), "behind the leader's back"
    current = replace(behind, version=2)
    assert found(away, unfenced, asked, current, answered, both, back) == blamed, "it was asked"
    assert found(*deletion, away, both, back) == blamed, "it was waited for"
    assert found(committed(late), *deletion, both, back) == blamed, "so is a late one that lives"
    assert found(away, both, back, *deletion) == blamed, "it was asked itself"
    joined = committed(replace(late, state=replace(late.state, isr=(1, 2), eligible=())))
    assert found(away, *deletion, joined, both, back) == set(), "the answer may have been lost"
    heard = LogStartTold(broker=2, log=LOG, log_start=2)
    assert found(away, *deletion, heard, joined, both, back) == blamed, "it fetched what the log is"
    less = replace(heard, log_start=1)
    assert found(away, *deletion, less, joined, both, back) == set()
    assert found(away, *deletion, joined, seen(2, 7, start=2), both, back) == blamed, "it shows it"
    same = committed(replace(late, state=replace(late.state, leader_epoch=2)))
    assert found(away, *deletion, both, same) == blamed, "the same one leads again"


def seen(broker: int, *checksums: int, hw: int | None = None, start: int = 0) -> ReplicaSeen:
    """Batches of two records each."""
    batches = tuple(
        SeenBatch(start + 2 * number, start + 2 * number + 2, checksum)
        for number, checksum in enumerate(checksums)
    )
    end = start + 2 * len(checksums)
    return ReplicaSeen(
        broker=broker,
        log=LOG,
        leads=broker == 1,
        leader_epoch=0,
        start=start,
        high_watermark=end if hw is None else hw,
        batches=batches,
    )


def test_replicas_hold_the_same_below_their_high_watermarks() -> None:
    def found(*events: Event) -> list[str]:
        return replicas.check(History.of(created(), *events), FinalState())

    assert found(seen(1, 7, 8), seen(2, 7), seen(2, 7, 9, hw=2)) == []
    assert found(seen(1, 7, 8), seen(2, 7, 9)) == [
        f"{NAME}: brokers 1 and 2 hold different bytes at offset 2"
    ]
    assert found(seen(1, 7, 8), seen(2, hw=4)) == [
        f"{NAME}: broker 1 held a batch at offset 0, broker 2 has none there below its high "
        "watermark 4"
    ]
    assert found(seen(1, 7, 8), seen(2, 8, start=2)) == []


def test_a_replica_that_has_not_heard_of_a_loss_may_hold_what_was_before() -> None:
    told = Told()
    unclean = [UncleanElectionAsked(log=LOG), committed(told.now(NO_NODE, ()))]
    events = [created(), seen(2, 7), *unclean, committed(told.now(4, (4,)))]
    assert replicas.check(History.of(*events, seen(3, 8)), FinalState()) == []
    whole = FinalState(replicas=(seen(1, 8), seen(3, 8)))
    assert replicas.check(History.of(*events), whole) == []
    split = FinalState(replicas=(seen(1, 8), seen(3, 7)))
    assert replicas.check(History.of(*events), split) == [
        f"{NAME}: brokers 1 and 3 hold different bytes at offset 0"
    ]


def test_at_the_end_every_replica_is_whole() -> None:
    whole = FinalState(replicas=(seen(1, 7, 8), seen(2, 7, 8, hw=2)))
    assert replicas.check(History.of(created()), whole) == []
    short = FinalState(replicas=(seen(1, 7, 8), seen(2, 7)))
    assert replicas.check(History.of(created()), short) == [
        f"{NAME}: broker 2 holds records up to 2 at the end, 4 were committed"
    ]


def test_an_epoch_has_one_leader() -> None:
    def found(*events: Event) -> list[str]:
        return leaders.check(History.of(created(), *events), FinalState())

    told = Told()
    moved = told.now(2, (2, 3))
    assert found(committed(moved), seen(1, 7)) == []
    assert found(replace(seen(2, 7), leads=True)) == [
        f"{NAME}: broker 2 leads epoch 0, which the journal gave to [1]"
    ]
    two = replace(moved.state, leader=3, partition_epoch=2)
    assert found(committed(moved), committed(replace(moved, state=two))) == [
        f"{NAME}: leader epoch 1 is of brokers 2 and 3"
    ]
    back = replace(moved.state, leader_epoch=0, leader=1)
    assert found(committed(moved), committed(replace(moved, state=back))) == [
        f"{NAME}: leader epoch 0 after 1",
        f"{NAME}: partition epoch 1 after 1",
    ]


def test_who_may_stop_leads_nothing_that_others_could() -> None:
    def found(*events: Event, after_ms: int = 0) -> list[str]:
        replaced = committed(ControllerChanged(controller_epoch=2, host="h", port=1))
        stop = StopAsked(broker=1), MayStop(broker=1)
        history = History(lambda: after_ms * len(history.events))
        for event in (created(), replaced, *events, *stop):
            history.record(event)
        return handover.check(history, FinalState())

    both = [f"{NAME}: broker 1 may stop and leads it, broker {other} could" for other in (2, 3)]
    assert found() == both
    assert found(committed(Told().now(2, (2, 3)))) == []
    assert found(committed(Told().now(1, (1, 3)))) == both[1:]
    assert found(committed(BrokerFenced(broker_id=2, reason="silent"))) == both[1:]
    asked = StopAsked(broker=3)
    assert found(asked) == both[:1]
    assert found(asked, committed(registered(3, clean=True))) == both
    told = Told()
    later = committed(told.now(2, (1, 2, 3))), committed(told.now(1, (1, 2, 3)))
    assert found(*later) == []
    assert found(*later, after_ms=6000) == both
