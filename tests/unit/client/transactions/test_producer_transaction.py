"""Transactions of a producer against real servers: what is sent, and what errors become of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.groups import GroupIdentity, OffsetAndMetadata
from sparklog.client.producer import Producer
from sparklog.client.producer_options import ProducerOptions
from sparklog.errors import ClosedError, ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.client.small_cluster import run_cluster
from tests.unit.client.transactions.transaction_cluster import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    OldTransactionCluster,
    TransactionCluster,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = GroupIdentity(group_id="g", member_id="m", generation=3, group_instance_id="i")
KINDS = pytest.mark.parametrize("kind", [TransactionCluster, OldTransactionCluster])
Test = Callable[[Any, Producer], Awaitable[None]]


def run(test: Test, kind: type[TransactionCluster] = TransactionCluster, **options: Any) -> None:
    """Run a test with an initialized producer and a topic of two partitions."""

    async def main(cluster: TransactionCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        chosen = {"linger_ms": 0, "delivery_timeout_s": 20.0, **options}
        async with Producer(client, ProducerOptions(transactional_id="x", **chosen)) as producer:
            await producer.init_transactions()
            await test(cluster, producer)

    run_cluster(main, kind=kind)


async def send_both(producer: Producer) -> None:
    await producer.send("t", b"a", partition=0)
    await producer.send("t", b"b", partition=1)


async def refusal_of(call: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await call
    return caught.value


def test_version_2_adds_implicitly_and_takes_over_the_new_epoch() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                await send_both(producer)
                await producer.send_offsets_to_transaction({T0: 5}, GROUP)
        assert cluster.ended == [(True, 0), (True, 1)]
        assert cluster.added == cluster.asked(ADD_OFFSETS) == []
        for tp in (T0, T1):
            found = [(b.producer_epoch, b.base_sequence) for b in cluster.batches(tp)]
            assert found == [(0, 0), (1, 0)]
            assert all(batch.is_transactional for batch in cluster.batches(tp))
        assert cluster.versions(PRODUCE) == {13}
        assert cluster.versions(END_TXN) == cluster.versions(TXN_OFFSET_COMMIT) == {5}

    run(test)


def test_an_older_version_adds_first_and_keeps_its_epoch() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                await send_both(producer)
                await producer.flush()
                await producer.send("t", b"c", partition=0)
                await producer.send_offsets_to_transaction({T0: 5}, GROUP)
                await producer.send_offsets_to_transaction({T0: 6}, GROUP)
        assert cluster.ended == [(True, 0), (True, 0)]
        assert [tp for added in cluster.added for tp in sorted(added)] == [T0, T1] * 2
        assert len(cluster.asked(ADD_OFFSETS)) == 2
        assert [(b.producer_epoch, b.base_sequence) for b in cluster.batches(T0)] == [
            (0, sequence) for sequence in range(4)
        ]
        assert (cluster.versions(PRODUCE), cluster.versions(ADD_PARTITIONS)) == ({11}, {3})
        assert cluster.versions(END_TXN) == cluster.versions(TXN_OFFSET_COMMIT) == {4}

    run(test, OldTransactionCluster)


def test_partitions_that_wait_share_one_request() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.add_topic("wide", leaders=(1, 2) * 20)
        cluster.refuse(ADD_PARTITIONS, ErrorCode.CONCURRENT_TRANSACTIONS)
        async with producer.transaction():
            for number in range(40):
                await producer.send("wide", b"x", partition=number)
        assert sorted(tp.partition for added in cluster.added for tp in added) == [*range(40)]
        assert len(cluster.added) <= 3

    run(test, OldTransactionCluster)


@KINDS
def test_offsets_carry_the_member(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({}, GROUP)
            offsets = {T1: OffsetAndMetadata(offset=9, metadata="words", leader_epoch=4), T0: 1}
            await producer.send_offsets_to_transaction(offsets, GROUP)
        (request,) = cluster.offset_commits
        assert (request.transactional_id, request.producer_id) == ("x", 77)
        identity = (request.group_id, request.generation_id, request.member_id)
        assert (*identity, request.group_instance_id) == ("g", 3, "m", "i")
        (topic,) = request.topics
        assert [
            (p.partition_index, p.committed_offset, p.committed_metadata, p.committed_leader_epoch)
            for p in topic.partitions
        ] == [(0, 1, "", -1), (1, 9, "words", 4)]

    run(test, kind)


@KINDS
def test_what_the_coordinator_never_heard_of_is_not_ended(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        async with producer.transaction():
            pass
        producer.begin_transaction()
        await producer.abort_transaction()
        assert cluster.asked(END_TXN) == []

    run(test, kind)


@KINDS
def test_coordinators_that_load_and_move_are_asked_again(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS
        for api in (ADD_PARTITIONS, ADD_OFFSETS, TXN_OFFSET_COMMIT, END_TXN):
            cluster.refuse(api, *loading, ErrorCode.NOT_COORDINATOR)
        producer.begin_transaction()
        await send_both(producer)
        await producer.send_offsets_to_transaction({T0: 5}, GROUP)
        await producer.flush()
        cluster.coordinator_id = 2
        await producer.commit_transaction()
        assert (len(cluster.ended), len(cluster.offset_commits)) == (1, 1)
        assert cluster.asked(END_TXN)[-1] == 2

    run(test, kind)


def test_a_lost_answer_of_the_commit_is_asked_for_again() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(END_TXN, None)
        async with producer.transaction():
            await send_both(producer)
        assert (cluster.ended, cluster.asked(END_TXN)) == ([(True, 0)], [1, 1])
        async with producer.transaction():
            await send_both(producer)
        assert cluster.ended == [(True, 0), (True, 1)]

    run(test)


@KINDS
def test_a_commit_of_unknown_outcome_can_only_be_repeated(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(END_TXN, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        producer.begin_transaction()
        await send_both(producer)
        error = await refusal_of(producer.commit_transaction(0.3))
        assert error.code is ErrorCode.REQUEST_TIMED_OUT
        assert "outcome is unknown" in str(error)
        assert "call commit_transaction again" in str(error)
        for call in (producer.abort_transaction(), producer.send("t", b"")):
            error = await refusal_of(call)
            assert error.code is ErrorCode.INVALID_TXN_STATE
            assert "call commit_transaction again" in str(error)
        cluster.refuse(END_TXN)
        await producer.commit_transaction()
        assert cluster.ended == [(True, 0)]
        async with producer.transaction():
            await send_both(producer)

    run(test, kind)


@KINDS
def test_a_failed_batch_can_only_be_aborted(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await send_both(producer)
        await producer.flush()
        cluster.refuse(PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        future = await producer.send("t", b"c", partition=0)
        assert (await refusal_of(future)).code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for call in (
            producer.send("t", b"d"),
            producer.send_offsets_to_transaction({T0: 1}, GROUP),
            producer.commit_transaction(),
        ):
            error = await refusal_of(call)
            assert error.code is ErrorCode.TRANSACTION_ABORTABLE
            assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(error)
            assert "call abort_transaction" in str(error)
        await producer.abort_transaction()
        async with producer.transaction():
            await send_both(producer)
        assert cluster.ended == [(False, 0), (True, 1)]
        last = cluster.batches(T0)[-1]
        assert (last.producer_epoch, last.base_sequence) == (1, 0)
        recoveries = [(r.producer_id, r.producer_epoch) for r in cluster.initialized[1:]]
        assert recoveries == ([] if kind.transaction_version else [(77, 0)])

    run(test, kind)


@KINDS
def test_the_block_aborts_what_cannot_be_committed(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        await send_in_a_block(producer)
        cluster.refuse(PRODUCE, ErrorCode.INVALID_RECORD)
        error = await refusal_of(send_in_a_block(producer))
        assert error.code is ErrorCode.TRANSACTION_ABORTABLE
        await send_in_a_block(producer)
        assert [committed for committed, _ in cluster.ended] == [True, False, True]

    async def send_in_a_block(producer: Producer) -> None:
        async with producer.transaction():
            await send_both(producer)

    run(test, kind)


@KINDS
def test_a_fenced_producer_is_told_to_close(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await send_both(producer)
        await producer.flush()
        cluster.epoch += 1  # another producer was started
        for call in (producer.commit_transaction, producer.abort_transaction):
            error = await refusal_of(call())
            assert error.code is ErrorCode.PRODUCER_FENCED
            assert "close this producer" in str(error)
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            producer.begin_transaction()
        assert cluster.ended == []

    run(test, kind)


def test_an_epoch_that_a_leader_refuses_is_for_the_coordinator_to_judge() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH)
        producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        error = await refusal_of(producer.commit_transaction())
        assert error.code is ErrorCode.TRANSACTION_ABORTABLE
        await producer.abort_transaction()
        assert cluster.ended == [(False, 0)]

    run(test)


@KINDS
def test_a_group_that_has_rebalanced_aborts(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        producer.begin_transaction()
        error = await refusal_of(producer.send_offsets_to_transaction({T0: 1}, GROUP))
        assert error.code is ErrorCode.TRANSACTION_ABORTABLE
        assert "the group has rebalanced" in str(error)
        await producer.abort_transaction()
        assert [committed for committed, _ in cluster.ended] == [False]

    run(test, kind)


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        async with producer.transaction():
            for _ in range(4):
                await producer.send("t", b"x", partition=0)
        assert [(b.producer_epoch, b.base_sequence) for b in cluster.batches(T0)] == [
            (0, 0),
            (0, 2),
        ]

    run(test, linger_ms=1000)


def test_an_abort_does_not_send_what_is_queued() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        future = await producer.send("t", b"x", partition=0)
        await asyncio.sleep(0)  # the batch waits for more records
        await producer.abort_transaction()
        error = await refusal_of(future)
        assert error.code is ErrorCode.TRANSACTION_ABORTABLE
        assert "aborted before the record was sent" in str(error)
        assert cluster.asked(PRODUCE) == cluster.asked(END_TXN) == []
        async with producer.transaction():
            await send_both(producer)
        assert len(cluster.batches(T0)) == 1

    run(test, linger_ms=60_000)


def test_a_record_that_is_not_of_bytes_fails_the_transaction() -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        with pytest.raises(TypeError):
            await producer.send("t", 7, partition=0)  # type: ignore[arg-type]
        error = await refusal_of(producer.commit_transaction())
        assert error.code is ErrorCode.TRANSACTION_ABORTABLE
        await producer.abort_transaction()

    run(test)


@KINDS
def test_a_lost_answer_of_a_batch_does_not_write_it_twice(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        cluster.refuse(PRODUCE, None)
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
        assert (len(cluster.asked(PRODUCE)), len(cluster.batches(T0))) == (2, 1)
        assert [committed for committed, _ in cluster.ended] == [True]

    run(test, kind)


def test_a_closed_producer_does_not_hide_that_its_abort_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await send_both(producer)
        await producer.flush()
        cluster.epoch += 1  # another producer was started
        await producer.close()
        assert "was not aborted" in caplog.text

    run(test)


@KINDS
def test_the_end_of_a_producer_aborts_its_transaction(kind: type[TransactionCluster]) -> None:
    async def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await send_both(producer)
        await producer.flush()
        await producer.close()
        assert cluster.ended == [(False, 0)]
        with pytest.raises(ClosedError):
            producer.begin_transaction()

    run(test, kind)


def test_an_initialization_may_be_repeated() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        cluster.add_topic("t", leaders=(1, 2))
        cluster.refuse(INIT_PRODUCER_ID, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 1000)
        async with Producer(client, ProducerOptions(transactional_id="x")) as producer:
            error = await refusal_of(producer.init_transactions(0.2))
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(KafkaError, match="call it again"):
                producer.begin_transaction()
            cluster.refuse(INIT_PRODUCER_ID)
            await producer.init_transactions()
            with pytest.raises(KafkaError, match="out of turn"):
                await producer.init_transactions()
            async with producer.transaction():
                await send_both(producer)
        (request,) = cluster.initialized
        assert (request.transactional_id, request.transaction_timeout_ms) == ("x", 60_000)

    run_cluster(test, kind=TransactionCluster)


def test_a_refused_initialization_is_final() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        cluster.refuse(INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        async with Producer(client, ProducerOptions(transactional_id="x")) as producer:
            for _ in range(2):
                error = await refusal_of(producer.init_transactions())
                assert error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
                assert "make a new one" in str(error)

    run_cluster(test, kind=TransactionCluster)


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": ""},
        {"transactional_id": "x", "acks": 1},
        {"transactional_id": "x", "idempotent": False},
        {"transactional_id": "x", "transaction_timeout_ms": 0},
        {"transactional_id": "x", "transaction_timeout_ms": 2**31},
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="transaction"):
        ProducerOptions(**options)
