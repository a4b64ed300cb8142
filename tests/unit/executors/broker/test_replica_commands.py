"""``sparklog reassign`` and ``sparklog elect-leaders`` against brokers that run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.executors.broker.cli_rig import CommandLine, command_line


def plan_of(**replicas: list[int]) -> str:
    """``t0=[1, 2]``: the replicas of partition 0 of topic t."""
    rows = [
        {"topic": name[0], "partition": int(name[1:]), "replicas": each}
        for name, each in replicas.items()
    ]
    return json.dumps({"version": 1, "partitions": rows})


def replicas(line: CommandLine, topic: str = "t") -> list[list[int]]:
    return [row["replicas"] for row in line.json("topics", "describe", topic)["partitions"]]


def test_a_plan_spreads_over_the_brokers_that_live(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "4")
        line.do(lambda rig: rig.start_broker(2))
        line.do(lambda rig: rig.start_broker(3))
        line.do(lambda rig: rig.stop_broker(3))
        code, out, errors = line.run("reassign", "plan", "t")
        assert (code, errors) == (0, "It changes 2 partitions and copies 2 replicas of 2.\n")
        assert out == plan_of(t0=[2], t1=[2]) + "\n"
        assert (
            json.loads(line.run("reassign", "plan", "t", "--brokers", "1")[1])["partitions"] == []
        )
        code, out, errors = line.run("reassign", "plan", "t", "-r", "3")
        assert (code, out) == (1, "")
        assert "t-0 cannot have 3 replicas on 2 brokers" in errors
        assert "there is no broker 9" in line.run("reassign", "plan", "--brokers", "1,9")[2]
        assert line.run("reassign", "plan", "--brokers", "one")[0] == 2


def test_moves_are_shown_and_taken_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """To a broker that is away, so that they do not end by themselves."""
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "2")
        before = replicas(line)
        home = next(number for number, each in enumerate(before) if each == [1])
        line.do(lambda rig: rig.stop_broker(2))
        assert line.json("reassign", "status") == []
        plan, undo = tmp_path / "plan", tmp_path / "undo"
        plan.write_text(plan_of(**{f"t{home}": [2]}))
        begun = line.json("reassign", "run", str(plan), "--undo", str(undo), "--no-wait")
        assert begun == {"begun": 1, "refused": 0, "done": 0}
        assert json.loads(undo.read_text()) == json.loads(plan_of(**{f"t{home}": [1]}))
        moving = {
            "topic": "t",
            "partition": home,
            "replicas": [2, 1],
            "adding": [2],
            "removing": [1],
        }
        assert line.json("reassign", "status") == [moving]
        assert line.text("reassign", "status")[2].split() == [
            *("t", str(home), "2,1", "2", "1"),
        ]
        shown = line.json("topics", "describe", "t")["partitions"][home]
        assert (shown["state"], shown["adding"], shown["removing"]) == ("moving", [2], [1])
        assert line.json("reassign", "cancel", "other") == {"cancelled": 0}
        assert line.json("reassign", "cancel") == {"cancelled": 1}
        assert (line.json("reassign", "status"), replicas(line)) == ([], before)


def test_moves_are_throttled_until_the_limit_is_taken_away(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        [[home]] = replicas(line)
        away = 3 - home
        line.do(lambda rig: rig.stop_broker(away))
        plan = tmp_path / "plan"
        plan.write_text(plan_of(t0=[away]))
        options = ("--throttle", "1000000", "--no-wait")
        assert line.json("reassign", "run", str(plan), *options)["begun"] == 1
        assert line.json("topics", "describe", "t")["configs"] == {
            "leader.replication.throttled.replicas": f"0:{home}",
            "follower.replication.throttled.replicas": f"0:{away}",
        }
        rates = {f"{each}.replication.throttled.rate" for each in ("leader", "follower")}
        overrides = line.rig.control.image.broker_overrides(home)
        assert {name: overrides[name] for name in rates} == dict.fromkeys(rates, "1000000")
        line.json("reassign", "cancel")
        line.text("reassign", "unthrottle")
        assert line.json("topics", "describe", "t")["configs"] == {}
        assert line.rig.control.image.broker_overrides(home) == {}


def test_a_plan_that_is_refused_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        plan = tmp_path / "plan"
        plan.write_text(plan_of(t0=[9]))
        code, out, errors = line.run("reassign", "run", str(plan))
        assert (code, out) == (1, "0 of 1 partitions have the replicas of the plan.\n")
        assert "t-0: INVALID_REPLICA_ASSIGNMENT" in errors
        assert line.run("reassign", "run", str(tmp_path / "none"))[0] == 2
        plan.write_text("{")
        assert "the plan is not JSON" in line.run("reassign", "run", str(plan))[2]


def test_a_plan_is_carried_out_and_undone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "2")
        before = replicas(line)
        plan, undo = tmp_path / "plan", tmp_path / "undo"
        plan.write_text(line.run("reassign", "plan", "t", "-r", "2")[1])
        options = ("--undo", str(undo), "--throttle", "1000000")
        assert line.json("reassign", "run", str(plan), *options) == {
            "begun": 2,
            "refused": 0,
            "done": 2,
        }
        document = line.json("topics", "describe", "t")
        assert [(sorted(row["isr"]), row["state"]) for row in document["partitions"]] == [
            ([1, 2], "ok")
        ] * 2
        assert document["configs"] == {}
        code, out, _ = line.run("reassign", "run", str(undo))
        assert (code, out) == (0, "2 of 2 partitions have the replicas of the plan.\n")
        assert replicas(line) == before


def test_a_broker_that_is_back_leads_again_when_it_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "2", "-r", "2")
        preferred = [row["leader"] for row in line.json("topics", "describe", "t")["partitions"]]
        assert sorted(preferred) == [1, 2]
        away = preferred.index(2)
        line.do(lambda rig: rig.stop_broker(2))
        [lost] = line.json("topics", "describe", "--under-replicated")
        assert [(row["leader"], row["isr"], row["state"]) for row in lost["partitions"]] == [
            (1, [1], "under-replicated")
        ] * 2
        code, out, errors = line.run("elect-leaders", "t", "-p", str(away), "--json")
        assert (code, errors) == (1, "sparklog: 1 of 1 elections were refused\n")
        assert json.loads(out)[0]["result"].startswith("PREFERRED_LEADER_NOT_AVAILABLE")
        line.do(lambda rig: rig.start_broker(2, new=False))
        while line.json("topics", "describe", "--under-replicated"):
            pass  # it is copying what it has missed
        assert line.json("elect-leaders") == [
            {"topic": "t", "partition": away, "leader": 2, "result": "elected"}
        ]
        counts = {row["broker"]: (row["leads"], row["prefers"]) for row in line.json("brokers")}
        assert counts == {1: (1, 1), 2: (1, 1)}


def test_leaders_that_are_preferred_already_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "2")
        assert line.text("elect-leaders") == [
            "Every partition is led by its preferred leader already."
        ]
        row: dict[str, Any] = {"topic": "t", "partition": 1, "leader": 1, "result": "not needed"}
        assert line.json("elect-leaders", "t", "-p", "1") == [row]
        assert line.run("elect-leaders", "--unclean")[0] == 2


def test_a_partition_without_replicas_in_sync_elects_an_unclean_leader_only_when_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        line.do(lambda rig: rig.start_broker(2))
        line.do(lambda rig: rig.stop_broker(1))
        code, out, _ = line.run("elect-leaders", "t", "--json")
        assert code == 1
        [row] = json.loads(out)
        assert (row["leader"], row["result"].partition(":")[0]) == (
            None,
            "PREFERRED_LEADER_NOT_AVAILABLE",
        )
