"""The fault bound and unclean elections: what may be lost, and what readers may see of it."""

from dataclasses import replace
from uuid import UUID

from sparklog.metadata import (
    BrokerFenced,
    BrokerUnfenced,
    PartitionChanged,
    TopicCreated,
    TopicDeleted,
)
from sparklog.types import NO_NODE
from tests.simulation.checkers import (
    elections,
    monotone,
    read_bounds,
)
from tests.simulation.checkers.promises import promises_of
from tests.simulation.events import (
    BrokerDied,
    ClusterBegun,
    Committed,
    DeleteRecordsInvoked,
    EndListed,
    Event,
    Fetched,
    ImageTaken,
    LogId,
    LogLost,
    RecordsDeleted,
    ReplicasOffline,
    UncleanElectionAsked,
)
from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.partition_story import (
    LOG,
    NAME,
    STATE,
    TOPIC_ID,
    Told,
    committed,
    created,
    lost_power,
    registered,
)


def may_be_lost(*events: Event) -> bool:
    """Whether what was acknowledged right after the creation may be gone at the end."""
    return promises_of(History.of(*events)).may_be_lost(LOG, 1)


def test_nothing_may_be_lost_while_one_member_of_the_isr_is_sound() -> None:
    told = Told()
    two_damaged = [
        created(),
        lost_power(1),
        lost_power(2),
        committed(told.now(2, (2, 3))),
        committed(registered(2), told.now(3, (3,))),
        committed(registered(1)),
    ]
    assert not may_be_lost(*two_damaged)
    third = [lost_power(3), committed(told.now(NO_NODE, (), (3,)))]
    assert not may_be_lost(*two_damaged, *third)
    assert may_be_lost(*two_damaged, *third, committed(registered(3), told.now(3, (3,))))


def test_a_kill_damages_nothing_so_its_unclean_recovery_loses_nothing() -> None:
    told = Told(replace(STATE, replicas=(1,), isr=(1,)))
    killed = BrokerDied(broker=1)
    led_again = replace(told.state, leader_epoch=1, partition_epoch=1)
    back = committed(registered(1), PartitionChanged(topic="t", partition=0, state=led_again))
    assert not may_be_lost(created(state=told.state), killed, back)
    assert may_be_lost(created(state=told.state), lost_power(1), back)
    flushed = created(state=told.state, flush_messages="1")
    assert not may_be_lost(flushed, lost_power(1), back)
    assert may_be_lost(flushed, BrokerDied(broker=1, disk_lost=True), back)


def test_who_was_killed_still_holds_what_was_acknowledged_while_the_isr_is_too_small() -> None:
    """Nothing is acknowledged then, so the log of 2 has it all although 2 stopped uncleanly."""

    def history(min_isr: int, *waited: Event) -> list[Event]:
        pair = replace(STATE, replicas=(1, 2), isr=(1, 2), last_known=(1, 2))
        told = Told(pair)
        return [
            created(min_isr, pair),
            BrokerDied(broker=2),
            committed(told.now(1, (1,), (2,))),
            committed(registered(2), told.now(1, (1,))),
            lost_power(1),
            committed(registered(1), told.now(NO_NODE, ())),
            *waited,
            committed(told.now(1, (1,))),
        ]

    assert may_be_lost(*history(1))
    assert not may_be_lost(*history(2))


def test_a_damaged_replica_is_sound_once_it_has_joined_again() -> None:
    def history(life: int) -> list[Event]:
        pair = replace(STATE, replicas=(1, 2), isr=(1, 2), last_known=(1, 2))
        told = Told(pair)
        return [
            created(1, pair),
            lost_power(2),
            committed(told.now(1, (1,))),
            committed(registered(2, life=life)),
            committed(told.now(1, (1, 2))),
            lost_power(1),
            committed(registered(1), told.now(2, (2,))),
            BrokerDied(broker=2, incarnation=UUID(int=9)),
            committed(registered(2, life=3), told.now(2, (2,))),
        ]

    assert not may_be_lost(*history(life=2))
    # The process that had caught up had ended, with its machine, before that was committed.
    told = Told(replace(STATE, replicas=(1, 2), isr=(1,), last_known=(1,)))
    late = [
        created(1, told.state),
        committed(registered(2, life=2)),
        lost_power(2, life=2),
        committed(told.now(1, (1, 2))),
        lost_power(1),
        committed(registered(1), told.now(2, (2,))),
        committed(registered(2, life=3), told.now(NO_NODE, ())),
        committed(told.now(2, (2,))),
    ]
    assert may_be_lost(*late)


