"""What the command line says about brokers and replicas, before and after a broker is gone."""

import json
from pathlib import Path

import pytest

from sparklog.cli.app import run
from sparklog.config import TOPIC_SETTINGS
from tests.unit.executors.broker.broker_rig import Rig
from tests.unit.executors.broker.cli_rig import command_line


def test_brokers_and_what_they_carry(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "3")
        rows = line.json("brokers")
        ports = {n: f"127.0.0.1:{broker.port}" for n, broker in line.rig.brokers.items()}
        counts = {row["broker"]: row["replicas"] for row in rows}
        assert sorted(counts.values()) == [1, 2]
        assert rows == [
            {
                "broker": number,
                "endpoint": ports[number],
                "rack": rows[number - 1]["rack"],
                "state": "alive",
                "replicas": counts[number],
                "in_sync": counts[number],
                "leads": counts[number],
                "prefers": counts[number],
            }
            for number in (1, 2)
        ]
        line.do(lambda rig: rig.stop_broker(2))
        gone = line.json("brokers")[1]
        assert (gone["state"], gone["leads"], gone["replicas"]) == ("fenced", 0, counts[2])
        assert line.text("brokers")[0].split() == list(rows[0])


def test_a_topic_before_and_after_its_broker_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "2", "-c", "retention.ms=-1")
        before = line.json("topics", "describe", "t")
        home = {row["leader"]: row["partition"] for row in before["partitions"]}
        assert before == {
            "topic": "t",
            "topic_id": before["topic_id"],
            "configs": {"retention.ms": "-1"},
            "effective_configs": before["effective_configs"],
            "partitions": [partition(number, leader) for leader, number in home.items()],
        }
        effective = before["effective_configs"]
        assert effective["retention.ms"] == {"value": "-1", "from": "topic"}
        assert effective["cleanup.policy"] == {"value": "delete", "from": "default"}
        assert effective.keys() == {setting.name for setting in TOPIC_SETTINGS}
        assert line.text("topics", "describe", "--under-replicated") == ["There are none."]
        line.do(lambda rig: rig.stop_broker(2))
        lost = partition(home[2], 2) | {
            "leader": None,
            "leader_epoch": 1,
            "isr": [],
            "eligible": [2],
            "offline": [2],
            "state": "offline",
            "earliest": None,
            "latest": None,
        }
        after = line.json("topics", "describe", "--under-replicated")
        assert [topic["partitions"] for topic in after] == [[lost]]
        assert line.json("topics", "describe", "t")["partitions"][home[1]] == partition(home[1], 1)


def partition(number: int, leader: int) -> dict[str, object]:
    return {
        "partition": number,
        "leader": leader,
        "leader_epoch": 0,
        "replicas": [leader],
        "isr": [leader],
        "eligible": [],
        "offline": [],
        "adding": [],
        "removing": [],
        "state": "ok",
        "earliest": 0,
        "latest": 0,
    }


def test_without_a_control_plane_brokers_tell_what_they_know(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.cli.topics.DETAIL_SECONDS", 1.0)
    monkeypatch.setattr("sparklog.client.replica_admin.CONTROLLER_S_MAX", 0.1)
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        before = line.json("topics", "describe", "t")
        line.do(lambda rig: rig.stop_control())
        address = f"127.0.0.1:{line.rig.brokers[1].port}"
        assert run(["topics", "describe", "t", "--json", "-b", address]) == 0
        assert json.loads(capsys.readouterr().out) == before


def test_the_table_of_a_topic_shows_lists_with_commas(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        title, columns, _, row, empty, *settings = line.text("topics", "describe", "t")
        assert title.startswith("Topic t, id ")
        assert columns.split()[:4] == ["partition", "leader", "leader_epoch", "replicas"]
        assert row.split() == ["0", "1", "0", "1", "1", "-", "-", "ok", "0", "0"]
        assert (empty, settings[0].split()) == ("", ["setting", "value", "from"])
        assert ["retention.ms", "604800000", "default"] in map(str.split, settings)


def test_settings_in_force_and_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "a", "-p", "1", "-c", "retention.ms=7")
        line.json("topics", "create", "b", "-p", "1")
        rows = [
            row
            for row in line.json("configs", "describe", "retention.ms")
            if row["name"].removeprefix("log.") == "retention.ms"
        ]
        assert [(row["of"], row["name"], row["value"], row["from"]) for row in rows] == [
            ("topic a", "retention.ms", "7", "topic"),
            ("topic b", "retention.ms", "604800000", "default"),
            *((f"broker {n}", "log.retention.ms", None, "default") for n in (0, 1, 2)),
        ]
        [row] = line.json("configs", "describe", "heartbeat.interval", "--broker", "2")
        assert row == {
            "of": "broker 2",
            "name": "broker.heartbeat.interval.ms",
            "value": "50",
            "from": "broker, at start",
            "changes": "at start",
        }
        line.do(lambda rig: throttle(rig, 2))
        [row] = line.json(
            "configs", "describe", "leader.replication.throttled.rate", "--broker", "2"
        )
        assert (row["value"], row["from"]) == ("9", "broker, while running")
        named = line.text("configs", "describe", "--topic", "a")
        assert named[0].split() == ["of", "name", "value", "from", "changes"]
        assert {each.split()[1] for each in named[2:]} == {"a"}
        code, out, errors = line.run("configs", "describe", "--topic", "none")
        assert (code, out) == (1, "")
        assert "none" in errors
        assert line.run("configs", "describe", "no-such-setting")[0] == 1


def test_settings_are_altered_checked_and_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    def in_force(word: str, *more: str) -> dict[str, tuple[str, str]]:
        rows = line.json("configs", "describe", word, *more)
        return {row["name"]: (row["value"], row["from"]) for row in rows}

    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        changes = ("--set", "max.message.bytes=77", "--set", "cleanup.policy=compact,delete")
        of_topic = ("configs", "alter", "--topic", "t")
        assert line.json(*of_topic, *changes, "--dry-run") == {
            "of": "topic t",
            "changes": {"max.message.bytes": "77", "cleanup.policy": "compact,delete"},
            "dry_run": True,
        }
        default = {"max.message.bytes": ("1048588", "default")}
        assert in_force("max.message.bytes", "-t", "t") == default
        assert line.text(*of_topic, *changes) == [
            "Altered topic t: max.message.bytes=77, cleanup.policy=compact,delete."
        ]
        assert in_force("max.message.bytes", "-t", "t") == {"max.message.bytes": ("77", "topic")}
        for bad, said in (
            ("retention.mss=1", "did you mean retention.ms?"),
            ("retention.ms=soon", "retention.ms"),
        ):
            code, out, errors = line.run(*of_topic, "--set", bad, "--delete", "max.message.bytes")
            assert (code, out) == (1, "")
            assert said in errors
        assert line.text(*of_topic, "--delete", "max.message.bytes", "-d", "cleanup.policy") == [
            "Altered topic t: no max.message.bytes, no cleanup.policy."
        ]
        assert in_force("max.message.bytes", "-t", "t") == default
        rate = "leader.replication.throttled.rate"
        line.text("configs", "alter", "--all-brokers", "--set", f"{rate}=7")
        line.text("configs", "alter", "--broker", "1", "--set", f"{rate}=9")
        assert in_force(rate, "--broker", "1") == {rate: ("9", "broker, while running")}
        line.text("configs", "alter", "--broker", "1", "--delete", rate)
        assert in_force(rate, "--broker", "1") == {rate: ("7", "all brokers, while running")}
        assert line.run("configs", "alter", "--topic", "none", "--set", "retention.ms=1")[0] == 1


async def throttle(rig: Rig, broker_id: int) -> None:
    client = await rig.client()
    await client.alter(4, str(broker_id), leader_replication_throttled_rate="9")


def test_partitions_that_a_topic_does_not_have_are_not_elected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "2")
        code, out, errors = line.run("elect-leaders", "t", "-p", "1", "-p", "7")
        assert (code, out) == (1, "")
        assert "topic t has 2 partitions and no partition 7" in errors
        assert line.run("elect-leaders", "t", "-p", "1")[0] == 0


