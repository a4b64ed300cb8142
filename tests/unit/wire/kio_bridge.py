"""The same message as ours and as kio's, so that each side can check the other's bytes.

kio's reader must never get a wrong length: it allocates that length and aborts the process.
"""

import dataclasses
import io
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from sparklog.wire.protocol import messages
from sparklog.wire.protocol.codec import request_type, response_type
from sparklog.wire.protocol.schema import Message, Request, Struct, Wire, WireField, wire_fields

#: Few examples for everyday runs; ``SPARKLOG_EXHAUSTIVE=1`` for many.
EXAMPLES = 100 if os.environ.get("SPARKLOG_EXHAUSTIVE") else 6

_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.just("x" * 200)


def every_message() -> list[tuple[type[Message], int]]:
    """Every generated message class with each of its versions."""
    found: list[tuple[type[Message], int]] = []
    for api_key, entry in messages.APIS.items():
        for version in range(entry.min_version, entry.max_version + 1):
            found += [(request_type(api_key), version), (response_type(api_key), version)]
    return found


def kio_type(message_type: type[Message], version: int) -> type[Any]:
    load = load_request_schema if issubclass(message_type, Request) else load_response_schema
    return load(message_type.API_KEY, version)


def values(struct_type: type[Struct], kio: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Values of a struct that the version can express in full, without sparklog's own fields."""
    by_name = {our_name(field): field for field in dataclasses.fields(kio)}
    strategies = {
        field.name: _field_values(field, by_name[field.name], version)
        for field in wire_fields(struct_type)
        if field.wire.exists_in(version) and field.name in by_name
    }
    return st.builds(struct_type, **strategies)


def _field_values(ours: WireField, theirs: Any, version: int) -> st.SearchStrategy[Any]:
    wire = ours.wire
    inner = _inner_values(wire, theirs, version)
    if wire.is_array:
        inner = st.lists(inner, max_size=3).map(tuple)
    if wire.tag is not None:
        # kio cannot write a tagged field that is null without that being its default.
        return st.just(ours.default) | inner
    return st.none() | inner if wire.is_nullable_in(version) else inner


def _inner_values(wire: Wire, theirs: Any, version: int) -> st.SearchStrategy[Any]:
    if not isinstance(wire.kind, str):
        return values(wire.kind, _kio_inner(theirs.type), version)
    kafka_type = theirs.metadata["kafka_type"]
    if kafka_type == "error_code":
        return st.sampled_from([int(code) for code in KioErrorCode])
    if kafka_type == "datetime_i64":
        return st.just(-1) | st.integers(0, 2**32).map(lambda seconds: seconds * 1000)
    if wire.kind == "bool":
        return st.booleans()
    if wire.kind == "uint16":
        return st.integers(0, 2**16 - 1)
    if wire.kind == "string":
        return _TEXT
    if wire.kind in ("bytes", "records"):
        return st.binary(max_size=200)
    if wire.kind == "uuid":
        return st.none() | st.uuids(allow_nil=False)
    bits = _RANGES[wire.kind]
    return st.integers(-(2**bits), 2**bits - 1)


def our_name(field: Any) -> str:
    """Our name of a field: times are whole milliseconds, and the name says so."""
    kafka_type = field.metadata.get("kafka_type", "")
    is_time = kafka_type.startswith(("timedelta", "datetime"))
    return str(field.name) + ("_ms" if is_time and not field.name.endswith("_ms") else "")


def _kio_inner(declared: Any) -> Any:
    """The struct in ``X``, ``X | None``, ``tuple[X, ...]`` and ``tuple[X, ...] | None``."""
    if dataclasses.is_dataclass(declared):
        return declared
    for part in declared.__args__:
        if part is not type(None) and part is not Ellipsis:
            return _kio_inner(part)
    raise AssertionError(declared)


def to_kio(value: Any, kio: type[Any]) -> Any:
    """Our value as kio's class for one version; null becomes empty in versions without null."""
    arguments = {}
    for field in dataclasses.fields(kio):
        arguments[field.name] = _to_kio_field(getattr(value, our_name(field)), field)
    return kio(**arguments)


def _to_kio_field(value: Any, field: Any) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    if isinstance(value, tuple) and kafka_type is None:
        inner = _kio_inner(field.type)
        return tuple(to_kio(item, inner) for item in value)
    if isinstance(value, Struct):
        return to_kio(value, _kio_inner(field.type))
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
    return value


def kio_encode(value: Message, version: int) -> bytes:
    """The body as kio writes it."""
    kio = kio_type(type(value), version)
    buffer = io.BytesIO()
    entity_writer(kio)(buffer, to_kio(value, kio))
    return buffer.getvalue()


def kio_decode(message_type: type[Message], version: int, body: bytes) -> Any:
    """The body as kio reads it, in kio's class."""
    kio = kio_type(message_type, version)
    entity, size = entity_reader(kio)(body, 0)
    assert size == len(body)
    return entity


def kio_header(header: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    return buffer.getvalue()
