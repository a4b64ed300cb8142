import json

import pytest

from sparklog.cli.plan_file import read_plan, write_plan
from sparklog.errors import ConfigError
from sparklog.types import TopicPartition


def row(topic: str, partition: str, replica: str = "1") -> str:
    """A plan of one partition, of any JSON."""
    return (
        f'{{"partitions": [{{"topic": "{topic}", "partition": {partition}, '
        f'"replicas": [{replica}]}}]}}'
    )


PLAN = {TopicPartition("a", 1): (1, 2), TopicPartition("a", 0): (3,)}


def test_a_plan_is_what_the_tools_of_kafka_write() -> None:
    text = write_plan(PLAN)
    assert json.loads(text) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 0, "replicas": [3]},
            {"topic": "a", "partition": 1, "replicas": [1, 2]},
        ],
    }
    assert read_plan(text) == PLAN


def test_what_the_tools_of_kafka_add_is_left_aside() -> None:
    row = {"topic": "a", "partition": 0, "replicas": [3], "log_dirs": ["any"]}
    assert read_plan(json.dumps({"partitions": [row]})) == {TopicPartition("a", 0): (3,)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "is nested too deeply"),
        ('{"partitions":' + "[" * 100_000, "is nested too deeply"),
        (b"\xff\xfe\x00", "is not"),
        (b'{"partitions": ["\xff"]}', "is not text in UTF-8: invalid start byte at byte 17"),
        ('{"version": ' + "9" * 5000 + "}", "is not JSON"),
        ('{"version": ' + "9" * 300 + ', "partitions": []}', f"is of version {'9' * 200}..., 1"),
        ('{"version": 1e400, "partitions": []}', "is of version Infinity, 1"),
        (row("t", "9" * 20), "lacks a topic or a partition"),
        (row("t", "-1"), "lacks a topic or a partition"),
        (row("t", "true"), "lacks a topic or a partition"),
        (row("t", "0", "9" * 20), "t-0 in the plan has no list of broker ids"),
        (row("t", "0", "true"), "t-0 in the plan has no list of broker ids"),
        (row("\\ud800", "0"), "is not the name of a topic"),
        (row("x" * 40_000, "0"), "is not the name of a topic"),
        ('{"partitions": [' + '"' + "x" * 999 + '"]}', f'"{"x" * 199}... in the plan is not'),
        ("{", "is not JSON"),
        ("[]", 'has no "partitions"'),
        ('{"version": 2, "partitions": []}', "is of version 2, 1 is known here"),
        ('{"partitions": [7]}', "7 in the plan is not a partition"),
        ('{"partitions": [{"topic": "a"}]}', '{"topic": "a"} in the plan lacks a topic or a'),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": ["x"]}]}',
            "a-0 in the plan has no list of broker ids as replicas",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]},'
            '{"topic": "a", "partition": 0, "replicas": [2]}]}',
            "the plan names a-0 twice",
        ),
    ],
)
def test_a_plan_that_cannot_be_read_says_why(text: str | bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_plan(text)
    assert reason in str(caught.value)
