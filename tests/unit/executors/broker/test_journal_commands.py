"""``sparklog journal`` on the journal of a cluster that has run, and the cluster after a repair."""

import json
from typing import Any

import pytest

from sparklog.cli.app import run
from sparklog.driver.control_plane.journal import JournalError, commit_name
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import named_disk
from sparklog.types import TopicPartition
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig
from tests.unit.executors.broker.cli_rig import CommandLine, command_line


def journal_url(line: CommandLine) -> str:
    return f"memory://{line.rig.disk_name}/journal"


def files_of(line: CommandLine) -> MemoryBackend:
    return MemoryBackend(named_disk(line.rig.disk_name), "journal")


def journal(line: CommandLine, *arguments: str) -> tuple[int, Any, str]:
    """Exit code, JSON document and errors of ``sparklog journal ... --json``."""
    line._capsys.readouterr()
    code = run(["journal", arguments[0], journal_url(line), *arguments[1:], "--json"])
    out, errors = line._capsys.readouterr()
    return code, json.loads(out) if out else None, errors


def commit_of(line: CommandLine, record: str) -> int:
    """The first commit with a kind of record."""
    files = files_of(line)
    names = [name for name in files.list("") if name[0].isdigit()]
    return next(int(n[:20]) for n in names if record.encode() in files.read(n))


async def stop_everything(rig: Rig) -> None:
    for broker_id in list(rig.brokers):
        await rig.stop_broker(broker_id)
    await rig.stop_control()


async def start_everything(rig: Rig, brokers: int) -> None:
    await rig.start_control()
    for broker_id in range(1, brokers + 1):
        await rig.start_broker(broker_id, new=False)


async def produce(rig: Rig, topic: str, value: bytes, leader: int) -> None:
    client = await rig.client(leader)
    result = await client.produce(topic, batch(value))
    assert result.error_code == 0


async def leader_of(rig: Rig, topic: str) -> int:
    """Once it leads."""
    tp = TopicPartition(topic, 0)

    def leads() -> bool:
        state = rig.control.image.partition(tp)
        if state is None or state.offline:
            return False
        partition = rig.brokers[state.leader].replica_manager.get(tp)
        return partition is not None and partition.is_leader

    await until(leads)
    state = rig.control.image.partition(tp)
    assert state is not None
    return state.leader


async def read(rig: Rig, topic: str) -> list[bytes | None]:
    leader = await leader_of(rig, topic)
    client = await rig.client(leader)
    code, values = await client.fetch(topic, 0, max_wait_ms=0)
    assert code == 0
    return values


async def refused_start(rig: Rig) -> str:
    with pytest.raises(JournalError) as refusal:
        await rig.start_control()
    return str(refusal.value)


def test_a_repaired_cluster_has_its_records_and_deletes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "early", "-p", "1", "-r", "2")
        leader = line.do(lambda rig: leader_of(rig, "early"))
        line.do(lambda rig: produce(rig, "early", b"one", leader))
        damaged = line.rig.control.image.version + 1
        line.json("topics", "create", "damaged", "-p", "1")
        line.json("topics", "create", "lost", "-p", "1", "-r", "2", "-c", "retention.ms=-1")
        leader = line.do(lambda rig: leader_of(rig, "lost"))
        line.do(lambda rig: produce(rig, "lost", b"precious", leader))
        epoch_before = line.rig.control.image.controller_epoch

        code, document, errors = journal(line, "repair", "--yes")
        assert (code, document["repaired"], document["sound"]) == (0, False, True), errors

        line.do(stop_everything)
        files_of(line).put(commit_name(damaged), b"\0" * 100)
        refusal = line.do(refused_start)
        assert f"`sparklog journal check memory://{line.rig.disk_name}/journal`" in refusal

        code, found, errors = journal(line, "check")
        assert (code, found["starts"]) == (1, False)
        assert "no cluster starts from it" in errors
        assert found["damaged"] == [
            {"file": commit_name(damaged), "reason": "it is not JSON", "needed": True}
        ]
        assert found["last_good"]["version"] == damaged - 1
        lost = [r for each in found["lost"] for r in each["records"]]
        assert [r["topic"] for r in lost if r["type"] == "TopicCreated"] == ["lost"]

        before = {name: files_of(line).read(name) for name in files_of(line).list("")}
        code, document, errors = journal(line, "repair")
        assert (code, document["repaired"]) == (1, False)
        assert "nothing was changed; --yes carries the repair out" in errors
        assert {n: files_of(line).read(n) for n in before} == before

        code, document, errors = journal(line, "repair", "--yes")
        assert (code, document["repaired"]) == (0, True), errors
        assert journal(line, "check")[0] == 0
        line.do(lambda rig: start_everything(rig, 2))
        assert line.rig.control.image.controller_epoch > epoch_before
        assert line.do(lambda rig: read(rig, "early")) == [b"one"]
        leader = line.do(lambda rig: leader_of(rig, "early"))
        line.do(lambda rig: produce(rig, "early", b"two", leader))
        assert line.do(lambda rig: read(rig, "early")) == [b"one", b"two"]
        assert [row["topic"] for row in line.json("topics", "list")] == ["early"]
        for broker_id in (1, 2):
            disk = line.rig.disk_of(broker_id)
            [kept] = [n for n in disk.list(f"broker-{broker_id}") if n.startswith("lost-0")]
            assert kept == "lost-0.1-stray"
            log = disk.read(f"broker-{broker_id}/{kept}/00000000000000000000.log")
            assert b"precious" in log
        # A topic of that name begins empty, and takes nothing from what was kept.
        line.json("topics", "create", "lost", "-p", "1", "-r", "2")
        assert line.do(lambda rig: read(rig, "lost")) == []


