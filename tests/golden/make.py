"""Makes the golden batches: the same records as librdkafka and aiokafka write them, per codec.

    .venv/bin/python -m tests.golden.make

librdkafka produces to the mock cluster that it brings along; a Fetch request of our own (built by
kio) gets back what the mock broker keeps, which is what the producer sent.  aiokafka has a
builder.  `expected.json` says what is in every file, with bytes as base64.
"""

import base64
import json
import socket
import struct
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer, TopicPartition
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

HERE = Path(__file__).parent
TOPIC = "golden"
FETCH_KEY, FETCH_VERSION = 1, 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_700_000_000_000

Golden = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def records() -> list[Golden]:
    """(timestamp, key, value, headers): every kind of field, and enough to widen the varints."""
    found: list[Golden] = [
        (FIRST_TIMESTAMP, b"key", b"value", []),
        (FIRST_TIMESTAMP + 5, None, b"no key", []),
        (FIRST_TIMESTAMP - 70_000, b"deleted", None, []),
        (FIRST_TIMESTAMP + 1, b"\x00", "größe".encode(), []),
        (FIRST_TIMESTAMP, b"one", b"header", [("trace", b"\x00\xff")]),
        (FIRST_TIMESTAMP, None, b"headers", [("a", b"1"), ("ä", None), ("a", b"")]),
        (FIRST_TIMESTAMP + 90_000_000, b"k" * 100, b"v" * 10_000, []),
    ]
    found += [(FIRST_TIMESTAMP + i, b"%d" % i, b"%05d" % i * (i % 40 + 1), []) for i in range(300)]
    return found


def main() -> None:
    for codec in CODECS:
        (HERE / f"librdkafka-{codec}.bin").write_bytes(librdkafka_batches(codec))
        (HERE / f"aiokafka-{codec}.bin").write_bytes(aiokafka_batch(codec))
    expected = [
        {
            "timestamp": timestamp,
            "key": text(key),
            "value": text(value),
            "headers": [[name, text(content)] for name, content in headers],
        }
        for timestamp, key, value, headers in records()
    ]
    (HERE / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def librdkafka_batches(codec: str) -> bytes:
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "",
            "compression.codec": codec,
            "enable.idempotence": True,
            "linger.ms": 500,
            "batch.num.messages": 10_000,
        }
    )
    # The topic must be known first, or the first records go into a batch of their own.
    broker = next(iter(producer.list_topics(TOPIC, timeout=10).brokers.values()))
    for timestamp, key, value, headers in records():
        producer.produce(TOPIC, value, key, 0, timestamp=timestamp, headers=headers or None)
    if producer.flush(20):
        raise RuntimeError(f"librdkafka did not deliver everything with {codec}")
    return fetch(broker.host, broker.port, TopicPartition(TOPIC, 0))


def fetch(host: str, port: int, partition: TopicPartition) -> bytes:
    request_type = load_request_schema(FETCH_KEY, FETCH_VERSION)
    fields = request_type.__dataclass_fields__
    topic_type = _item_type(fields["topics"].type)
    partition_type = _item_type(topic_type.__dataclass_fields__["partitions"].type)
    wanted = partition_type(partition=0, fetch_offset=0, partition_max_bytes=2**24)
    request = request_type(
        replica_id=-1,
        max_wait=timedelta(seconds=1),
        min_bytes=1,
        max_bytes=2**24,
        isolation_level=0,
        topics=(topic_type(topic=partition.topic, partitions=(wanted,)),),
    )
    payload = BytesIO()
    payload.write(struct.pack(">hhih", FETCH_KEY, FETCH_VERSION, 1, -1))
    entity_writer(request_type)(payload, request)
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(payload.getvalue())) + payload.getvalue())
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    response, _ = entity_reader(load_response_schema(FETCH_KEY, FETCH_VERSION))(answer, 4)
    found: bytes = response.responses[0].partitions[0].records
    return found


def _item_type(annotation: Any) -> Any:
    """The X of a field's annotation tuple[X, ...]."""
    return annotation.__args__[0]


def aiokafka_batch(codec: str) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=0,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        batch_size=2**24,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records()):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


if __name__ == "__main__":
    main()
