"""Consistent cuts: what they wait for, what they hold back, and for how long."""

import pytest

from sparklog.driver.transactions import (
    CUT_WAIT_MS_MAX,
    ConsistentCuts,
    CutProgress,
    Now,
    ProducerIdentity,
    TransactionState,
)
from sparklog.driver.transactions.consistent_cuts import CUTS_MAX
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.driver.transactions.shard_rig import T0, T1, TIMEOUT_MS, U0, V1, V2, ShardRig

WAIT_MS = 2_000
NOTHING = CutProgress()
READY = CutProgress(ready=(0,))


class CutRig(ShardRig):
    """A shard, and cuts over it."""

    def begin(self, *partitions: TopicPartition, cut_id: int = 0) -> CutProgress:
        self.cuts.begin(cut_id, frozenset(partitions), WAIT_MS)
        return self.advance()

    def advance(self) -> CutProgress:
        return self.cuts.advance(self.now)

    def end_cut(self, cut_id: int = 0) -> None:
        self.cuts.end(cut_id, self.now)
        self.release()

    def open(self, name: str, *partitions: TopicPartition, version: int = V1) -> ProducerIdentity:
        """A transaction that has joined partitions, later than all others."""
        self.now_ms += 1
        producer = self.started(name)
        self.add(producer, *partitions, transactional_id=name, version=version)
        self.append_all()
        return producer

    def commit(self, name: str, producer: ProducerIdentity, version: int = V1) -> int:
        return self.end(producer, transactional_id=name, version=version)

    def state(self, name: str) -> TransactionState:
        return self.transaction(name).state


# -- draining


def test_without_transactions_a_cut_is_ready_at_once() -> None:
    rig = CutRig()
    assert rig.begin(T0, T1) == READY
    assert rig.advance() == NOTHING
    rig.end_cut()
    assert rig.advance() == NOTHING


def test_open_transactions_alone_are_not_waited_for() -> None:
    rig = CutRig()
    rig.open("x", T0)
    rig.open("y", T0, T1)
    assert rig.begin(T0, T1) == READY


def test_a_cut_waits_until_the_markers_of_a_commit_are_written() -> None:
    rig = CutRig()
    producer = rig.open("x", T0, T1, U0)
    rig.commit("x", producer)
    assert rig.begin(T0, T1) == NOTHING  # the record of the decision is not durable
    rig.append_all()
    assert rig.advance() == NOTHING
    (markers,) = rig.markers
    rig.report(markers, T0)
    assert rig.advance() == NOTHING
    rig.report(markers, T1)
    assert rig.advance() == READY  # the marker of u-0 does not matter


def test_a_cut_of_other_partitions_does_not_wait() -> None:
    rig = CutRig()
    rig.commit("x", rig.open("x", T0))
    assert rig.begin(T1, U0) == READY


def test_a_cut_waits_for_an_older_transaction_than_one_that_was_committed() -> None:
    rig = CutRig()
    old = rig.open("old", T0)
    rig.commit("x", rig.open("x", T0, T1))
    rig.settle()
    new = rig.open("new", T0, T1)
    assert rig.begin(T0, T1) == NOTHING
    rig.commit("old", old)
    rig.append_all()
    assert rig.advance() == NOTHING
    rig.write_markers()
    assert rig.advance() == NOTHING  # new joined before old was committed
    rig.end(new, transactional_id="new", committed=False)
    rig.settle()
    assert rig.advance() == READY


def test_the_marker_of_an_abort_is_waited_for_where_others_were_committed_meanwhile() -> None:
    rig = CutRig()
    old = rig.open("old", T0)
    rig.commit("x", rig.open("x", T0, T1))
    rig.settle()
    rig.end(old, transactional_id="old", committed=False)
    rig.append_all()
    assert rig.begin(T0, T1) == NOTHING
    rig.write_markers()
    assert rig.advance() == READY


def test_a_coordinator_that_has_loaded_waits_for_what_was_open() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    rig.load()
    assert rig.begin(T0) == NOTHING
    rig.commit("x", producer)
    rig.settle()
    assert rig.advance() == READY


def test_a_coordinator_that_has_loaded_waits_for_the_markers_of_what_was_decided() -> None:
    rig = CutRig()
    rig.commit("x", rig.open("x", T0, T1))
    rig.append_all()
    rig.load()
    assert rig.begin(T0, T1) == NOTHING
    rig.write_markers()
    assert rig.advance() == READY


def test_a_shard_that_is_unloaded_leaves_its_partitions() -> None:
    rig = CutRig()
    rig.open("y", T0)
    rig.commit("x", rig.open("x", T0, T1))
    assert rig.begin(T0, T1) == NOTHING
    rig.shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
    assert rig.advance() == READY


