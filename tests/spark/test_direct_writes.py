"""Writes whose tasks send from inside the JVM: which ones do, and leaders that fail them."""

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException

from sparklog.client.partitioner import partition_of_key
from sparklog.dataframe.jvm.constants import DIRECT_WRITES_CONF
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.spark.dataframe_rig import Rig
from tests.spark.launcher_rig import broker_processes, kill
from tests.support.faulty_brokers import (
    Fault,
    FaultyBrokers,
    hole,
    lost_answer,
    lost_request,
    silence,
    when,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

#: The version that only the JVM's requests have.
FROM_THE_JVM = (InitProducerIdRequest.API_KEY, 0)
#: About 40 pieces of two tasks.
ROWS = 80_000
TASKS = 2
KEY = "string(id % 1000) AS key"


def numbered(rig: Rig, rows: int = ROWS, *more: str) -> Any:
    value = "rpad(string(id), 100, ' ') AS value"
    return rig.spark.range(0, rows, 1, TASKS).selectExpr(value, *more)


def assert_each_once(rig: Rig, topic: str) -> None:
    """Each number, and each task's in order; keys are in their own partition."""
    held: dict[int, list[int]] = {}
    partitions = len(rig.client.topic(topic).partitions)
    for record in rig.consume(topic):
        if record.key is not None:
            assert record.partition == partition_of_key(record.key, partitions)
        held.setdefault(record.partition, []).append(int(record.value or b""))
    assert sorted(number for partition in held.values() for number in partition) == list(
        range(ROWS)
    )
    for partition in held.values():
        for task in range(TASKS):
            own = [number for number in partition if number * TASKS // ROWS == task]
            assert own == sorted(own)


def write_with(
    rig: Rig, topic: str, faults: dict[int, Fault], *more: str, **options: str
) -> FaultyBrokers:
    """``more`` columns."""
    with FaultyBrokers(rig.client, faults) as brokers:
        servers = {"kafka__bootstrap__servers": brokers.bootstrap_servers}
        frame = numbered(rig, ROWS, *more)
        rig.write(frame, topic, kafka__batch__size="300000", **servers, **options)
    assert brokers.produced >= max(faults, default=1)
    assert not faults or FROM_THE_JVM in brokers.seen
    return brokers


def is_whole(rig: Rig, topic: str) -> bool:
    """Every broker is there, and has what the others have."""
    (partition,) = rig.client.metadata([topic]).topics[topic].partitions.values()
    return len(partition.isr) == 3 and not any(node.fenced for node in rig.cluster.brokers())


@pytest.fixture
def replicated(rig: Rig) -> Iterator[str]:
    """A topic of one partition; ends when all brokers have it again."""
    name = f"direct-{next(rig.numbers)}"
    rig.cluster.create_topic(name, 1, 3, {"retention.ms": -1})
    yield name
    wait_for(lambda: is_whole(rig, name))


def leader(rig: Rig, topic: str) -> Any:
    found = rig.client.metadata([topic])
    port = found.nodes[found.topics[topic].partitions[0].leader].port
    (process,) = [
        process
        for process in broker_processes()
        if any(link.laddr.port == port for link in process.net_connections() if not link.raddr)
    ]
    return process


@pytest.mark.parametrize("codegen", ["true", "false"])
def test_all_goes_well(rig: Rig, codegen: str) -> None:
    topic = rig.new_topic(3)
    with rig.conf("spark.sql.codegen.wholeStage", codegen):
        brokers = write_with(rig, topic, {})
    assert FROM_THE_JVM in brokers.seen
    assert len({version for key, version in brokers.seen if key == FROM_THE_JVM[0]}) == 1
    assert_each_once(rig, topic)


@pytest.mark.parametrize("fault", [lost_request, lost_answer])
@pytest.mark.parametrize("codegen", ["true", "false"])
def test_connections_that_are_lost(rig: Rig, codegen: str, fault: Fault) -> None:
    topic = rig.new_topic(3)
    with rig.conf("spark.sql.codegen.wholeStage", codegen):
        write_with(rig, topic, dict.fromkeys((4, 11, 17), fault))
    assert_each_once(rig, topic)


@pytest.mark.parametrize("fault", [None, lost_request, lost_answer])
@pytest.mark.parametrize("codegen", ["true", "false"])
def test_rows_with_keys(rig: Rig, codegen: str, fault: Fault | None) -> None:
    topic = rig.new_topic(5)
    faults = {} if fault is None else dict.fromkeys((4, 11, 17), fault)
    with rig.conf("spark.sql.codegen.wholeStage", codegen):
        brokers = write_with(rig, topic, faults, KEY)
    assert FROM_THE_JVM in brokers.seen
    assert_each_once(rig, topic)


def test_rows_with_keys_for_a_topic_that_is_not_there_yet(rig: Rig) -> None:
    """Python makes it, and divides the rows."""
    topic = f"direct-{next(rig.numbers)}"
    brokers = write_with(rig, topic, {}, KEY)
    assert "PackRecords" in rig.last_execution()[1].physicalPlanDescription()
    assert FROM_THE_JVM not in brokers.seen
    assert_each_once(rig, topic)


def test_a_leader_that_dies(rig: Rig, replicated: str) -> None:
    write_with(rig, replicated, {8: when(lambda: kill(leader(rig, replicated).pid))})
    assert_each_once(rig, replicated)


def test_a_leader_that_stands_still(rig: Rig, replicated: str) -> None:
    """Another one is elected; this one hears so when it goes on, with a request in its hands."""
    stopped: list[Any] = []

    def stop() -> None:
        stopped.append(leader(rig, replicated))
        stopped[0].suspend()

    try:
        write_with(rig, replicated, {8: when(stop)})
    finally:
        for process in stopped:
            process.resume()
    # Until then it may say where the log ends, as its leader.
    wait_for(lambda: leader(rig, replicated) != stopped[0] and is_whole(rig, replicated))
    assert_each_once(rig, replicated)


def test_a_leader_that_does_not_answer_in_time(rig: Rig) -> None:
    """Python has all of the time that the option gives."""
    topic = rig.new_topic(1)
    write_with(rig, topic, {3: silence}, kafka__delivery__timeout__ms="3000")
    assert_each_once(rig, topic)


@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_is_deleted(rig: Rig, again: bool) -> None:
    topic = rig.new_topic(1)

    def delete() -> None:
        rig.delete_topic(topic)
        if again:
            rig.cluster.create_topic(topic, 1)

    told = "was deleted and created again during the write" if again else "does not exist"
    with pytest.raises(PySparkException, match=f"topic '{topic}' {told}"):
        write_with(rig, topic, {5: when(delete)})


@pytest.mark.parametrize(
    "options",
    [
        {"kafka__acks": "1"},
        {"kafka__enable__idempotence": "false"},
        {"kafka__compression__type": "lz4"},
        {"partitioner": "random"},
    ],
)
def test_unusual_writes_are_sent_by_python(rig: Rig, options: dict[str, str]) -> None:
    topic = rig.new_topic(3)
    brokers = write_with(rig, topic, {}, **options)
    assert FROM_THE_JVM not in brokers.seen
    assert_each_once(rig, topic)


def test_it_can_be_turned_off(rig: Rig) -> None:
    topic = rig.new_topic(3)
    with rig.conf(DIRECT_WRITES_CONF, " FALSE"):
        brokers = write_with(rig, topic, {})
    assert FROM_THE_JVM not in brokers.seen
    assert_each_once(rig, topic)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka__acks": " ALL "},
        {"kafka__acks": "-1", "kafka__enable__idempotence": "true"},
        {"kafka__compression__type": "none", "kafka__client__id": "me"},
        {"kafka__buffer__memory": "1000"},
    ],
)
def test_the_defaults_may_be_said(rig: Rig, options: dict[str, str]) -> None:
    topic = rig.new_topic(3)
    brokers = write_with(rig, topic, {}, **options)
    assert FROM_THE_JVM in brokers.seen
    assert_each_once(rig, topic)


