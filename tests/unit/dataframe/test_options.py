"""Options of format("sparklog"): accepted values, and errors for other values."""

import logging

import pytest

from sparklog.dataframe.options.options import (
    Bound,
    ConsistentCut,
    ReadOptions,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from sparklog.dataframe.partitioners import PARTITIONERS
from sparklog.errors import ConfigError
from sparklog.types import Compression, Endpoint, Isolation, OffsetSpec, TopicPartition

SERVERS = "kafka.bootstrap.servers"
HOME = (Endpoint("h", 1),)


def test_the_least_a_read_needs() -> None:
    options = parse_read_options({SERVERS: "h:1", "subscribe": "a, b,a"}, None)
    assert options == ReadOptions(bootstrap=HOME, topics=("a", "b"))
    assert options.starting == Bound(special=OffsetSpec.EARLIEST)
    assert options.ending == Bound(special=OffsetSpec.LATEST)


def test_every_read_option() -> None:
    options = parse_read_options(
        {
            "bootstrap.servers": "h:1,[::1]:2",
            "ASSIGN": '{"t": [1, 0, 1]}',
            "startingOffsets": '{"t": {"0": 5, "1": -2}}',
            "endingTimestamp": "1700000000000",
            "startingOffsetsByTimestampStrategy": "Latest",
            "minPartitions": "8",
            "maxRecordsPerPartition": "9000000000",
            "failOnDataLoss": "false",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
            "groupIdPrefix": "mine",
            "kafka.group.id": "g",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.security.protocol": "plaintext",
            "kafka.client.rack": "a",
            "maxOffsetsPerTrigger": "7",
            "includeHeaders": "True",
            "consistentCut": "Require",
            "kafkaConsumer.pollTimeoutMs": "5",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.client.id": "me",
        },
        "ignored:1",
    )
    assert options == ReadOptions(
        bootstrap=(Endpoint("h", 1), Endpoint("::1", 2)),
        assigned=(TopicPartition("t", 0), TopicPartition("t", 1)),
        starting=Bound(offsets={TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}),
        ending=Bound(timestamp_ms=1_700_000_000_000),
        unmatched_starts_latest=True,
        min_partitions=8,
        max_records_per_partition=9_000_000_000,
        fail_on_data_loss=False,
        plan_tries=5,
        plan_pause_ms=0,
        isolation=Isolation.READ_UNCOMMITTED,
        include_headers=True,
        consistent_cut=ConsistentCut.REQUIRE,
        poll_timeout_ms=5,
        fetch_max_bytes=1000,
        rack="a",
        client_id="me",
    )


def test_which_partitions_end_at_their_latest_offset() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    bounds = {
        Bound(special=OffsetSpec.LATEST): (True, True),
        Bound(special=OffsetSpec.EARLIEST): (False, False),
        Bound(timestamp_ms=5): (False, False),
    }
    for bound, expected in bounds.items():
        assert (bound.is_latest(first), bound.is_latest(second)) == expected
    given = Bound(offsets={first: -1, second: 7})
    assert (given.is_latest(first), given.is_latest(second)) == (True, False)
    assert not Bound(timestamps={first: 5}).is_latest(first)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_timestamps_beat_offsets_and_one_for_all_beats_those_by_partition(side: str) -> None:
    given = {SERVERS: "h:1", "subscribePattern": "t.*"}
    found = []
    for name, text in (
        ("Offsets", '{"t": {"0": 3}}'),
        ("OffsetsByTimestamp", '{"t": {"0": 5}}'),
        ("Timestamp", "7"),
    ):
        given[side + name] = text
        options = parse_read_options(given, None)
        found.append(options.starting if side == "starting" else options.ending)
    tp = TopicPartition("t", 0)
    assert found == [Bound(offsets={tp: 3}), Bound(timestamps={tp: 5}), Bound(timestamp_ms=7)]
    assert [bound.option(side) for bound in found] == [
        f"{side}Offsets",
        f"{side}OffsetsByTimestamp",
        f"{side}Timestamp",
    ]
    assert options.pattern == "t.*"


def test_the_cluster_of_the_application_is_found_without_an_option() -> None:
    assert parse_read_options({"subscribe": "t"}, "h:1").bootstrap == HOME


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "no cluster: start one"),
        ({SERVERS: "h", "subscribe": "t"}, "'h' is not HOST:PORT"),
        ({SERVERS: "h:1"}, "exactly one of the options assign, sub"),
        ({SERVERS: "h:1", "subscribe": "t", "assign": '{"t":[0]}'}, "found assign and subscribe"),
        ({SERVERS: "h:1", "subscribe": " , "}, "expected topic names"),
        ({SERVERS: "h:1", "assign": "t"}, "not JSON"),
        ({SERVERS: "h:1", "assign": "[1]"}, "expected a JSON object"),
        ({SERVERS: "h:1", "assign": '{"t": [-1]}'}, "-1 is not a partition number"),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffset": "earliest"}, "mean startingOffsets?"),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffsets": "latest"}, "cannot have latest"),
        ({SERVERS: "h:1", "subscribe": "t", "endingOffsets": "earliest"}, "cannot have earliest"),
        ({SERVERS: "h:1", "subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, "-2 (earliest)"),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'}, "-1 (latest)"),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffsets": '{"t":{"x":1}}'}, "'x' is not a"),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffsets": '{"t":{"0":1.5}}'}, "1.5 is not an"),
        ({SERVERS: "h:1", "subscribe": "t", "startingTimestamp": "now"}, "expected milliseconds"),
        ({SERVERS: "h:1", "subscribe": "t", "minPartitions": "0"}, "expected a positive"),
        ({SERVERS: "h:1", "subscribe": "t", "includeHeaders": "1"}, "expected true or false"),
        ({SERVERS: "h:1", "subscribe": "t", "startingTimestamp": "9" * 19}, "expected millisec"),
        (
            {SERVERS: "h:1", "subscribe": "t", "endingOffsetsByTimestamp": '{"t": {"0": "x"}}'},
            "expected milliseconds",
        ),
        ({SERVERS: "h:1", "subscribe": "t", "startingOffsets": '{"t":[1]}'}, "also for topic 't'"),
        ({SERVERS: "h:1", "subscribe": "t", "failOnDataLoss": "no"}, "expected true or false"),
        ({SERVERS: "h:1", "subscribe": "t", "maxRecordsPerPartition": "0"}, "expected a positive"),
        (
            {SERVERS: "h:1", "subscribe": "t", "startingOffsetsByTimestampStrategy": "earliest"},
            "expected error or latest",
        ),
        (
            {SERVERS: "h:1", "subscribe": "t", "kafka.isolation.level": "serializable"},
            "expected one of read_uncommitted, read_committed",
        ),
        (
            {SERVERS: "h:1", "subscribe": "t", "consistentCut": "true"},
            "option consistentCut='true': expected one of require, prefer, off",
        ),
        ({SERVERS: "h:1", "subscribePattern": "("}, "no regular expression"),
        ({SERVERS: "h:1", "subscribePattern": "t", "subscribe": "t"}, "subscribe and subscribePat"),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.auto.offset.reset": "x"}, "use startingOffsets"),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.enable.auto.commit": "x"}, "commits no offsets"),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.interceptor.classes": "x"}, "Java classes"),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.Sasl.mechanism": "PLAIN"}, "leave SASL out"),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.security.protocol": "SSL"}, "plain text"),
        (
            {SERVERS: "h:1", "subscribe": "t", "kafka.isolation.levels": "x"},
            "did you mean kafka.isolation.level?",
        ),
        (
            {SERVERS: "h:1", "topic": "t"},
            "option 'topic' is for writes; a read names its topics with subscribe, assign or "
            "subscribePattern, and a view that reads and inserts has one of them and topic",
        ),
        ({SERVERS: "h:1", "subscribe": "t", "kafka.acks": "1"}, "option 'kafka.acks' is for write"),
        ({SERVERS: "h:1", "subscribe": "t", "topic": "t", "topcs": "t"}, "unknown option 'topcs'"),
        (
            {SERVERS: "h:1", "owner": "me", "option.subscribe": "t"},
            "CREATE TABLE is not supported: Spark hands",
        ),
    ],
)
def test_a_wrong_read_option_names_itself_and_the_remedy(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_read_options(options, None)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"sparklog.own.scan": "true"}])
def test_a_table_that_lost_its_options_is_told_of_views(options: dict[str, str]) -> None:
    told = (
        "exactly one of the options assign, subscribe and subscribePattern is needed, found none; "
        "if this is a table: Spark hands the options of CREATE TABLE to no source that is made in "
        "Python: use CREATE TEMPORARY VIEW name USING sparklog OPTIONS (subscribe 'TOPIC', "
        "topic 'TOPIC')"
    )
    with pytest.raises(ConfigError) as caught:
        parse_read_options(options, "h:1")
    assert str(caught.value) == told


