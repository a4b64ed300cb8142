"""Rows with keys that the JVM divides and sends itself, and what Python does where it cannot."""

from collections import Counter

import pytest
from py4j.protocol import Py4JJavaError

from sparklog.client.partitioner import partition_of_key
from sparklog.dataframe.jvm.constants import ALLOCATED_BYTES_MIN, FIRST_PIECE_BYTES, REQUEST_BYTES
from sparklog.dataframe.write import sender
from sparklog.errors import ErrorCode
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BATCH_OVERHEAD, iter_batches
from tests.spark.dataframe_rig import Rig
from tests.spark.jvm_packer import JvmPacker, Row
from tests.spark.piece_write import (
    JVM,
    PATIENCE,
    ROWS,
    Write,
    assert_each_once,
    numbers,
    write_with,
)
from tests.support.faulty_brokers import (
    Fault,
    FaultyBrokers,
    Slow,
    answer_of,
    half_an_answer,
    lost_answer,
    lost_request,
    put,
    refusal,
    refusal_of,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

#: Of every length to the next word, and none.
KEYS = (*(bytes(range(250, 250 - length, -1)) for length in range(12)), None, b"\x00", b"key")


@pytest.mark.parametrize("kind", ["generic", "unsafe", "off heap"])
def test_rows_with_keys_go_to_their_partitions(rig: Rig, kind: str) -> None:
    topic = rig.new_topic(5)
    write = Write(rig, rig.cluster.bootstrap_servers, topic, KEYS, kind)
    assert write.run() == ROWS
    assert write.rows == 1
    assert_each_once(rig, topic)
    held = Counter(record.key for record in rig.consume(topic))
    assert held == Counter(KEYS[number % len(KEYS)] for number in range(ROWS))


def test_rows_whose_key_is_null_spread(rig: Rig) -> None:
    """They stay together until their section is cut."""
    topic = rig.new_topic(5)
    write = Write(rig, rig.cluster.bootstrap_servers, topic, (None,))
    assert write.run() == ROWS
    assert write.rows == 1
    assert_each_once(rig, topic)
    held = [len(partition) for partition in numbers(rig, topic)]
    assert len(held) == 5
    assert max(held) - min(held) <= 4


@pytest.mark.parametrize("nth", [1, 2, 7, 19])
@pytest.mark.parametrize("fault", [lost_request, lost_answer, half_an_answer])
def test_python_goes_on_with_rows_that_have_keys(rig: Rig, nth: int, fault: Fault) -> None:
    topic = rig.new_topic(5)
    assert write_with(rig, topic, {nth: fault}, keys=KEYS).rows > 1
    assert_each_once(rig, topic)


def test_python_divides_rows_where_the_jvm_could_not_ask(rig: Rig) -> None:
    topic = rig.new_topic(5)
    write = Write(rig, rig.cluster.bootstrap_servers, topic, KEYS)
    assert write.run(asked="nobody") == ROWS
    assert write.rows > 1
    assert_each_once(rig, topic)


def test_only_what_was_sent_before_may_be_too_old(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with keys have a partition before and after that."""
    checked: list[int] = []
    check = sender.Sender._check_may_be_sent_again

    def counted(self: sender.Sender, name: str) -> None:
        checked.append(1)
        check(self, name)

    monkeypatch.setattr(sender.Sender, "_check_may_be_sent_again", counted)
    topic = rig.new_topic(5)
    write = write_with(rig, topic, {7: lost_answer}, keys=KEYS)
    assert 0 < len(checked) < write.rows - 1
    assert_each_once(rig, topic)


def one_key_each(partitions: int) -> list[bytes]:
    """By partition."""
    found = {partition_of_key(b"%d" % number, partitions): number for number in range(1000)}
    return [b"%d" % found[partition] for partition in range(partitions)]


def test_pieces_of_many_partitions_travel_together(rig: Rig) -> None:
    topic = rig.new_topic(30)
    slow = Slow()
    assert write_with(rig, topic, {}, slow, keys=one_key_each(30)).rows == 1
    assert_each_once(rig, topic)
    assert sum(slow.partitions) == 30
    assert len(slow.partitions) < 20


def test_requests_have_a_bound(rig: Rig) -> None:
    """Of 90 partitions each broker leads 30: twice as much would wait as a request may have."""
    topic = rig.new_topic(90)
    slow = Slow()
    with FaultyBrokers(rig.client, {}, slow) as brokers:
        write = Write(rig, brokers.bootstrap_servers, topic, one_key_each(90))
        assert write.run(rows=180) == 180
    assert write.rows == 1
    assert_each_once(rig, topic, rows=180)
    assert REQUEST_BYTES * 0.9 < max(slow.sizes) < REQUEST_BYTES + 100 * max(slow.partitions)


@pytest.mark.parametrize(
    "fault",
    [
        lost_request,
        lost_answer,
        half_an_answer,
        refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        refusal_of(ErrorCode.KAFKA_STORAGE_ERROR),
        refusal_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR),
        # A partition that was not asked for, and one that is told twice.
        answer_of(put(27, b"\x00\x00\x00\x99")),
        answer_of(lambda answer: put(60, bytes(answer[27:31]))(answer)),
    ],
)
def test_what_goes_wrong_with_several_is_made_good_by_python(rig: Rig, fault: Fault) -> None:
    topic = rig.new_topic(30)
    slow = Slow(fault)
    assert write_with(rig, topic, {}, slow, keys=one_key_each(30)).rows > 1
    assert max(slow.partitions) > 1
    assert_each_once(rig, topic)


def test_a_leader_that_opens_one_of_several_partitions_late(rig: Rig) -> None:
    topic = rig.new_topic(30)
    slow = Slow(refusal_of(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert write_with(rig, topic, {}, slow, keys=one_key_each(30)).rows == 1
    assert sum(slow.partitions) == 31
    assert_each_once(rig, topic)


@pytest.mark.parametrize("filled", [2, 30])
def test_sections_of_many_partitions_are_smaller(rig: Rig, filled: int) -> None:
    """Together they have half of what may be filled; where there are no rows it does not count."""
    partitions = 30
    topic = rig.new_topic(partitions)
    keys = one_key_each(partitions)[:filled]
    jvm = JvmPacker(rig.spark, "unsafe", 1_000_000, keyed=True)
    jvm.destination = (rig.cluster.bootstrap_servers, topic, JVM, str(PATIENCE), "1")
    rows: list[Row] = [(bytes(3000), 0, keys[number % len(keys)]) for number in range(1000)]
    assert len(list(jvm.batches(rows))) == 1
    sizes = [
        header.size
        for partition in range(filled)
        for header, _ in iter_batches(rig.client.fetch(TopicPartition(topic, partition), 0).records)
    ]
    most = ALLOCATED_BYTES_MIN // 2 // filled
    assert min(most / 2, FIRST_PIECE_BYTES) < max(sizes) <= most + BATCH_OVERHEAD


def test_large_records_do_not_wait_in_all_partitions(rig: Rig) -> None:
    """What was taken goes when it is too much together, not when its own section is full."""
    partitions = 30
    topic = rig.new_topic(partitions)
    jvm = JvmPacker(rig.spark, "unsafe", 1_000_000, keyed=True)
    jvm.destination = (rig.cluster.bootstrap_servers, topic, JVM, str(PATIENCE), "1")
    size = ALLOCATED_BYTES_MIN // 8
    rows: list[Row | None] = [(bytes(size), 0, key) for key in one_key_each(partitions)]
    with pytest.raises(Py4JJavaError, match="NullPointerException"):
        list(jvm.batches([*rows, None]))
    # Three times eight; the last one may be lost with the task.
    wait_for(lambda: len(rig.consume(topic)) >= 23)
    assert len(rig.consume(topic)) <= 24
