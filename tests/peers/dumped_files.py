"""One file of a log as two tools show it: Kafka's DumpLogSegments and ``sparklog dump``.

Owns: their output -> the same rows of figures.  Must not know who wrote the file.
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sparklog.cli.app import app
from sparklog.types import NO_OFFSET
from tests.peers.kafka_tools import KafkaTools

Row = dict[str, Any]

_INDEX = {"offset": "offset", "position": "position", "timestamp": "timestamp"}
_FIGURE = re.compile(r"(\w+): (\[[^\]]*\]|\S*)")
#: The names of Kafka's figures in ours.
_BATCH = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "partition_leader_epoch",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "position": "position",
    "size": "size",
    "magic": "magic",
    "compresscodec": "codec",
    "crc": "crc",
    "isvalid": "crc_valid",
}
_PRODUCER = {
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "coordinatorEpoch": "coordinator_epoch",
    "currentTxnFirstOffset": "current_txn_first_offset",
    "lastTimestamp": "timestamp",
    "lastSequence": "last_sequence",
    "lastOffset": "last_offset",
    "offsetDelta": "offset_delta",
}
_ABORTED = {
    "producerId": "producer_id",
    "firstOffset": "first_offset",
    "lastOffset": "last_offset",
    "lastStableOffset": "last_stable_offset",
}


def figures_of_kafka(tools: KafkaTools, path: Path) -> list[Row]:
    """What DumpLogSegments shows, without a word of complaint."""
    arguments = ["--files", str(path)]
    if path.suffix == ".log":
        arguments += ["--deep-iteration", "--print-data-log"]
    done = tools.run("DumpLogSegments", *arguments)
    assert done.code == 0, done
    head, *lines = done.lines
    assert head == f"Dumping {path}", done
    if path.suffix == ".log":
        start, *lines = lines
        assert start == f"Log starting offset: {int(path.stem)}"
        rows = [_record(line) if line.startswith("|") else _batch(line) for line in lines]
        assert done.err == _said_of_gaps(path, [row["offset"] for row in rows if "offset" in row])
        return rows
    assert done.err == "", done
    named = {".snapshot": _PRODUCER, ".txnindex": _ABORTED}.get(path.suffix, _INDEX)
    return [
        {named[name]: _value(text) for name, text in _FIGURE.findall(line) if name in named}
        for line in lines
    ]


def verify_index(tools: KafkaTools, path: Path, *, sealed: bool) -> None:
    """The index against its segment, and as Kafka looks at it when it starts.

    The second only for one that is ``sealed``: the empty slots of another are not to its liking.
    """
    done = tools.ok("DumpLogSegments", "--files", str(path), "--verify-index-only")
    assert done.lines == [f"Dumping {path}"]
    if sealed:
        done = tools.ok("DumpLogSegments", "--files", str(path), "--index-sanity-check")
        assert done.lines == [f"Dumping {path}", f"{path} passed sanity check."]


def figures_of_ours(path: Path) -> list[Row]:
    """What ``sparklog dump`` shows, of what Kafka's tool shows too."""
    records = ["--records"] if path.suffix == ".log" else []
    done = CliRunner().invoke(app, ["dump", str(path), "--json", *records])
    assert done.exit_code == 0, done.output
    rows: list[Row] = json.loads(done.output)["rows"]
    return [_row_of_ours(row) for row in rows]


def _batch(line: str) -> Row:
    found = dict(_FIGURE.findall(line))
    row = {ours: _value(found[kafka]) for kafka, ours in _BATCH.items()}
    kind = "CreateTime" if "CreateTime" in found else "LogAppendTime"
    horizon = found["deleteHorizonMs"].removeprefix("OptionalLong").strip("[].")
    return {
        **row,
        "timestamp_type": kind,
        "timestamp": int(found[kind]),
        "delete_horizon": None if horizon == "empty" else int(horizon),
    }


def _record(line: str) -> Row:
    line, _, payload = line.partition(" payload: ")
    line, _, key = line.partition(" key: ")
    found = dict(_FIGURE.findall(line))
    if "endTxnMarker" in found:
        return {
            "offset": int(found["offset"]),
            "record_timestamp": int(found["CreateTime"]),
            "end_txn_marker": found["endTxnMarker"].lower(),
            "coordinator_epoch": int(found["coordinatorEpoch"]),
        }
    headers = found["headerKeys"].strip("[]")
    return {
        "offset": int(found["offset"]),
        "record_timestamp": int(found.get("CreateTime") or found["LogAppendTime"]),
        "key": key if int(found["keySize"]) >= 0 else None,
        "value": payload if int(found["valueSize"]) >= 0 else None,
        "headers": headers.split(",") if headers else [],
    }


def _row_of_ours(row: Row) -> Row:
    if "headers" in row:
        return {**row, "headers": [name for name, _ in row["headers"]]}
    if row.get("offset_delta") is not None and row["last_offset"] == NO_OFFSET:
        no_batch = ("last_sequence", "last_offset", "offset_delta")  # but markers
        return {name: value for name, value in row.items() if name not in no_batch}
    if "crc" in row:
        kind = row["timestamp_type"].title().replace("_", "")
        return {**row, "timestamp_type": kind}
    return row


def _said_of_gaps(path: Path, offsets: list[int]) -> str:
    """What the tool says of offsets that do not follow each other, or that do not begin with 0."""
    pairs = [(a, b) for a, b in pairwise([-1, *offsets]) if b != a + 1]
    lines = [f"Non-consecutive offsets in {path}"] * bool(pairs)
    lines += [f"  {before} is followed by {after}" for before, after in pairs]
    return "".join(line + "\n" for line in lines)


def _value(text: str) -> Any:
    if text.startswith("OptionalLong"):
        return int(text[13:-1]) if text[12] == "[" else NO_OFFSET
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)