def test_sound_replicas_are_waited_for_so_long() -> None:
    def history(waited_ms: int) -> History:
        pair = replace(STATE, replicas=(1, 2), isr=(1, 2), last_known=(1, 2))
        told = Told(pair)
        now = 0
        history = History(lambda: now)
        for event in (
            ClusterBegun(unclean_recovery_ms=1000),
            created(2, pair),
            lost_power(1),
            BrokerDied(broker=2),
            committed(told.now(NO_NODE, (), (1, 2))),
            committed(registered(1), told.now(NO_NODE, (), (2,))),
        ):
            history.record(event)
        now = waited_ms
        history.record(committed(registered(2), told.now(1, (1,))))
        return history

    assert not promises_of(history(900)).may_be_lost(LOG, 1)
    assert promises_of(history(1000)).may_be_lost(LOG, 1)


def test_of_a_tiered_log_that_is_gone_everywhere_any_replica_goes_on_behind_the_bucket() -> None:
    moving = replace(STATE, replicas=(1, 2), isr=(1,), last_known=(1,), leader=1)
    wrong = f"{NAME}: broker 2 was elected, which never held or has lost what was acknowledged"

    def found(*, disk_lost: bool, **configs: str) -> list[str]:
        told = Told(moving)
        died = BrokerDied(broker=1, disk_lost=disk_lost, power_lost=True)
        gone = committed(told.now(NO_NODE, (), ()))
        history = History.of(
            created(1, moving, **configs), died, gone, committed(told.now(2, (2,)))
        )
        return elections.check(history, FinalState())

    tiered = {"remote_storage_enable": "true"}
    assert found(disk_lost=True, **tiered) == []
    assert wrong in found(disk_lost=True)
    assert wrong in found(disk_lost=False, **tiered)


def test_who_asks_for_unclean_elections_gets_them() -> None:
    told = Told()
    events = [committed(told.now(1, (1,))), committed(told.now(NO_NODE, (), (1,)))]
    unclean = committed(told.now(2, (2,)))
    assert not may_be_lost(created(), *events, unclean)
    assert may_be_lost(created(), *events, UncleanElectionAsked(log=LOG), unclean)
    allowed = created(unclean_leader_election_enable="true")
    assert may_be_lost(allowed, *events, unclean)
    alive = committed(BrokerUnfenced(broker_id=1))
    assert not may_be_lost(alive, allowed, *events, unclean)
    fenced = committed(BrokerFenced(broker_id=1, reason="silent"))
    assert may_be_lost(alive, allowed, *events, fenced, unclean)
    failed = ReplicasOffline(broker=1, logs=(LOG,))
    assert may_be_lost(alive, allowed, *events, failed, unclean)
    for mended in (ReplicasOffline(broker=1, logs=()), committed(registered(1), alive.records[0])):
        assert not may_be_lost(alive, allowed, *events, failed, mended, unclean)
    assert elections.check(History.of(allowed, *events, unclean), FinalState()) == []
    assert elections.check(History.of(created(), *events, unclean), FinalState()) == [
        f"{NAME}: broker 2 was elected after 0 ms, [1] were not waited for",
        f"{NAME}: broker 2 was elected, which never held or has lost what was acknowledged",
    ]