def test_what_can_be_read_is_kept_with_its_records(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(2, capsys) as line:
        line.json("topics", "create", "early", "-p", "1")
        damaged = line.rig.control.image.version + 1
        line.json("topics", "create", "damaged", "-p", "1")
        line.json("topics", "create", "late", "-p", "1", "-r", "2", "-c", "retention.ms=-1")
        leader = line.do(lambda rig: leader_of(rig, "late"))
        line.do(lambda rig: produce(rig, "late", b"precious", leader))
        line.do(stop_everything)
        files_of(line).delete(commit_name(damaged))
        assert "is missing although" in line.do(refused_start)
        assert journal(line, "check")[0] == 1
        code, document, errors = journal(line, "repair", "--yes", "--keep-readable")
        assert (code, document["repair"]["topics"]) == (0, ["early", "late"]), errors
        line.do(lambda rig: start_everything(rig, 2))
        assert line.do(lambda rig: read(rig, "late")) == [b"precious"]
        assert line.json("topics", "describe", "late")["configs"] == {"retention.ms": "-1"}


def test_the_replica_with_the_best_log_leads_after_a_repair(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last good commit has a leader that was out of sync when more was acknowledged: all that
    said so is lost, and the records are there all the same."""
    with command_line(2, capsys) as line:
        line.json("topics", "create", "t", "-p", "1", "-r", "2")
        leader = line.do(lambda rig: leader_of(rig, "t"))
        line.do(lambda rig: produce(rig, "t", b"one", leader))
        damaged = line.rig.control.image.version + 1
        line.do(lambda rig: rig.stop_broker(leader))
        other = line.do(lambda rig: leader_of(rig, "t"))
        assert other != leader
        line.do(lambda rig: produce(rig, "t", b"two", other))
        line.do(stop_everything)
        files_of(line).put(commit_name(damaged), b"")
        code, document, errors = journal(line, "repair", "--yes")
        assert (code, document["repaired"]) == (0, True), errors
        line.do(lambda rig: start_everything(rig, 2))
        assert line.do(lambda rig: read(rig, "t")) == [b"one", b"two"]


def test_a_running_broker_deletes_nothing_when_the_journal_goes_back(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a journal can vanish without a trace: what is left of it is whole."""
    with command_line(1, capsys) as line:
        line.json("topics", "create", "early", "-p", "1")
        known = line.rig.control.image.version
        line.json("topics", "create", "t", "-p", "1")
        leader = line.do(lambda rig: leader_of(rig, "t"))
        line.do(lambda rig: produce(rig, "t", b"precious", leader))
        for _ in range(3):
            line.json("topics", "create", "more", "-p", "1")
            line.json("topics", "delete", "more")
        line.do(lambda rig: rig.stop_control())
        files = files_of(line)
        for name in files.list(""):
            if name[:20].isdigit() and int(name[:20]) > known:
                files.delete(name)
        line.do(lambda rig: rig.start_control())

        async def refused(_: Rig) -> None:
            await until(lambda: "commits are lost, or the journal is an older copy" in caplog.text)

        line.do(refused)
        assert "t-0" in line.rig.disk.list("broker-1")
        # After a restart the directory is a stray, and is kept.
        line.do(stop_everything)
        line.do(lambda rig: start_everything(rig, 1))
        assert "t-0.1-stray" in line.rig.disk.list("broker-1")


def test_a_running_broker_does_not_go_on_when_the_last_commit_alone_is_gone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The next controller's first commit has its number."""
    with command_line(1, capsys) as line:
        line.json("topics", "create", "early", "-p", "1")
        line.json("topics", "create", "t", "-p", "1")
        leader = line.do(lambda rig: leader_of(rig, "t"))
        line.do(lambda rig: produce(rig, "t", b"precious", leader))
        version = line.rig.control.image.version
        assert commit_of(line, '"topic":"t"') == version
        line.do(lambda rig: rig.stop_control())
        files_of(line).delete(commit_name(version))
        line.do(lambda rig: rig.start_control())
        assert line.rig.control.image.version >= version

        async def refused(rig: Rig) -> None:
            await until(lambda: f"does not go on from commit {version}" in caplog.text)
            assert rig.brokers[1].replica_manager.image.topic("t") is not None

        line.do(refused)
        assert "t-0" in line.rig.disk.list("broker-1")


def test_brokers_that_run_while_the_journal_is_repaired_delete_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A repair that cannot reach the controller does not know that the cluster runs."""
    with command_line(1, capsys) as line:
        line.json("topics", "create", "early", "-p", "1")
        damaged = line.rig.control.image.version + 1
        line.json("topics", "create", "t", "-p", "1")
        leader = line.do(lambda rig: leader_of(rig, "t"))
        line.do(lambda rig: produce(rig, "t", b"precious", leader))
        line.do(lambda rig: rig.stop_control())
        files_of(line).put(commit_name(damaged), b"damage")
        code, _, errors = journal(line, "repair", "--yes")
        assert code == 0, errors
        line.do(lambda rig: rig.start_control())

        async def set_aside(rig: Rig) -> None:
            await until(lambda: "t-0.1-stray" in rig.disk.list("broker-1"))

        line.do(set_aside)
        line.do(stop_everything)
        log = "broker-1/t-0.1-stray/00000000000000000000.log"
        assert b"precious" in line.rig.disk.read(log)


def test_other_stores_are_opened_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["journal", "check", "fsspec+memory://no-journal", "--storage-option", "x"]) == 2
    assert run(["journal", "check", "fsspec+memory://no-journal"]) == 1
    assert "holds no journal" in capsys.readouterr().err
    assert run(["journal", "check", "s3://bucket", "--storage-option", "no_such_option=1"]) == 1
    assert "there is no storage option no_such_option; known are " in capsys.readouterr().err


def test_a_cluster_that_runs_keeps_repairs_out(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        line.json("topics", "create", "t", "-p", "1")
        number = commit_of(line, "TopicCreated")
        files = files_of(line)
        whole = files.read(commit_name(number))
        files.put(commit_name(number), b"damage")
        code, document, errors = journal(line, "repair", "--yes")
        assert (code, document) == (1, None)
        assert "runs: its controller answers at 127.0.0.1:" in errors
        assert not [name for name in files.list("") if name.startswith("damaged")]
        files.put(commit_name(number), whole)


def test_a_place_without_a_journal_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    assert run(["journal", "check", str(tmp_path / "none")]) == 2
    assert run(["journal", "check", str(tmp_path)]) == 1
    assert "holds no journal" in capsys.readouterr().err
    assert run(["journal", "repair", str(tmp_path), "--yes"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert run(["journal", "check", "nowhere://x"]) == 1


def test_people_read_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with command_line(1, capsys) as line:
        damaged = line.rig.control.image.version + 1
        line.json("topics", "create", "a", "-p", "1")
        line.json("topics", "create", "b", "-p", "1", "-c", "retention.ms=7")
        line.do(stop_everything)
        files_of(line).delete(commit_name(damaged))
        line._capsys.readouterr()
        assert run(["journal", "repair", journal_url(line), "--yes"]) == 0
        out = line._capsys.readouterr().out
        assert f"missing: commit {damaged}\n" in out
        assert f"Last good commit: {damaged - 1} (from commits alone, written at 2" in out
        assert "topic b created with 1 partitions" in out
        assert "retention.ms of topic b set to 7" in out
        assert "Repaired: a cluster starts from commit" in out
