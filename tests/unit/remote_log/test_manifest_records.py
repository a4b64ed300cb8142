"""The JSON of a manifest's records."""

import json
from typing import Any

import pytest

from sparklog.errors import DecodeError
from sparklog.remote_log.manifest_records import (
    GarbageKept,
    LeaderBegan,
    LogStartMoved,
    ManifestRecord,
    ObjectsDeleted,
    SegmentAdded,
    SegmentShortened,
    SegmentsRemoved,
    TruncatedAfter,
    encode_records,
    record_from_json,
)
from tests.unit.remote_log.segments import segment

RECORDS: tuple[ManifestRecord, ...] = (
    LeaderBegan(leader_epoch=3, nonce="n"),
    SegmentAdded(segment=segment(0, 10)),
    LogStartMoved(log_start_offset=5),
    SegmentsRemoved(segment_ids=("a", "b"), removed_ms=7),
    TruncatedAfter(offset=9, removed_ms=8),
    SegmentShortened(segment=segment(0, 6)),
    ObjectsDeleted(segment_ids=("a",)),
    GarbageKept(segment_ids=("b",), removed_ms=7),
)


def test_records_survive_their_json() -> None:
    documents = json.loads(encode_records(RECORDS))
    assert tuple(map(record_from_json, documents)) == RECORDS
    assert documents[3] == {"type": "SegmentsRemoved", "segment_ids": ["a", "b"], "removed_ms": 7}
    assert encode_records(()) == b"[]"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (1, "a record must be a JSON object, not int"),
        ({}, "unknown record type None"),
        ({"type": "TopicCreated"}, "unknown record type 'TopicCreated'"),
        ({"type": ["LeaderBegan"]}, "unknown record type"),
        ({"type": "LogStartMoved"}, "a LogStartMoved lacks its log_start_offset"),
        ({"type": "LogStartMoved", "log_start_offset": -1}, "a LogStartMoved is wrong: -1 is not"),
        ({"type": "LeaderBegan", "leader_epoch": 1, "nonce": ""}, "a LeaderBegan is wrong"),
        ({"type": "ObjectsDeleted", "segment_ids": "a"}, "'a' is not a list of names"),
        ({"type": "ObjectsDeleted", "segment_ids": [1]}, "1 is not a name"),
        ({"type": "SegmentAdded", "segment": {}}, "it describes no segment"),
    ],
)
def test_whatever_is_no_record_is_refused(document: Any, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason.replace("'", ".")):
        record_from_json(document)