def test_who_copies_a_log_anew_is_not_waited_for() -> None:
    told = Told()
    begun = [created(min_isr=2), committed(told.now(2, (1, 2)))]
    cut = [
        LogLost(broker=1, log=LOG, whole=False),
        ReplicasOffline(broker=1, logs=(LOG,)),
    ]
    alone = committed(told.now(2, (2,)))
    anew = ReplicasOffline(broker=1, logs=())
    renewed = replace(told.state, leader_epoch=told.state.leader_epoch + 1)
    led_again = PartitionChanged(topic="t", partition=0, state=renewed)
    again = committed(registered(2), led_again)
    assert elections.check(History.of(*begun, *cut, alone, anew, again), FinalState()) == []
    assert elections.check(History.of(*begun, alone, anew, again), FinalState()) == [
        f"{NAME}: broker 2 was elected after 0 ms, [1] were not waited for"
    ]


def test_what_a_leader_acknowledged_after_an_unclean_election_goes_until_it_hears_of_it() -> None:
    told = Told()
    allowed = created(unclean_leader_election_enable="true")
    unclean = [committed(told.now(1, (1,))), committed(told.now(2, (2,)))]
    for acknowledged_at, back, lost in ((4, False, True), (4, True, True), (5, True, False)):
        events = [allowed, *unclean, *([ImageTaken(broker=1, version=0)] if back else [])]
        found = promises_of(History.of(*events)).may_be_lost(LOG, acknowledged_at - 1)
        assert found == lost, (acknowledged_at, back)


def test_deletions_may_be_forgotten_by_an_unclean_election() -> None:
    told = Told()
    alone, out = committed(told.now(1, (1,))), committed(told.now(NO_NODE, (), (1,)))
    unclean, back = committed(told.now(2, (2,))), ImageTaken(broker=1, version=0)
    deletion = [
        DeleteRecordsInvoked(op=1, log=LOG, before=2),
        RecordsDeleted(op=1, low_watermark=2),
    ]
    read = Fetched(
        asked=7,
        reader="r",
        log=LOG,
        offset=0,
        leader_epoch=2,
        high_watermark=5,
        log_start=0,
        records=((0, b"a"),),
    )

    def found(begun: Committed, *events: Event) -> list[str]:
        return read_bounds.check(History.of(begun, alone, *events, read), FinalState())

    allowed = created(unclean_leader_election_enable="true")
    assert found(allowed, *deletion, out, unclean, back) == []
    assert found(created(), *deletion, out, unclean, back) != []
    assert found(allowed, out, unclean, back, *deletion) != []


def test_a_replaced_leader_may_tell_an_end_that_an_unclean_election_has_undone() -> None:
    told = Told()
    events = [
        created(unclean_leader_election_enable="true"),
        committed(BrokerUnfenced(broker_id=1)),
        committed(told.now(1, (1,))),
        committed(told.now(NO_NODE, (), (1,)), BrokerFenced(broker_id=1, reason="silent")),
        committed(told.now(2, (2,))),
        ImageTaken(broker=1, version=0),
    ]

    def found(epoch: int) -> list[str]:
        late = EndListed(asked=6, log=LOG, offset=9, leader_epoch=epoch)
        now = EndListed(asked=7, log=LOG, offset=0, leader_epoch=2)
        return monotone.check(History.of(*events, late, now), FinalState())

    assert found(epoch=0) == []
    assert found(epoch=2) == [f"{NAME}: the latest offset is 0 after the latest offset was 9"]


def test_an_end_may_be_that_of_an_earlier_topic_of_the_name_until_records_are_there() -> None:
    again = TopicCreated(topic="t", topic_id=UUID(int=2), partitions=(STATE,))
    log = LogId("t", UUID(int=2), 0)
    read = Fetched(
        asked=4, reader="r", log=log, offset=0, high_watermark=0, log_start=0, records=()
    )

    def found(*events: Event) -> list[str]:
        gone = committed(TopicDeleted(topic="t", topic_id=TOPIC_ID))
        begun = (created(), gone, committed(again))
        ends = [EndListed(asked=4, log=log, offset=offset, leader_epoch=0) for offset in (5, 0)]
        late = replace(ends[1], asked=3 + len(events) + 1)
        return monotone.check(History.of(*begun, *events, ends[0], late), FinalState())

    assert found() == []
    assert found(read) == [f"{log}: the latest offset is 0 after the latest offset was 5"]
