"""A cluster of processes whose journal is damaged: killed, refused, repaired, and whole again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import ServedCluster

pytestmark = pytest.mark.process

RECORDS = 2_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cluster(data_dir: Path) -> Iterator[ServedCluster]:
    served = ServedCluster(data_dir)
    yield served
    served.kill()


def sparklog(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Exit code, output and errors of a command."""
    command = [sys.executable, "-m", "sparklog.cli", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode()


def in_json(*arguments: str) -> Any:
    code, out, errors = sparklog(*arguments, "--json")
    assert code == 0, errors
    return json.loads(out)


def produced(bootstrap: str, topic: str, count: int) -> list[bytes]:
    lines = [f"{topic} {number}".encode() for number in range(count)]
    code, _, errors = sparklog("produce", topic, "-b", bootstrap, stdin=b"\n".join(lines))
    assert code == 0, errors
    return lines


def consumed(bootstrap: str, topic: str) -> list[bytes]:
    code, out, errors = sparklog("consume", topic, "-b", bootstrap, "--from-beginning", "-e")
    assert code == 0, errors
    return out.splitlines()


def first_commit_of(journal: Path, topic: str) -> Path:
    wanted = f'"topic":"{topic}"'.encode()
    return next(p for p in sorted(journal.glob("0*.json")) if wanted in p.read_bytes())


def test_every_acknowledged_record_is_there_after_a_kill_and_a_repair(
    cluster: ServedCluster, data_dir: Path
) -> None:
    """The lost commits hold elections after acknowledged writes, a topic, and a torn end."""
    options = ("-r", "3", "-c", "min.insync.replicas=2")
    in_json("topics", "create", "kept", "-p", "4", *options, "-b", cluster.bootstrap)
    kept = produced(cluster.bootstrap, "kept", RECORDS)
    in_json("topics", "create", "torn", "-p", "1", "-b", cluster.bootstrap)
    in_json("topics", "create", "late", "-p", "2", *options, "-b", cluster.bootstrap)
    late = produced(cluster.bootstrap, "late", RECORDS)
    journal = data_dir / "journal"
    assert "a cluster uses" in sparklog("journal", "repair", str(data_dir), "--yes")[2]
    cluster.kill()
    commit = first_commit_of(journal, "torn")
    commit.write_bytes(commit.read_bytes()[:90])

    refused = ServedCluster(data_dir)
    assert (refused.bootstrap, refused.wait()) == ("", 1)
    assert f"`sparklog journal check file://{journal}`" in refused.errors
    code, out, errors = sparklog("journal", "check", str(data_dir))
    assert code == 1
    assert f"damaged: {commit.name}: it is not JSON" in out.decode()
    assert "topic late created with 2 partitions" in out.decode()
    assert sparklog("journal", "repair", str(data_dir))[0] == 1
    code, out, errors = sparklog("journal", "repair", str(data_dir), "--yes", "--keep-readable")
    assert code == 0, errors
    repaired = ServedCluster(data_dir)
    try:
        assert repaired.bootstrap, repaired.errors
        for topic, lines in (("kept", kept), ("late", late)):
            assert sorted(consumed(repaired.bootstrap, topic)) == sorted(lines)
        more = produced(repaired.bootstrap, "kept", 10)
        assert sorted(consumed(repaired.bootstrap, "kept")) == sorted(kept + more)
        lagging = ("topics", "describe", "--under-replicated", "-b", repaired.bootstrap)
        while in_json(*lagging):
            pass  # replicas join the leaders; the test's time is limited
        assert repaired.stop() == 0
    finally:
        repaired.kill()
