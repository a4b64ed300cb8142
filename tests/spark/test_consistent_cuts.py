"""DataFrames over several partitions while a producer commits transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

import sparklog
from tests.spark.dataframe_rig import Rig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True
PARTITIONS = 3


@contextmanager
def committing(rig: Rig, topic: str, name: str) -> Iterator[list[int]]:
    """Commits transactions of one record for each partition; gives the numbers of those."""
    over, committed = Event(), list[int]()

    def produce() -> None:
        with sparklog.Producer(rig.cluster.bootstrap_servers, transactional_id=name) as producer:
            producer.init_transactions()
            while not over.is_set():
                number = len(committed)
                with producer.transaction():
                    for partition in range(PARTITIONS):
                        value = f"{name} {number}".encode()
                        producer.send(topic, value, partition=partition)
                committed.append(number)

    thread = Thread(target=produce)
    thread.start()
    try:
        wait_for(lambda: committed)
        yield committed
    finally:
        over.set()
        thread.join()


def test_a_dataframe_has_all_records_of_a_transaction_or_none(rig: Rig) -> None:
    topic = rig.new_topic(PARTITIONS)
    with committing(rig, topic, "one") as first, committing(rig, topic, "two") as second:
        for _ in range(4):
            before = len(first) + len(second)
            frame = rig.read(topic, consistentCut="require").selectExpr("string(value) AS value")
            counts = {row.value: row["count"] for row in frame.groupBy("value").count().collect()}
            assert set(counts.values()) == {PARTITIONS}
            assert len(counts) >= before
    wait_for(
        lambda: rig.read(topic).count() == PARTITIONS * (len(first) + len(second))
    )  # the last markers


def test_an_unknown_choice_is_an_error(rig: Rig) -> None:
    topic = rig.new_topic(1)
    with pytest.raises(Exception, match="option consistentCut='yes': expected one of require"):
        rig.read(topic, consistentCut="yes")
