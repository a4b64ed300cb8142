"""Transactions for code without an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client.application_producers import Producer
from sparklog.errors import ClosedError, ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.client.small_cluster import run_cluster
from tests.unit.client.transactions.transaction_cluster import PRODUCE, TransactionCluster

T0 = TopicPartition("t", 0)


def run(test: Callable[[TransactionCluster, Producer], None]) -> None:
    """Run a blocking test beside a cluster, with an initialized producer."""

    async def main(cluster: TransactionCluster, _client: Any) -> None:
        cluster.add_topic("t", leaders=(1, 2))

        def work() -> None:
            with Producer(cluster.bootstrap, transactional_id="x", linger_ms=0) as producer:
                producer.init_transactions()
                test(cluster, producer)

        await asyncio.to_thread(work)

    run_cluster(main, kind=TransactionCluster)


def test_the_block_sends_what_waits_in_the_thread() -> None:
    def test(cluster: TransactionCluster, producer: Producer) -> None:
        with producer.transaction():
            for _ in range(1500):
                producer.send("t", b"x", partition=0)
        assert sum(batch.record_count for batch in cluster.batches(T0)) == 1500
        assert cluster.ended == [(True, 0)]

    run(test)


def test_an_abort_forgets_what_waits_in_the_thread() -> None:
    def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"y", partition=0)
        assert [batch.record_count for batch in cluster.batches(T0)] == [1]
        assert cluster.ended == [(True, 0)]

    run(test)


def test_a_record_that_cannot_be_sent_lets_the_others_of_its_transaction_fail() -> None:
    def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        for value in (b"a", 7, b"b"):
            producer.send("t", value, partition=0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            producer.flush()
        with pytest.raises(KafkaError) as caught:
            producer.commit_transaction()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        producer.abort_transaction()
        assert True not in [committed for committed, _ in cluster.ended]

    run(test)


def test_the_error_of_the_block_is_kept() -> None:
    def test(cluster: TransactionCluster, producer: Producer) -> None:
        with pytest.raises(ZeroDivisionError):
            send_and_fail(producer)
        assert cluster.ended == [(False, 0)]
        cluster.refuse(PRODUCE, ErrorCode.INVALID_RECORD)
        with pytest.raises(KafkaError) as caught:
            send(producer)
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        assert [committed for committed, _ in cluster.ended] == [False, False]

    def send(producer: Producer) -> None:
        with producer.transaction():
            producer.send("t", b"x", partition=0)

    def send_and_fail(producer: Producer) -> None:
        with producer.transaction():
            producer.send("t", b"x", partition=0)
            producer.flush()
            raise ZeroDivisionError

    run(test)


def test_a_closed_producer_refuses_records() -> None:
    def test(cluster: TransactionCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        producer.close()
        with pytest.raises(ClosedError):
            producer.send("t", b"x")
        assert cluster.batches(T0) == []

    run(test)
