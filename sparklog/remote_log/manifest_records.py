"""The records of a manifest, and their JSON.

Owns: the kinds of records and their encoding.  Must not know what a record does to a manifest.

A record is a JSON object: ``type``, and the fields of its dataclass.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from sparklog.errors import DecodeError
from sparklog.remote_log.json_values import number_of, text_of, texts_of
from sparklog.remote_log.remote_segment import RemoteSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBegan:
    """A leader has taken the manifest over.  ``nonce`` tells it from others of its epoch."""

    leader_epoch: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAdded:
    """A segment was copied; it begins where the last one ends."""

    segment: RemoteSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartMoved:
    """The log starts at this offset, which lies in the first segment or above all of them."""

    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsRemoved:
    """The oldest segments, in their order, have become garbage.

    The log starts behind them at the earliest.
    """

    segment_ids: tuple[str, ...]
    removed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedAfter:
    """The segments that reach above the offset have become garbage: a leader has other records."""

    offset: int
    removed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentShortened:
    """Of the last segment only the beginning is left: a leader has other records behind it.

    ``segment`` describes the beginning, under the same id.
    """

    segment: RemoteSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsDeleted:
    """The objects of garbage were deleted."""

    segment_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageKept:
    """Garbage that a checkpoint carries on."""

    segment_ids: tuple[str, ...]
    removed_ms: int


ManifestRecord: TypeAlias = (
    LeaderBegan
    | SegmentAdded
    | LogStartMoved
    | SegmentsRemoved
    | TruncatedAfter
    | SegmentShortened
    | ObjectsDeleted
    | GarbageKept
)

_TYPES: dict[str, type[ManifestRecord]] = {
    each.__name__: each
    for each in (
        *(LeaderBegan, SegmentAdded, LogStartMoved, SegmentsRemoved),
        *(TruncatedAfter, SegmentShortened, ObjectsDeleted, GarbageKept),
    )
}
#: A field has one meaning in all records.
_LOADERS: dict[str, Callable[[Any], Any]] = {
    "leader_epoch": number_of,
    "nonce": text_of,
    "segment": RemoteSegment.from_json,
    "log_start_offset": number_of,
    "segment_ids": texts_of,
    "removed_ms": number_of,
    "offset": number_of,
}


def encode_record(record: ManifestRecord) -> bytes:
    """The record as a JSON object."""
    if isinstance(record, SegmentAdded):
        return encode_segment_added(encode_segment(record.segment))
    if isinstance(record, SegmentShortened):
        return _compact({"type": "SegmentShortened", "segment": record.segment.to_json()})
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return _compact({"type": type(record).__name__, **values})


def encode_records(records: Iterable[ManifestRecord]) -> bytes:
    """The records of one commit as a JSON array."""
    return b"[%s]" % b",".join(map(encode_record, records))


def encode_segment(segment: RemoteSegment) -> bytes:
    return _compact(segment.to_json())


def encode_segment_added(encoded_segment: bytes) -> bytes:
    """A SegmentAdded, from the result of ``encode_segment``."""
    return b'{"type":"SegmentAdded","segment":%s}' % encoded_segment


def record_from_json(document: Any) -> ManifestRecord:
    """The record of JSON values.  Raises DecodeError that says what is wrong."""
    if not isinstance(document, dict):
        raise DecodeError(f"a record must be a JSON object, not {type(document).__name__}")
    name = document.get("type")
    record_type = _TYPES.get(name) if isinstance(name, str) else None
    if record_type is None:
        raise DecodeError(f"unknown record type {name!r}")
    try:
        values = {
            each.name: _LOADERS[each.name](document[each.name]) for each in fields(record_type)
        }
    except KeyError as error:
        raise DecodeError(f"a {name} lacks its {error.args[0]}") from None
    except ValueError as error:
        raise DecodeError(f"a {name} is wrong: {error}") from None
    return record_type(**values)


def check_readable(records: Iterable[ManifestRecord]) -> None:
    """Raises DecodeError if a reader would take a commit with these records for damage."""
    for document in json.loads(encode_records(records)):
        record_from_json(document)


def _compact(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