def test_an_offset_behind_the_end_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        line.do(lambda rig: rig.leads(1))
        for more in (["-e"], []):
            code, out, errors = line.run("consume", "t", "-o", "5", *more)
            assert (code, out) == (1, "")
            assert "OFFSET_OUT_OF_RANGE" in errors
        assert "t-0 ends at offset 0, before offset 5" in line.run("consume", "t", "-o5", "-e")[2]
        assert line.run("consume", "t", "-o", "0", "-e")[:2] == (0, "")


def test_the_line_that_was_too_large_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1", "-c", "max.message.bytes=1000")
        line.do(lambda rig: rig.leads(1))
        lines.write_bytes(b"one\n" + b"x" * 5000 + b"\n\nfour\n")
        with lines.open("rb") as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            code, out, errors = line.run("produce", "t", "--json")
        assert code == 1
        assert json.loads(out) == {"topic": "t", "produced": 3, "failed": 1, "failed_lines": [2]}
        assert errors.startswith("sparklog: line 2 of the input: MESSAGE_TOO_LARGE: t-0: the batch")
        assert line.run("consume", "t", "--from-beginning", "-e")[1] == "one\n\nfour\n"
        monkeypatch.setattr("sparklog.cli.produce.LINE_BYTES_MAX", 3)
        with lines.open("rb") as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            code, out, errors = line.run("produce", "t")
        assert code == 1
        assert "line 2 of the input is longer than 3 bytes" in errors


def test_records_are_written_from_a_file_and_copied_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"a:1\n2\n")
    options = ("-K", ":", "-k", "z", "-H", "h=1", "-H", "i=", "--timestamp", "77", "-p", "1")
    with command_line(1, capsys, group_initial_rebalance_delay_ms="0") as line:
        for topic in ("t", "copy"):
            line.json("topics", "create", topic, "-p", "2")
        done = line.json("produce", "t", "--file", str(lines), *options)
        assert done == {"topic": "t", "produced": 2, "failed": 0}
        read = ("--from-beginning", "-e", "-f", "%t-%p@%o %T %h %k=%s;")
        assert line.run("consume", "t", *read)[1] == ("t-1@0 77 h=1,i= a=1;t-1@1 77 h=1,i= z=2;")
        records = line.run("consume", "t", "--from-beginning", "-e", "-f", "json")[1]
        lines.write_text(
            f'{records}{{"value": 3}}\n{{"value": null, "key": "a", "partition": 9}}\n'
        )
        code, out, errors = line.run(
            "produce", "copy", "--file", str(lines), "-f", "json", "--json"
        )
        assert code == 1
        assert json.loads(out) == {
            "topic": "copy",
            "produced": 2,
            "failed": 2,
            "failed_lines": [3, 4],
        }
        assert errors.startswith("sparklog: line 3 of the input: value is not a text, null or")
        assert line.run("consume", "copy", *read)[1] == (
            "copy-1@0 77 h=1,i= a=1;copy-1@1 77 h=1,i= z=2;"
        )
        group = line.run("consume", "copy", "--group", "g", *read)[1]
        assert group == line.run("consume", "copy", *read)[1]