def test_a_transaction_that_is_older_than_the_cut_may_become_refuses_it_at_once() -> None:
    rig = CutRig()
    rig.open("old", T0)
    rig.commit("x", rig.open("x", T0, T1))
    rig.settle()
    rig.now_ms += WAIT_MS
    progress = rig.begin(T0, T1)
    (refusal,) = progress.refused.values()
    assert (progress.ready, refusal.code) == ((), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert refusal.message is not None
    assert refusal.message.startswith("transaction 'old' was open in t-0 when another one was")
    rig.open("z", T0)  # nothing is held back
    assert rig.state("z") == TransactionState.ONGOING


def test_what_a_late_cut_waits_for() -> None:
    rig = CutRig()
    rig.commit("x", rig.open("x", T0))
    rig.begin(T0)
    rig.begin(T0, cut_id=1)
    assert "'x' was open in t-0" in rig.cuts.reason(0)
    assert rig.cuts.reason(1) == "other consistent cuts of these partitions come first"
    rig.settle()
    assert rig.advance() == READY
    assert rig.cuts.reason(0) == "the leaders have not told their last stable offsets in time"


# -- what is held back


@pytest.mark.parametrize("version", [V1, V2])
def test_a_commit_waits_while_offsets_are_collected_and_is_decided_afterwards(version: int) -> None:
    rig = CutRig()
    producer = rig.open("x", T0, U0, version=version)
    assert rig.begin(T0, T1) == READY
    committing = rig.commit("x", producer, version)
    assert (rig.is_waiting(committing), rig.appends) == (True, [])
    rig.pass_time(WAIT_MS)  # longer than other requests wait
    assert rig.is_waiting(committing)
    rig.end_cut()
    rig.append_all()
    assert rig.result(committing) == producer if version == V1 else (100, producer.epoch + 1)
    assert rig.state("x") == TransactionState.PREPARE_COMMIT


def test_commits_elsewhere_and_aborts_are_decided_while_offsets_are_collected() -> None:
    rig = CutRig()
    elsewhere, aborted = rig.open("x", U0), rig.open("y", T0)
    timed_out = rig.open("z", T0)
    assert rig.begin(T0, T1) == READY
    rig.commit("x", elsewhere)
    rig.end(aborted, transactional_id="y", committed=False)
    rig.append_all()
    assert rig.state("x") == TransactionState.PREPARE_COMMIT
    assert rig.state("y") == TransactionState.PREPARE_ABORT
    rig.init("z")  # another producer with this id fences the first one
    rig.append_all()
    assert rig.state("z") == TransactionState.PREPARE_ABORT
    assert rig.transaction("z").producer_epoch == timed_out.epoch + 1


def test_a_transaction_times_out_while_its_commit_is_held_back() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    rig.pass_time(TIMEOUT_MS - rig.config.timeout_check_ms // 2)
    rig.now_ms += 1_000
    assert rig.begin(T0) == READY
    committing = rig.commit("x", producer)
    rig.pass_time(rig.config.timeout_check_ms - 1_000)
    rig.settle()
    assert rig.state("x") == TransactionState.COMPLETE_ABORT
    rig.end_cut()
    assert rig.refusal(committing) == ErrorCode.PRODUCER_FENCED


def test_transactions_begin_while_offsets_are_collected() -> None:
    rig = CutRig()
    assert rig.begin(T0) == READY
    producer = rig.open("x", T0)
    assert rig.state("x") == TransactionState.ONGOING
    assert rig.is_waiting(rig.commit("x", producer))


def test_while_a_cut_drains_other_transactions_do_not_join_its_partitions() -> None:
    rig = CutRig()
    draining = rig.open("x", T0)
    outside = rig.open("y", U0)
    rig.commit("z", rig.open("z", T0, T1))
    rig.settle()
    assert rig.begin(T0, T1) == NOTHING
    joins = rig.add(outside, T1, transactional_id="y")
    begins = rig.add(rig.started("new"), T0, transactional_id="new")
    assert [rig.is_waiting(each) for each in (joins, begins)] == [True, True]
    rig.open("elsewhere", U0)
    # What the cut waits for goes on.
    adding = rig.add(draining, T1, transactional_id="x")
    rig.append_all()
    assert rig.result(adding) is None
    rig.commit("x", draining)
    rig.settle()
    assert rig.advance() == READY
    rig.end_cut()
    rig.append_all()
    assert [rig.result(each) for each in (joins, begins)] == [None, None]


def test_cuts_do_not_make_transactions_wait_that_another_cut_waits_for() -> None:
    rig = CutRig()
    producers = {name: rig.open(name, tp) for name, tp in (("x", T0), ("y", T1))}
    for name, tp in (("a", T0), ("b", T1)):
        rig.commit(name, rig.open(name, tp))
    rig.settle()
    assert rig.begin(T0) == NOTHING
    assert rig.begin(T1, cut_id=1) == NOTHING
    crossed = [
        rig.add(producers["x"], T1, transactional_id="x"),
        rig.add(producers["y"], T0, transactional_id="y"),
    ]
    rig.append_all()
    assert [rig.result(each) for each in crossed] == [None, None]


def test_the_requests_of_one_id_keep_their_order() -> None:
    """An old client repeats its epoch, so an end must not overtake the partitions before it."""
    rig = CutRig()
    rig.open("old", T0)
    rig.commit("z", rig.open("z", T0))
    rig.settle()
    producer = rig.started("x")
    assert rig.begin(T0) == NOTHING
    adding = rig.add(producer, T0, transactional_id="x")
    aborting = rig.end(producer, transactional_id="x", committed=False)
    assert [rig.is_waiting(each) for each in (adding, aborting)] == [True, True]
    rig.end_cut()
    rig.append_all()
    assert rig.result(adding) is None
    assert rig.state("x") == TransactionState.PREPARE_ABORT


def test_a_request_that_two_cuts_hold_back_waits_for_both() -> None:
    rig = CutRig()
    producer = rig.open("x", T0, T1)
    assert rig.begin(T0) == READY
    assert rig.begin(T1, cut_id=1) == CutProgress(ready=(1,))
    committing = rig.commit("x", producer)
    rig.end_cut()
    assert rig.is_waiting(committing)
    rig.end_cut(1)
    rig.append_all()
    assert rig.result(committing) == producer


def test_a_held_request_of_a_client_that_has_gone_is_not_decided() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    assert rig.begin(T0) == READY
    rig.shard.withdraw(rig.commit("x", producer), "x")
    rig.end_cut()
    assert (rig.appends, rig.state("x")) == ([], TransactionState.ONGOING)


def test_a_shard_that_is_unloaded_refuses_what_is_held_back() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    assert rig.begin(T0) == READY
    committing = rig.commit("x", producer)
    error = KafkaError(ErrorCode.NOT_COORDINATOR, "moved")
    (refused,) = rig.shard.unload(error)
    assert (refused.request_id, refused.result) == (committing, error)


def test_the_request_of_a_broker_is_not_held_back_for_long() -> None:
    """It asks for the transactions of many producers at once."""
    rig = CutRig()
    rig.open("old", T0)
    rig.commit("z", rig.open("z", T0))
    rig.settle()
    producer = rig.started("x")
    assert rig.begin(T0) == NOTHING
    adding = rig.add(producer, T0, transactional_id="x", version=V2)
    assert rig.is_waiting(adding)
    rig.pass_time(rig.config.broker_wait_ms)
    assert rig.refusal(adding) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_request_is_not_held_for_ever() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    assert rig.begin(T0) == READY
    committing = rig.commit("x", producer)
    rig.pass_time(CUT_WAIT_MS_MAX)
    assert rig.refusal(committing) == ErrorCode.CONCURRENT_TRANSACTIONS


# -- turns


def test_cuts_of_the_same_partitions_take_turns_and_rest_in_between() -> None:
    rig = CutRig()
    producer = rig.open("x", T0)
    assert rig.begin(T0, T1) == READY
    assert rig.begin(T1, U0, cut_id=1) == NOTHING
    assert rig.begin(U0, cut_id=2) == NOTHING  # it came after the one that waits
    committing = rig.commit("x", producer)
    rig.now_ms += 300
    rig.end_cut()
    rig.append_all()
    assert rig.result(committing) == producer
    assert rig.advance() == NOTHING
    assert rig.cuts.next_turn_ms() == rig.now_ms + 301
    rig.now_ms += 301
    assert rig.advance() == CutProgress(ready=(1,))
    assert rig.cuts.next_turn_ms() is None
    rig.end_cut(1)
    rig.now_ms += 1
    assert rig.advance() == CutProgress(ready=(2,))


def test_a_cut_that_waited_in_vain_for_its_turn_leaves_no_rest() -> None:
    rig = CutRig()
    assert rig.begin(T0) == READY
    assert rig.begin(T0, T1, cut_id=1) == NOTHING
    rig.now_ms += WAIT_MS
    rig.end_cut(1)
    assert rig.begin(T1, cut_id=2) == CutProgress(ready=(2,))


def test_a_bounded_number_of_cuts_is_taken_at_the_same_time() -> None:
    cuts = ConsistentCuts()
    for number in range(CUTS_MAX):
        cuts.begin(number, frozenset({T0}), WAIT_MS)
    with pytest.raises(KafkaError) as refused:
        cuts.begin(CUTS_MAX, frozenset({T1}), WAIT_MS)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    cuts.end(5, Now(0, 0))
    cuts.begin(CUTS_MAX, frozenset({T1}), WAIT_MS)