def test_one_set_of_options_reads_and_inserts(caplog: pytest.LogCaptureFixture) -> None:
    """Options of the other use are ignored, with a reason, and not even parsed."""
    reads = {"subscribe": "t", "startingOffsets": "latest?", "minPartitions": "4"}
    writes = {"Topic": "t", "kafka.acks": "all?", "kafka.compression.type": "zstd"}
    caplog.set_level(logging.INFO)
    assert parse_read_options({**writes, "subscribe": "t", "minPartitions": "4"}, "h:1") == (
        ReadOptions(bootstrap=HOME, topics=("t",), min_partitions=4)
    )
    assert "option kafka.acks is for a batch write; this read ignores it" in caplog.messages
    assert parse_write_options(
        {**reads, "topic": "t", "kafka.compression.type": "zstd"}, "h:1"
    ) == WriteOptions(bootstrap=HOME, topic="t", compression=Compression.ZSTD)
    assert "option startingOffsets is for a batch read; this write ignores it" in caplog.messages


def test_the_least_a_write_needs() -> None:
    assert parse_write_options({}, "h:1") == WriteOptions(bootstrap=HOME)


def test_every_write_option() -> None:
    options = parse_write_options(
        {
            SERVERS: "h:1",
            "topic": "t",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "100",
            "kafka.delivery.timeout.ms": "9",
            "kafka.partitioner": "consistent",
            "kafka.buffer.memory": "1000",
            "kafka.linger.ms": "5",
            "includeHeaders": "true",
        },
        None,
    )
    assert options == WriteOptions(
        bootstrap=HOME,
        topic="t",
        acks=1,
        compression=Compression.ZSTD,
        batch_bytes=100,
        delivery_timeout_ms=9,
        idempotent=False,
        partitioner=PARTITIONERS["consistent"],
        buffer_bytes=1000,
    )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"partitioner": "Fnv1a_Random", "kafka.partitioner": "murmur2"}, "fnv1a_random"),
        ({"kafka.partitioner.ignore.keys": "true", "partitioner": "murmur2"}, "sticky"),
        (
            {
                "kafka.partitioner.class": (
                    "org.apache.kafka.clients.producer.RoundRobinPartitioner"
                )
            },
            "round_robin",
        ),
        ({"kafka.partitioner.ignore.keys": "false"}, "murmur2_random"),
    ],
)
def test_partitioners(options: dict[str, str], name: str) -> None:
    assert parse_write_options(options, "h:1").partitioner == PARTITIONERS[name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "t"}, "did you mean topic?"),
        ({"kafka.acks": "2"}, "expected all, 1 or 0"),
        ({"kafka.compression.type": "brotli"}, "expected one of none, gzip"),
        ({"kafka.enable.idempotence": "true", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"kafka.value.serializer": "x"}, "cast the column"),
        ({"kafka.transactional.id": "x"}, "transactions belong to Spark's jobs"),
        ({"partitioner": "mine"}, "expected one of murmur2_random, murmur2, consistent"),
        ({"kafka.partitioner.class": "com.example.Mine"}, "a Java class cannot run here"),
    ],
)
def test_a_wrong_write_option_names_itself_and_the_remedy(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_write_options(options, "h:1")
    assert message in str(caught.value)
