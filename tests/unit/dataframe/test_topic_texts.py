"""The display of a topic in a notebook, and options given as values."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sparklog import topic
from sparklog.dataframe.options.option_values import option_texts
from sparklog.errors import ConfigError, StartError


def test_options_as_values() -> None:
    assert option_texts(
        {
            "includeHeaders": True,
            "minPartitions": 8,
            "startingTimestamp": datetime(2024, 1, 1, tzinfo=UTC),
            "endingOffsets": {"t": {0: 5}},
            "startingOffsets": "earliest",
            "failOnDataLoss": None,
        }
    ) == {
        "includeHeaders": "true",
        "minPartitions": "8",
        "startingTimestamp": "1704067200000",
        "endingOffsets": '{"t": {"0": 5}}',
        "startingOffsets": "earliest",
    }


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 KB"), (2**60, "1152921.5 TB")],
)
def test_sizes_are_shown_with_a_unit(size: int, shown: str) -> None:
    assert topic._size_text(size) == shown


def test_times_that_no_calendar_has_are_shown_as_numbers() -> None:
    assert topic._timestamp_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert topic._timestamp_text(2**62) == str(2**62)


def test_replicas_that_are_not_in_sync_stand_in_brackets() -> None:
    state = topic.TopicPartitionState(
        partition=0, leader=1, replicas=(1, 2), isr=(1,), earliest=3, latest=10
    )
    assert topic._replicas_text(state) == "1, (2)"
    assert state.records == 7


def test_both_tiers_of_a_topic_are_shown_where_there_are_two() -> None:
    plain = {"leader": 1, "replicas": (1,), "isr": (1,), "earliest": 0, "latest": 10}
    states = [
        topic.TopicPartitionState(
            partition=0, size_bytes=500, remote_bytes=4_000_000, copy_lag_bytes=7_000, **plain
        ),
        topic.TopicPartitionState(partition=1, size_bytes=300, **plain),
    ]
    shown = topic._partitions_html(states)
    for part in ("remote size", "to be copied", "4.0 MB", "7.0 KB"):
        assert part in shown
    assert "remote size" not in topic._partitions_html(states[1:])


def test_only_frames_of_spark_are_written() -> None:
    """The check comes before any call to the session."""
    frames = topic.TopicFrames(object(), "127.0.0.1:1", lambda: None)
    for given, kind in (([1], "list"), (pa.table({"value": ["x"]}), "pyarrow.lib.Table")):
        with pytest.raises(ConfigError, match=f"expected a Spark DataFrame, not {kind}; "):
            frames.write(given, "t")
    without = topic.TopicFrames(None, "127.0.0.1:1", lambda: None)
    for call in (lambda: without.read("t"), lambda: without.write(None, "t")):
        with pytest.raises(StartError, match="this cluster runs without Spark"):
            call()
