"""Pieces that the JVM sends itself, and what becomes of a write when that goes wrong."""

import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

import pytest
from py4j.protocol import Py4JJavaError

from sparklog.dataframe.jvm.constants import REQUESTS_PER_BROKER
from sparklog.dataframe.write import sender
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import add_sequence, iter_batches
from sparklog.wire.records.builder import decode_records, encode_batch
from tests.spark.dataframe_rig import Rig
from tests.spark.piece_write import (
    JVM,
    LITTLE_PATIENCE,
    ROWS,
    Write,
    all_numbers,
    assert_each_once,
    numbers,
    write_with,
)
from tests.support.faulty_brokers import (
    Connection,
    Fault,
    FaultyBrokers,
    answer_of,
    answered_and_lost,
    first_of_each_partition,
    forward,
    half_an_answer,
    hole,
    lost_answer,
    lost_request,
    only_for,
    put,
    refusal,
    silence,
    when,
    words,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

#: Where a batch has it.
LEADER_EPOCH = 12


@pytest.mark.parametrize("partitions", [1, 3])
def test_python_hears_only_how_many_were_written(rig: Rig, partitions: int) -> None:
    topic = rig.new_topic(partitions)
    write = Write(rig, rig.cluster.bootstrap_servers, topic)
    assert write.run() == ROWS
    assert write.rows == 1
    assert write.jvm.metric.value() == ROWS
    assert_each_once(rig, topic)
    assert len(numbers(rig, topic)) == partitions


def test_batches_are_those_that_python_makes(rig: Rig) -> None:
    """The leader's epoch is put in by the leader."""
    topic = rig.new_topic(1)
    Write(rig, rig.cluster.bootstrap_servers, topic).run()
    data = rig.client.fetch(TopicPartition(topic, 0), 0).records
    sequence = 0
    for header, start in iter_batches(data):
        batch = bytes(data[start : start + header.size])
        again = encode_batch(
            decode_records(batch),
            base_offset=header.base_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=sequence,
        )
        assert batch[:LEADER_EPOCH] == again[:LEADER_EPOCH]
        assert batch[LEADER_EPOCH + 4 :] == again[LEADER_EPOCH + 4 :]
        sequence += header.record_count
    assert sequence == ROWS


@pytest.mark.parametrize("nth", [1, 2, 7, 29])
@pytest.mark.parametrize(
    "fault",
    [
        lost_request,
        lost_answer,
        silence,
        hole,
        half_an_answer,
        refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        refusal(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_goes_wrong_is_made_good_by_python(rig: Rig, nth: int, fault: Fault) -> None:
    topic = rig.new_topic(3)
    assert write_with(rig, topic, {nth: fault}, patience=LITTLE_PATIENCE).rows > 1
    assert_each_once(rig, topic)


@pytest.mark.parametrize(
    "fault",
    [
        words(b"\x7f\xff\xff\xff"),
        words(b"\xff\xff\xff\xff" + bytes(100)),
        words(b"\x00\x00\x00\x02\x00\x00"),
        words(b"\x00\x00\x00\x04\x00\x00\x00\x00"),
        words(b"\x00\x00\x00\x64" + b"\xff" * 100),
        words(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        answer_of(put(4, b"\x00\x00\x00\x00")),
        answer_of(put(8, b"\x01")),
        answer_of(put(9, b"\x01")),
        answer_of(put(9, b"\xff\xff\xff\xff\x0f")),
        answer_of(put(10, bytes(16))),
        answer_of(put(26, b"\x03")),
        answer_of(put(27, b"\x00\x00\x00\x09")),
    ],
)
def test_answers_that_are_none_count_as_no_answer(rig: Rig, fault: Fault) -> None:
    topic = rig.new_topic(3)
    assert write_with(rig, topic, {5: fault}, patience=LITTLE_PATIENCE).rows > 1
    assert_each_once(rig, topic)


def test_faults_that_follow_each_other(rig: Rig) -> None:
    """Python meets some, too."""
    topic = rig.new_topic(3)
    faults = {8: lost_answer, 9: lost_request, 10: lost_answer, 13: lost_request, 15: lost_answer}
    write_with(rig, topic, faults)
    assert_each_once(rig, topic)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_leader_that_is_about_to_be_one_is_waited_for(rig: Rig, code: ErrorCode) -> None:
    topic = rig.new_topic(1)
    write = write_with(rig, topic, dict.fromkeys((1, 2, 3), refusal(code)))
    assert write.rows == 1
    assert_each_once(rig, topic)


def test_leaders_of_several_partitions_are_waited_for(rig: Rig) -> None:
    """Answers to what is sent again come behind those to what was sent meanwhile."""
    topic = rig.new_topic(12)
    refused = first_of_each_partition(refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert write_with(rig, topic, {}, refused).rows == 1
    assert_each_once(rig, topic)


def test_a_leader_that_never_opens_a_partition(rig: Rig) -> None:
    topic = rig.new_topic(3)
    refused = only_for(JVM, refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert write_with(rig, topic, {}, refused).rows > 1
    assert_each_once(rig, topic)


@pytest.mark.parametrize("nth", [5, 9, 12])
def test_what_was_answered_is_not_handed_over(rig: Rig, nth: int) -> None:
    """Python would send it again, perhaps to brokers that have forgotten the producer meanwhile."""
    topic = rig.new_topic(30)
    lost: list[int] = []

    def fault(connection: Connection, frame: bytes) -> None:
        lost.append(connection.broker_port)
        answered_and_lost(connection, frame)

    known = write_with(rig, topic, {nth: fault}).known
    found = rig.client.metadata([topic])
    led = found.topics[topic].partitions.items()
    assert not known & {n for n, each in led if found.nodes[each.leader].port == lost[0]}
    assert_each_once(rig, topic)


def test_what_was_not_answered_for_an_hour_is_not_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "UNANSWERED_MS_MAX", LITTLE_PATIENCE // 2)
    topic = rig.new_topic(3)
    with pytest.raises(KafkaError, match=f"what was sent to topic '{topic}' 0 minutes ago"):
        write_with(rig, topic, {5: silence}, patience=LITTLE_PATIENCE)
    held = all_numbers(rig, topic)
    assert len(held) == len(set(held))


def test_what_was_refused_late_is_not_sent_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been written all the same."""
    monkeypatch.setattr(sender, "UNANSWERED_MS_MAX", LITTLE_PATIENCE // 2)
    topic = rig.new_topic(3)
    late = when(lambda: time.sleep(LITTLE_PATIENCE / 1000), refusal(ErrorCode.REQUEST_TIMED_OUT))
    with pytest.raises(KafkaError, match="whether it was written is not known; write again"):
        write_with(rig, topic, {5: late})


def test_a_leader_has_few_requests_at_a_time(rig: Rig) -> None:
    """It answers none of them, so that as many come as may be under way."""
    topic = rig.new_topic(30)
    sent: Counter[Connection] = Counter()

    def count(connection: Connection, frame: bytes) -> None:
        sent[connection] += 1
        silence(connection, frame)

    usual = only_for(JVM, count)
    assert write_with(rig, topic, {}, usual, patience=LITTLE_PATIENCE).rows > 1
    assert max(sent.values()) == REQUESTS_PER_BROKER
    assert_each_once(rig, topic)


def test_sequences_begin_again_as_everywhere(rig: Rig) -> None:
    jvm = Write(rig, rig.cluster.bootstrap_servers, "none").jvm
    for sequence, count in ((0, 1), (2**31 - 2, 1), (2**31 - 1, 1), (2**31 - 5, 9)):
        assert jvm.static("PieceSender", "incrementSequence", sequence, count) == add_sequence(
            sequence, count
        )


def test_a_leader_that_is_none_any_more_is_not_waited_for(rig: Rig) -> None:
    topic = rig.new_topic(1)
    write = write_with(rig, topic, {2: refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    assert write.rows > 1
    assert_each_once(rig, topic)


def test_few_bytes_may_be_under_way(rig: Rig) -> None:
    """No more than one piece: each is sent when the one before was acknowledged."""
    topic = rig.new_topic(3)
    waiting: list[int] = []

    def look(connection: Connection, frame: bytes) -> None:
        waiting.append(sum(each.unanswered for each in brokers.connections))
        forward(connection, frame)

    with FaultyBrokers(rig.client, dict.fromkeys(range(1, 100), look)) as brokers:
        write = Write(rig, brokers.bootstrap_servers, topic)
        assert write.run(buffer=1) == ROWS
    assert write.rows == 1
    assert set(waiting) == {0}
    assert_each_once(rig, topic)


def test_servers_that_are_not_there_are_passed_over(rig: Rig) -> None:
    topic = rig.new_topic(1)
    with FaultyBrokers(rig.client, {}) as brokers:
        closed = brokers.bootstrap_servers.split(",")[0]
    servers = f"no-such-host.invalid:9092,{closed}, {rig.cluster.bootstrap_servers}"
    write = Write(rig, servers, topic)
    assert write.run() == ROWS
    assert write.rows == 1
    assert_each_once(rig, topic)


def test_servers_that_say_nothing_take_no_longer_than_one(rig: Rig) -> None:
    """Of each the connection is there, and then nothing comes."""
    topic = rig.new_topic(1)
    with ExitStack() as stack:
        deaf = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        names = [f"127.0.0.1:{each.getsockname()[1]}" for each in deaf]
        write = Write(rig, ",".join([*names, rig.cluster.bootstrap_servers]), topic)
        assert write.run(rows=4, patience=LITTLE_PATIENCE) == 4
        assert write.rows > 1
        asked = []
        for each in deaf:
            each.settimeout(0)
            with suppress(BlockingIOError):
                asked.append(stack.enter_context(each.accept()[0]))
    assert len(asked) >= 1
    assert_each_once(rig, topic, rows=4)


def test_a_topic_that_is_deleted_is_told(rig: Rig) -> None:
    topic = rig.new_topic(1)
    gone = when(lambda: rig.delete_topic(topic))
    with (
        FaultyBrokers(rig.client, {6: gone}) as brokers,
        pytest.raises(KafkaError, match=f"topic '{topic}' does not exist"),
    ):
        Write(rig, brokers.bootstrap_servers, topic).run()


def test_a_topic_that_is_created_again_is_told(rig: Rig) -> None:
    topic = rig.new_topic(1)

    def replace() -> None:
        rig.delete_topic(topic)
        rig.cluster.create_topic(topic, 1)

    told = f"topic '{topic}' was deleted and created again during the write"
    with (
        FaultyBrokers(rig.client, {6: when(replace)}) as brokers,
        pytest.raises(KafkaError, match=told),
    ):
        Write(rig, brokers.bootstrap_servers, topic).run()
    assert rig.consume(topic) == []


def test_a_topic_that_takes_only_small_batches(rig: Rig) -> None:
    """Python divides the pieces that were refused."""
    topic = rig.new_topic(3, max_message_bytes=40_000)
    write = Write(rig, rig.cluster.bootstrap_servers, topic)
    assert write.run() == ROWS
    assert write.rows > 1
    assert_each_once(rig, topic)


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_killed_task_waits_for_nobody(rig: Rig, how: str) -> None:
    topic = rig.new_topic(1)
    stopped = threading.Event()
    threads = rig.spark.sparkContext._jvm.java.lang.Thread
    thread = threads.currentThread()
    with FaultyBrokers(rig.client, {3: when(stopped.set, hole)}) as brokers:
        write = Write(rig, brokers.bootstrap_servers, topic)

        def kill() -> None:
            assert stopped.wait(60)
            if how == "killed":
                write.jvm.context.markInterrupted("killed by the test")
            else:
                thread.interrupt()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Py4JJavaError, match="TaskKilledException"):
            write.run(patience=1_000_000)
        killer.join()
        threads.interrupted()
        wait_for(lambda: all(each.closed for each in brokers.connections))


def test_a_task_that_was_killed_before_sends_nothing(rig: Rig) -> None:
    topic = rig.new_topic(1)
    write = Write(rig, rig.cluster.bootstrap_servers, topic)
    write.jvm.context.markInterrupted("killed by the test")
    with pytest.raises(Py4JJavaError, match="TaskKilledException"):
        write.run()
    assert rig.consume(topic) == []