def rows_for_python(rig: Rig) -> int:
    """As Spark counts the rows of its last write."""
    store, last = rig.last_execution()
    nodes = store.planGraph(last.executionId()).allNodes()
    for index in range(nodes.size()):
        node = nodes.apply(index)
        if node.name().startswith("AppendData"):
            metrics = {
                node.metrics().apply(n).name(): node.metrics().apply(n).accumulatorId()
                for n in range(node.metrics().size())
            }
            told = store.executionMetrics(last.executionId())
            return int(told.apply(metrics["number of output rows"]).replace(",", ""))
    raise AssertionError("it was no write")


def test_the_cluster_of_the_application_is_found(rig: Rig) -> None:
    for more in ((), (KEY,)):
        topic = rig.new_topic(3)
        rig.write(numbered(rig, ROWS, *more), topic)
        assert rows_for_python(rig) == TASKS
        assert_each_once(rig, topic)
    other = rig.new_topic(3)
    with rig.conf(DIRECT_WRITES_CONF, "false"):
        rig.write(numbered(rig), other)
    assert 10 < rows_for_python(rig) < 1000


def test_tasks_without_rows_ask_nobody(rig: Rig) -> None:
    topic = rig.new_topic(1)
    none = numbered(rig).where("value = 'nobody'")
    with FaultyBrokers(rig.client, {}) as brokers:
        rig.write(none, topic, kafka__bootstrap__servers=brokers.bootstrap_servers)
    assert brokers.seen == set()


def test_names_that_are_none_are_told_by_python(rig: Rig) -> None:
    for name in ("a/b", "c\x01", "d" * 250):
        with pytest.raises(PySparkException, match="is not a legal topic name"):
            rig.write(numbered(rig, 10), name)
    topic = rig.new_topic(1)
    rig.write(numbered(rig), f" {topic} ")
    assert_each_once(rig, topic)


@pytest.mark.parametrize("interrupt", [True, False])
def test_a_job_that_is_cancelled_while_nobody_answers(rig: Rig, interrupt: bool) -> None:
    """Its tasks end, and their connections, though they have ten minutes."""
    topic = rig.new_topic(1)
    context = rig.spark.sparkContext
    with FaultyBrokers(rig.client, {}, hole) as brokers:
        failures: list[Exception] = []

        def write() -> None:
            context.setJobGroup("cancelled", "by a test", interrupt)
            try:
                rig.write(
                    numbered(rig),
                    topic,
                    kafka__bootstrap__servers=brokers.bootstrap_servers,
                    kafka__delivery__timeout__ms="600000",
                )
            except (PySparkException, Py4JJavaError) as error:
                failures.append(error)

        writing = InheritableThread(target=write)
        writing.start()
        wait_for(lambda: brokers.produced >= TASKS)
        context.cancelJobGroup("cancelled")
        writing.join(60)
        assert not writing.is_alive()
        wait_for(lambda: all(each.closed for each in brokers.connections), 5)
    assert len(failures) == 1
    assert "cancelled" in str(failures[0])
