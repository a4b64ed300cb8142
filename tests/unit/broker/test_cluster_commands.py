"""What the command line says about brokers and replicas, before and after a broker is gone."""

import json

import pytest
from cli_rig import command_line

from sparklog.cli.app import run


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
            "partitions": [partition(number, leader) for leader, number in home.items()],
        }
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
        title, columns, _, row = line.text("topics", "describe", "t")
        assert title.startswith("Topic t, id ")
        assert columns.split()[:4] == ["partition", "leader", "leader_epoch", "replicas"]
        assert row.split() == ["0", "1", "0", "1", "1", "-", "-", "ok", "0", "0"]
