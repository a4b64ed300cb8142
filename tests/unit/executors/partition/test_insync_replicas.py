"""Who is in sync: lagging, joining, proposals and their answers, and what bounds the HW."""

from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import (
    CompleteDelayedProduces,
    IsrProposal,
    RequiredOffset,
    SubmitAlterPartition,
)
from sparklog.executors.partition.isr import RETRY_MS
from tests.unit.executors.partition.partition_maker import NOW, batch, led
from tests.unit.executors.partition.replica_trio import LAG_MS, Trio


def elected(**settings: object) -> Trio:
    trio = Trio(**settings)
    trio.elect(1)
    return trio


def proposed(trio: Trio, *isr: int) -> IsrProposal:
    """The proposal of these replicas by leader 1, as all but they themselves have fetched."""
    return IsrProposal(
        leader_epoch=trio.state.leader_epoch,
        partition_epoch=trio.state.partition_epoch,
        isr=tuple((node_id, trio.broker_epochs[node_id]) for node_id in isr),
    )


def proposals_after(trio: Trio, after_ms: int) -> list[IsrProposal]:
    trio.now_ms += after_ms
    trio.carry_out(trio.leader, trio.leader.maybe_shrink_or_expand_isr(trio.now_ms))
    return trio.proposed


def test_who_has_not_fetched_all_for_too_long_is_to_leave() -> None:
    trio = elected()
    trio.append(b"a")
    trio.fetch(2, 3)
    trio.fetch(2)
    assert proposals_after(trio, LAG_MS) == []
    trio.fetch(2)
    assert proposals_after(trio, 1) == [proposed(trio, 1, 2)]
    assert trio[1].high_watermark == 0
    assert proposals_after(trio, 10 * LAG_MS) == [proposed(trio, 1, 2)], "one at a time"
    trio.answer()
    assert trio[1].high_watermark == 0, "the image may tell of other settings before"
    trio.tell(1)
    assert (trio.state.isr, trio[1].high_watermark) == ((1, 2), 1)
    trio.check()


