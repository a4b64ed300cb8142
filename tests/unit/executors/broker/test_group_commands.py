"""What the command line says about consumer groups, and what it sets and deletes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from sparklog import Consumer
from sparklog.client.blocking import BlockingClient
from sparklog.types import TopicPartition
from tests.unit.executors.broker.cli_rig import CommandLine, command_line

T0 = TopicPartition("t", 0)
#: The first record's time in milliseconds; each of the others is a second later.
FIRST_MS = int(datetime(2026, 1, 31, 13, tzinfo=UTC).timestamp() * 1000)


@contextmanager
def group_line(capsys: pytest.CaptureFixture[str], committed: int = 2) -> Iterator[CommandLine]:
    """Topic ``t`` with ten records in partition 0 of two, and group ``g`` without members."""
    with command_line(1, capsys, offsets_topic_num_partitions="1") as line:
        line.json("topics", "create", "t", "-p", "2")
        with BlockingClient(f"127.0.0.1:{line.rig.control.port}") as client:
            with client.producer() as producer:
                for n in range(10):
                    producer.send("t", b"v", partition=0, timestamp=FIRST_MS + 1000 * n)
            client.admin.alter_group_offsets("g", {T0: committed})
        yield line


@contextmanager
def member(line: CommandLine) -> Iterator[Consumer]:
    """A member of ``g`` that has both partitions."""
    with Consumer(f"127.0.0.1:{line.rig.control.port}", group_id="g") as consumer:
        consumer.subscribe(["t"])
        while len(consumer.assignment) < 2:
            consumer.poll(0.1)
        yield consumer


def offset_row(partition: int, committed: int | None, log_end: int, lag: int | None) -> Any:
    nobody = {"member": None, "client": None, "host": None}
    row = {"topic": "t", "partition": partition, "committed": committed, "log_end": log_end}
    return row | {"lag": lag} | nobody


def test_a_group_with_and_without_members(capsys: pytest.CaptureFixture[str]) -> None:
    with group_line(capsys) as line:
        listed = {"group": "g", "state": "Empty", "type": "classic", "protocol": "consumer"}
        rows = line.json("groups", "list")
        assert rows == [listed | {"protocol": rows[0]["protocol"], "coordinator": 1}]
        assert line.json("groups", "list", "--state", "Stable") == []
        assert line.text("groups", "list", "--state", "Stable") == ["There are no groups."]
        assert line.json("groups", "describe") == [
            {
                "group": "g",
                "state": "Empty",
                "protocol": rows[0]["protocol"],
                "assignor": "",
                "coordinator": 1,
                "lag": 8,
                "members": [],
                "offsets": [offset_row(0, 2, 10, 8)],
            }
        ]
        with member(line):
            (document,) = line.json("groups", "describe", "g")
            (found,) = document["members"]
            assert (found["client"], found["partitions"]) == ("sparklog", ["t-0", "t-1"])
            owner = {name: found[name] for name in ("member", "client", "host")}
            assert document["offsets"][0] == offset_row(0, 2, 10, 8) | owner
            lines = line.text("groups", "describe", "g")
            assert lines[0].startswith("Group g, Stable, coordinator 1, 1 member, range, lag ")
            assert lines[1].split() == [
                *("topic", "partition", "committed", "log_end", "lag"),
                *("member", "client", "host"),
            ]
            assert lines[3].split()[:6] == ["t", "0", "2", "10", "8", found["member"]]


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "4"], 4),
        (["--to-offset", "99"], 10),
        (["--to-datetime", "2026-01-31T13:00:05"], 5),
        (["--to-datetime", "2026-01-31T15:00:04.500+02:00"], 5),
        (["--to-datetime", "2027-01-01"], 10),
        (["--shift-by", "3"], 5),
        (["--shift-by", "-3"], 0),
    ],
)
def test_offsets_are_shown_first_and_set_on_demand(
    capsys: pytest.CaptureFixture[str], options: list[str], offset: int
) -> None:
    with group_line(capsys) as line:
        row = {"topic": "t", "partition": 0, "committed": 2, "new_offset": offset}
        shown = line.json("groups", "reset-offsets", "g", *options)
        assert shown == [row | {"log_end": 10, "lag": 10 - offset}]
        assert line.json("groups", "describe", "g")[0]["offsets"] == [offset_row(0, 2, 10, 8)]
        assert line.json("groups", "reset-offsets", "g", *options, "--execute") == shown
        after = offset_row(0, offset, 10, 10 - offset)
        assert line.json("groups", "describe", "g")[0]["offsets"] == [after]


def test_offsets_of_named_partitions_are_set_and_deleted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with group_line(capsys) as line:
        lines = line.text("groups", "reset-offsets", "g", "--to-latest", "-t", "t", "--execute")
        assert [each.split() for each in lines[2:4]] == [
            ["t", "0", "2", "10", "10", "0"],
            ["t", "1", "-", "0", "0", "0"],
        ]
        assert lines[-1] == "Set 2 offsets."
        dry = line.text("groups", "reset-offsets", "g", "--to-offset", "1", "-t", "t", "-p", "0")
        assert dry[-1] == "Nothing is set yet: --execute."
        deleted = line.json("groups", "delete-offsets", "g", "-t", "t", "-p", "1")
        assert deleted == [{"topic": "t", "partition": 1}]
        assert line.text("groups", "delete-offsets", "g", "-t", "t") == [
            "Deleted 1 offset of group g."
        ]
        assert line.run("groups", "delete", "g")[:2] == (0, "Deleted group g.\n")
        assert line.text("groups", "describe") == ["There are no groups."]


def test_errors_say_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def error(*arguments: str) -> str:
        code, out, errors = line.run("groups", *arguments)
        assert (code, out) == (1, "")
        return errors

    with group_line(capsys) as line:
        unknown = "sparklog: GROUP_ID_NOT_FOUND: there is no group 'x'\n"
        for command in (
            ["describe", "x"],
            ["reset-offsets", "x", "--to-latest"],
            ["delete", "x"],
            ["delete-offsets", "x", "-t", "t"],
        ):
            assert error(*command) == unknown
        for command in (["reset-offsets", "g", "--to-latest"], ["delete-offsets", "g"]):
            assert "UNKNOWN_TOPIC_OR_PARTITION" in error(*command, "-t", "none")
            assert error(*command, "-t", "t", "-p", "7") == (
                "sparklog: UNKNOWN_TOPIC_OR_PARTITION: "
                "topic t has 2 partitions and no partition 7\n"
            )
        assert "t-1 cannot be shifted: it has no committed offset" in error(
            "reset-offsets", "g", "--shift-by", "1", "-t", "t"
        )
        with member(line):
            assert error("reset-offsets", "g", "--to-latest", "--execute") == (
                "sparklog: NON_EMPTY_GROUP: the group 'g' is Stable with 1 member; "
                "stop them first\n"
            )
            assert error("delete", "g") == (
                "sparklog: NON_EMPTY_GROUP: the group 'g' has members; stop them first\n"
            )
            assert "GROUP_SUBSCRIBED_TO_TOPIC" in error("delete-offsets", "g", "-t", "t")
        code, out, errors = line.run("groups", "delete", "x", "g")
        assert (code, out, errors) == (1, "Deleted group g.\n", unknown)
