"""DataFrames of tiered topics: most records are in the remote_dir only."""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import sparklog
from sparklog.types import OffsetSpec, TopicPartition
from tests.spark.dataframe_rig import Rig, SharedRig
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark
SHARES_CLUSTER = True

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiered_topic.py"
PARTITIONS = 2
RECORDS = 20_000
START_MS = 1_700_000_000_000
TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": 200_000,
    "local_retention_bytes": 200_000,
}


def local_starts(rig: Rig, topic: str) -> list[int]:
    """The first offset of each partition that is on the brokers' disks."""
    wanted = {TopicPartition(topic, n): int(OffsetSpec.EARLIEST_LOCAL) for n in range(PARTITIONS)}
    return [found.offset for found in rig.client.list_offsets(wanted).values()]


@pytest.fixture(scope="module")
def tiered(shared_rig: SharedRig) -> str:
    """Record n is in partition n % 2, and one second newer than the one before it."""
    rig = shared_rig.get()
    topic = rig.new_topic(PARTITIONS, **TIERED)
    frame = rig.spark.range(0, RECORDS, 1, 1).selectExpr(
        "string(id) AS key",
        "rpad(string(id), 200, ' ') AS value",
        f"int(id % {PARTITIONS}) AS partition",
        f"timestamp_millis({START_MS} + 1000 * id) AS timestamp",
    )
    rig.write(frame, topic, kafka__batch__size=20_000)
    wait_for(lambda: min(local_starts(rig, topic)) > RECORDS // PARTITIONS * 0.7)
    return topic


def totals(frame: Any) -> tuple[int, int]:
    """The number of rows, and the sum of the numbers in their values."""
    (row,) = frame.selectExpr("count(*)", "sum(int(trim(string(value))))").collect()
    return row[0], row[1]


def expected(first: int, end: int) -> tuple[int, int]:
    return end - first, sum(range(first, end))


def test_a_read_has_every_record_of_both_tiers(rig: Rig, tiered: str) -> None:
    assert totals(rig.read(tiered)) == expected(0, RECORDS)
    assert rig.read(tiered).groupBy().count().collect() == [(RECORDS,)]
    with rig.conf("spark.sparklog.packed.reads", "false"):
        assert totals(rig.read(tiered, minPartitions=8)) == expected(0, RECORDS)


def test_bounds_by_time_lie_in_either_tier(rig: Rig, tiered: str) -> None:
    for first, end in ((100, 300), (5_001, RECORDS - 10)):
        options = {
            "startingTimestamp": START_MS + 1000 * first,
            "endingTimestamp": START_MS + 1000 * end,
        }
        assert totals(rig.read(tiered, **options)) == expected(first, end)


def test_a_filter_on_the_timestamp_loses_nothing(rig: Rig, tiered: str) -> None:
    low, high = (f"timestamp_millis({START_MS + 1000 * n})" for n in (1_000, 3_000))
    frame = rig.read(tiered)
    assert totals(frame.where(f"timestamp >= {low}")) == expected(1_000, RECORDS)
    between = frame.where(f"timestamp >= {low} AND timestamp < {high}")
    assert totals(between) == expected(1_000, 3_000)


# from the bucket


def in_bucket(rig: Rig, topic: str) -> tuple[dict[str, Any], tuple[int, int]]:
    """The option that ends a read where the brokers' files begin, and the totals of such a read."""
    starts = local_starts(rig, topic)
    numbers = [
        PARTITIONS * offset + partition
        for partition, start in enumerate(starts)
        for offset in range(start)
    ]
    ends = {topic: {str(partition): start for partition, start in enumerate(starts)}}
    return {"endingOffsets": json.dumps(ends)}, (len(numbers), sum(numbers))


@pytest.mark.parametrize("packed", ["true", "false"])
def test_brokers_send_nothing_of_what_is_in_the_bucket(rig: Rig, tiered: str, packed: str) -> None:
    options, wanted = in_bucket(rig, tiered)
    before = rig.counted("bytes_out", tiered)
    with rig.conf("spark.sparklog.packed.reads", packed):
        assert totals(rig.read(tiered, **options)) == wanted
        assert totals(rig.read(tiered, minPartitions=9, **options)) == wanted
        assert rig.counted("bytes_out", tiered) == before
        assert totals(rig.read(tiered, remoteReads="brokers", **options)) == wanted
    assert rig.counted("bytes_out", tiered) > before


def test_a_day_in_the_bucket_is_read_without_the_brokers(rig: Rig, tiered: str) -> None:
    low, high = (f"timestamp_millis({START_MS + 1000 * n})" for n in (1_000, 1_200))
    options, _ = in_bucket(rig, tiered)
    before = rig.counted("bytes_out", tiered)
    frame = rig.read(tiered, **options).where(f"timestamp >= {low} AND timestamp < {high}")
    assert totals(frame) == expected(1_000, 1_200)
    assert rig.counted("bytes_out", tiered) == before


def test_aborted_transactions_stay_hidden_in_both_tiers(rig: Rig) -> None:
    topic = rig.new_topic(PARTITIONS, **TIERED)
    committed: list[int] = []
    with sparklog.Producer(rig.cluster.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(40):
            producer.begin_transaction()
            values = range(100 * number, 100 * (number + 1))
            for value in values:
                record = str(value).ljust(1_000).encode()
                producer.send(topic, record, partition=value % PARTITIONS)
            producer.flush()  # otherwise an abort drops the records
            if number % 3:
                producer.commit_transaction()
                committed += values
            else:
                producer.abort_transaction()
    wait_for(lambda: min(local_starts(rig, topic)) > 1_200)
    assert totals(rig.read(topic)) == (len(committed), sum(committed))
    everything = rig.read(topic, kafka__isolation__level="read_uncommitted")
    assert totals(everything) == expected(0, 4_000)
    options = {"endingOffsets": json.dumps({topic: {"0": 1_000, "1": 1_000}})}
    before = rig.counted("bytes_out", topic)
    assert rig.read(topic, **options).count() > 0
    assert rig.counted("bytes_out", topic) == before


def test_the_example(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    run_path(str(EXAMPLE))["main"](rig.spark, rig.cluster)
    sizes, remote, *counts = capsys.readouterr().out.splitlines()
    assert sizes.startswith("20000 clicks, ")
    assert bytes_in(sizes.split(", ", 1)[1]) <= 600_000
    assert bytes_in(remote.removeprefix("the remote_dir has ")) > 20_000 * 200 * 0.9
    assert counts == ["500 clicks in the first 500 seconds", "20000 clicks in both tiers"]


def bytes_in(text: str) -> int:
    return int(text.split(" bytes")[0].replace(",", ""))


def test_an_unknown_choice_is_an_error(rig: Rig, tiered: str) -> None:
    with pytest.raises(Exception, match="option remoteReads='yes': expected one of direct, "):
        rig.read(tiered, remoteReads="yes")