def test_who_is_always_one_fetch_behind_stays() -> None:
    trio = elected()
    for _ in range(10):
        trio.append(b"a")
        trio.fetch(2, 3)
        assert proposals_after(trio, LAG_MS // 2) == []
    assert trio[2].log.log_end_offset == 10
    assert trio[1].high_watermark == 9


def test_who_still_has_deleted_records_does_not_join() -> None:
    """If it led, the records would be there again."""
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.append(b"a")
    trio.append(b"b")
    leader = trio[1]
    leader.delete_records(1)
    for log_start, proposal in ((0, None), (1, proposed(trio, 1, 2))):
        leader.update_follower_fetch_state(
            2, 2, log_start, broker_epoch=trio.broker_epochs[2], now_ms=trio.now_ms
        )
        leader.maybe_shrink_or_expand_isr(trio.now_ms)
        assert leader.isr_proposal() == proposal


def test_who_falls_further_and_further_behind_leaves() -> None:
    trio = elected()
    trio.append(b"a")
    trio.append(b"b")
    for _ in range(4):
        trio.fetch(3, max_bytes=1)
        trio.append(b"c")
        trio.append(b"c")
        trio.catch_up(2)
        trio.now_ms += LAG_MS // 2
    assert proposals_after(trio, 0) == [proposed(trio, 1, 2)]


def test_an_idle_partition_loses_nobody() -> None:
    trio = elected()
    trio.append(b"a")
    trio.catch_up(2, 3)
    for _ in range(5):
        assert proposals_after(trio, LAG_MS) == []
    trio.append(b"b")
    assert proposals_after(trio, LAG_MS) == []
    assert proposals_after(trio, 1) == [
        IsrProposal(leader_epoch=0, partition_epoch=0, isr=((1, trio.broker_epochs[1]),))
    ]


def test_who_never_fetched_has_as_long_as_everybody_else() -> None:
    trio = elected()
    trio.append(b"a")
    assert proposals_after(trio, LAG_MS) == []
    trio.catch_up(2)
    assert proposals_after(trio, 1) == [proposed(trio, 1, 2)]


def test_who_leaves_counts_until_the_controller_says_so() -> None:
    trio = elected()
    trio.append(b"a", acks=-1)
    trio.catch_up(2)
    trio.now_ms += LAG_MS + 1
    trio.catch_up(2)
    proposals_after(trio, 0)
    assert trio[1].high_watermark == 0
    assert trio.answer() == []
    effects = trio[1].make_leader_or_follower(trio.state, trio.now_ms)
    assert (trio.state.isr, trio[1].high_watermark) == ((1, 2), 1)
    assert CompleteDelayedProduces(topic_partition=trio[1].topic_partition) in effects


def test_who_has_all_that_is_committed_joins_and_counts_at_once() -> None:
    trio = elected()
    trio.elect(1, isr=[1, 2])
    trio.append(b"a")
    trio.catch_up(2)
    assert trio[1].high_watermark == 1
    trio.fetch(3)
    assert trio.proposed == []
    trio.fetch(3)
    assert trio.proposed == [proposed(trio, 1, 2, 3)]
    trio.append(b"b")
    trio.now_ms += 2 * LAG_MS
    trio.catch_up(2)
    # It is not yet in the ISR, and lags; but it may be there already, who knows.
    assert trio[1].high_watermark == 1
    trio.answer(ErrorCode.INELIGIBLE_REPLICA)
    assert trio[1].high_watermark == 2


def test_who_is_about_to_join_is_waited_for() -> None:
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.append(b"a")
    trio.fetch(2)
    trio.append(b"b")
    # It had all that there was when it fetched last, so it will be there in a moment.
    trio.fetch(2)
    assert trio[1].high_watermark == 2
    trio.append(b"c")
    assert trio[1].high_watermark == 2
    trio.fetch(2)
    trio.fetch(2)
    assert trio.proposed == [proposed(trio, 1, 2)]


def waiting_for_a_third() -> tuple[Trio, RequiredOffset]:
    """Replica 3 was about to join and fetches no more; 2 has what an answer waits for."""
    trio = elected(min_insync_replicas=2)
    trio.elect(1, isr=[1, 2])
    trio.append(b"a")
    trio.catch_up(2, 3)
    trio.answer(ErrorCode.INELIGIBLE_REPLICA)
    parked = trio[1].append_as_leader(batch(b"b"), acks=-1, now_ms=NOW)
    trio.catch_up(2)
    assert parked.required_offset is not None
    assert not trio[1].has_reached(parked.required_offset)
    return trio, parked.required_offset


def test_who_was_about_to_join_and_died_is_waited_for_no_more() -> None:
    trio, required = waiting_for_a_third()
    del trio.broker_epochs[3]
    completes_produces = CompleteDelayedProduces(topic_partition=trio[1].topic_partition)
    assert completes_produces in trio[1].maybe_shrink_or_expand_isr(trio.now_ms + 1000)
    assert trio[1].has_reached(required)


def test_who_was_about_to_join_and_hangs_is_waited_for_as_long_as_any_lag() -> None:
    trio, required = waiting_for_a_third()
    for after_ms in range(1000, LAG_MS + 1, 1000):
        trio.carry_out(trio[1], trio[1].maybe_shrink_or_expand_isr(after_ms))
        while trio.proposed:
            trio.now_ms = after_ms
            trio.answer(ErrorCode.INELIGIBLE_REPLICA)
        assert not trio[1].has_reached(required)
    trio[1].maybe_shrink_or_expand_isr(LAG_MS + 1000)
    assert trio[1].has_reached(required)
    trio.check()


def test_a_lone_leader_waits_for_nobody() -> None:
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.append(b"a", acks=-1)
    assert trio[1].high_watermark == 1


def test_who_joins_has_what_was_there_when_this_leader_began() -> None:
    trio = elected()
    trio.append(b"a")
    trio.append(b"b")
    trio.catch_up(2)
    trio.elect(2, isr=[2])
    assert trio[2].high_watermark == 2
    # Its high watermark may be behind what the leader before it has answered to clients.
    trio.elect(2, isr=[2, 1])
    assert trio[2].epoch_start_offset == 2
    trio.fetch(3, max_bytes=1)
    trio.fetch(3, max_bytes=1)
    assert trio.proposed == []
    trio.fetch(3)
    assert trio.proposed[0].isr[-1] == (3, trio.broker_epochs[3])


def test_a_broker_that_is_not_alive_cannot_join() -> None:
    trio = Trio()
    trio.elect(1, isr=[1, 2])
    epoch = trio.broker_epochs.pop(3)
    trio.append(b"a")
    trio.catch_up(2)
    for _ in range(3):
        position = trio[3].fetch_position()
        assert position is not None
        read = trio[1].read(position.offset, 100, replica_id=3)
        trio[1].update_follower_fetch_state(
            3, position.offset, 0, broker_epoch=epoch, now_ms=trio.now_ms
        )
        trio.take(3, position, read)
    assert trio.proposed == []
    trio.broker_epochs[3] = epoch + 1
    assert proposals_after(trio, 0) == [], "who fetched was its former process"
    trio.fetch(3)
    assert trio.proposed == [proposed(trio, 1, 2, 3)]


def test_a_former_process_is_not_heard() -> None:
    trio = elected()
    trio.append(b"a")
    trio.catch_up(2, 3)
    old = trio.broker_epochs[2]
    trio.broker_epochs[2] = old + 5
    # The new process has lost its log.
    trio[1].update_follower_fetch_state(2, 0, 0, broker_epoch=old + 5, now_ms=0)
    trio.append(b"b")
    trio.catch_up(3)
    trio[1].update_follower_fetch_state(2, 2, 0, broker_epoch=old, now_ms=0)
    assert trio[1].high_watermark == 1


def test_a_broker_that_comes_alive_joins_without_another_fetch() -> None:
    trio = Trio()
    trio.elect(1, isr=[1, 2])
    epoch = trio.broker_epochs[3]
    trio.append(b"a")
    trio.catch_up(2)
    for offset in (0, 1):
        del trio.broker_epochs[3]
        trio[1].update_follower_fetch_state(3, offset, 0, broker_epoch=epoch, now_ms=0)
        trio.broker_epochs[3] = epoch
    assert proposals_after(trio, 0) == [proposed(trio, 1, 2, 3)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_leader_that_is_behind_waits_for_the_image(error: ErrorCode) -> None:
    trio = Trio()
    trio.elect(1, isr=[1, 2])
    trio.append(b"a")
    trio.catch_up(2)
    trio.catch_up(3)
    assert len(trio.proposed) == 1
    trio.answer(error)
    trio.append(b"b")
    trio.now_ms += 2 * LAG_MS
    trio.catch_up(2)
    assert proposals_after(trio, 0) == []
    assert trio[1].isr_proposal() is None
    assert trio[1].high_watermark == 1, "3 may be in the ISR"
    trio.change_isr(1, 2)
    assert trio[1].high_watermark == 2


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refused_proposal_rests_for_a_while(error: ErrorCode) -> None:
    trio = Trio()
    trio.elect(1, isr=[1, 2])
    trio.catch_up(2, 3)
    assert len(trio.proposed) == 1
    assert trio.answer(error) == []
    trio.fetch(3)
    assert (trio.proposed, trio[1].isr_proposal()) == ([], None)
    trio.now_ms += RETRY_MS
    trio.fetch(3)
    assert trio.proposed == [proposed(trio, 1, 2, 3)]


def test_without_an_answer_the_same_is_asked_again() -> None:
    trio = Trio()
    trio.elect(1, isr=[1, 2])
    trio.catch_up(2, 3)
    (proposal,) = trio.proposed
    trio[1].isr_answered(proposal, ErrorCode.REQUEST_TIMED_OUT, None, trio.now_ms)
    assert trio[1].isr_proposal() == proposal


def test_the_image_answers_a_proposal_and_a_late_answer_changes_nothing() -> None:
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.catch_up(2)
    (first,) = trio.proposed
    assert first == proposed(trio, 1, 2)
    trio.change_isr(1, 2)
    assert trio[1].isr_proposal() is None
    trio.catch_up(3)
    second = trio[1].isr_proposal()
    assert second == proposed(trio, 1, 2, 3)
    # The first was sent twice, and the second time it was too late.
    late = trio[1].isr_answered(first, ErrorCode.INVALID_UPDATE_VERSION, None, trio.now_ms)
    assert (late, trio[1].isr_proposal()) == ([], second)
    stale = replace(trio.state, isr=(1,), partition_epoch=0)
    trio[1].isr_answered(first, ErrorCode.NONE, stale, trio.now_ms)
    assert trio[1].state == trio.state


def test_what_else_there_is_to_change_is_asked_for_after_an_answer() -> None:
    trio = Trio()
    trio.elect(1, isr=[1])
    trio.catch_up(2, 3)
    assert [len(proposal.isr) for proposal in trio.proposed] == [2]
    effects = trio.answer()
    assert SubmitAlterPartition(topic_partition=trio[1].topic_partition) in effects
    trio.answer()
    assert (trio.state.isr, trio.proposed) == ((1, 2, 3), [])


def test_the_high_watermark_stands_still_below_the_minimum() -> None:
    trio = elected(min_insync_replicas=2)
    trio.append(b"a", acks=-1)
    trio.catch_up(2, 3)
    assert trio[1].high_watermark == 1
    parked = trio[1].append_as_leader(batch(b"b"), acks=-1, now_ms=NOW)
    assert parked.required_offset is not None
    assert not trio[1].has_reached(parked.required_offset)
    del trio.broker_epochs[3]
    trio.change_isr(1)
    trio.catch_up(2)
    assert trio[1].high_watermark == 1
    with pytest.raises(KafkaError) as refused:
        trio.append(b"c", acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as after:
        trio[1].has_reached(parked.required_offset)
    assert after.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    trio.append(b"d", acks=1)
    trio.catch_up(2)
    assert trio.proposed[-1].isr[1][0] == 2
    # Those who are to join count for the bound, and not for the minimum.
    assert trio[1].high_watermark == 1
    trio.answer()
    assert trio[1].high_watermark == 3
    trio.check()


def test_a_shrunken_isr_wakes_who_waits_for_all() -> None:
    trio = elected(min_insync_replicas=2)
    completes_produces = CompleteDelayedProduces(topic_partition=trio[1].topic_partition)
    state = replace(trio.state, isr=(1,), partition_epoch=1)
    assert trio[1].make_leader_or_follower(state, 0) == [completes_produces]
    assert trio[1].make_leader_or_follower(replace(state, partition_epoch=2), 0) == []


def test_more_replicas_wanted_by_settings_count_at_once() -> None:
    trio = elected()
    trio.elect(1, isr=[1, 2])
    trio[1].configure(replace(trio[1].config, min_insync_replicas=3), NOW)
    with pytest.raises(KafkaError) as refused:
        trio.append(b"a", acks=-1)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    trio[1].configure(replace(trio[1].config, min_insync_replicas=1), NOW)
    trio.append(b"a", acks=-1)


def test_replicas_that_are_added_count_when_they_have_joined() -> None:
    trio = elected()
    trio.append(b"a")
    trio.catch_up(2, 3)
    state = led(
        replicas=(1, 2, 3, 4), isr=(1, 2, 3), adding=(4,), leader_epoch=0, partition_epoch=1
    )
    trio[1].make_leader_or_follower(state, trio.now_ms)
    trio.append(b"b")
    trio.catch_up(2, 3)
    assert trio[1].high_watermark == 2
    trio[1].make_leader_or_follower(
        replace(state, replicas=(1, 4), isr=(1, 4), partition_epoch=2), trio.now_ms
    )
    trio.append(b"c")
    assert trio[1].high_watermark == 2
    trio[1].update_follower_fetch_state(4, 3, 0, broker_epoch=1, now_ms=trio.now_ms)
    assert trio[1].high_watermark == 3


def test_while_a_lone_replica_moves_it_goes_on_acknowledging() -> None:
    """The new one does not count before it is in sync, as for the controller."""
    trio = elected(min_insync_replicas=2)
    trio[1].make_leader_or_follower(led(partition_epoch=1), trio.now_ms)
    trio.append(b"a", acks=-1)
    moving = led(replicas=(2, 1), adding=(2,), removing=(1,), partition_epoch=2)
    assert trio[1].make_leader_or_follower(moving, trio.now_ms) == []
    trio.append(b"b", acks=-1)
    assert trio[1].high_watermark == 2


def test_who_was_taken_out_is_not_waited_for_before_it_fetches_again() -> None:
    """Its log may have failed: on an idle partition it looks caught up all the same."""
    trio = elected()
    trio.append(b"a")
    trio.catch_up(2, 3)
    trio[1].make_leader_or_follower(replace(trio.state, isr=(1, 2), partition_epoch=1), trio.now_ms)
    trio.append(b"b")
    trio.fetch(2)
    trio.fetch(2)
    assert trio[1].high_watermark == 2
    trio.append(b"c")
    trio.fetch(3)  # it is back
    trio.fetch(2)
    trio.fetch(2)
    assert trio[1].high_watermark == 2
