"""A client that keeps fetch sessions (KIP-227) reads on in them, whatever it does to them.

Of the clients here only kafka-python has sessions; the others fetch without.
"""

from collections.abc import Callable

from sparklog.client.blocking import BlockingClient
from sparklog.types import Endpoint
from sparklog.types import TopicPartition as OwnPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.clients.peer_kafka_python import KafkaConsumer, TopicPartition, take
from tests.clients.rows import PARTITIONS
from tests.support.proven import proves

TOPIC = "sessions"


def epochs(consumer: KafkaConsumer) -> dict[int, int]:
    """The epoch of the next request, by session."""
    handlers = consumer._fetcher._session_handlers.values()
    return {h.next_metadata.session_id: h.next_metadata.epoch for h in handlers}


@proves("fetch sessions", "kafka-python")
def test_sessions_are_kept_while_partitions_come_and_go(
    bootstrap: str, create_topic: Callable[..., None]
) -> None:
    create_topic(TOPIC)
    host, _, port = bootstrap.rpartition(":")
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with BlockingClient([Endpoint(host, int(port))], client_id="test") as client:

        def write(number: int, value: bytes) -> None:
            batch = encode_batch([Record(value=value, timestamp=1)])
            client.produce(OwnPartition(TOPIC, number), [batch], acks=-1)

        def read(count: int) -> list[tuple[int, bytes]]:
            messages = sorted(take(consumer, count), key=lambda m: (m.partition, m.offset))
            return [(message.partition, message.value) for message in messages]

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        try:
            consumer.assign(partitions)
            for number in range(PARTITIONS):
                write(number, b"first")
            assert read(PARTITIONS) == [(number, b"first") for number in range(PARTITIONS)]
            # Every poll below is an incremental fetch.
            for turn in range(PARTITIONS):
                write(turn, b"second")
                assert read(1) == [(turn, b"second")]
            consumer.assign(partitions[1:])
            write(0, b"not asked for")
            write(1, b"asked for")
            assert read(1) == [(1, b"asked for")]
            consumer.assign(partitions)
            consumer.seek(partitions[0], 0)
            assert read(3) == [(0, b"first"), (0, b"second"), (0, b"not asked for")]
            kept = epochs(consumer)
            assert min(kept) > 0, kept
            assert max(kept.values()) > 2, kept
        finally:
            consumer.close()
