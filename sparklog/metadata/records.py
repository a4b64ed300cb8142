"""The records of the journal: what happened to the cluster, in the past tense, and their JSON.

Owns: one frozen dataclass per kind of record, ``to_json``/``from_json`` for one record, and
``encode_records``/``decode_records`` for the bytes that are sent to brokers.  Must not know what a
record does to an image, nor where it is stored.

The JSON of a record has its fields under their names plus ``type``.  Fields that have their default
are left out, which makes the many records of a failover small.  Defaults are therefore part of the
format.  Unknown types, unknown fields and wrong values are a ``DecodeError``: a journal that was
written by a newer sparklog is refused, never half understood.
"""

import json
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from sparklog.errors import DecodeError
from sparklog.metadata.values import BrokerImage, PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCreated:
    cluster_id: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerChanged:
    """A controller took over; ``host`` and ``port`` are where clients reach it (node 0)."""

    controller_epoch: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdAssigned:
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    """A process has registered with a broker id, after a ``clean`` stop or an unclean one.

    ``broker.fenced`` is True until a ``BrokerUnfenced``, usually of the same commit.
    """

    broker: BrokerImage
    clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFenced:
    broker_id: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnfenced:
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDraining:
    """Draining of a broker has begun, or (not ``draining``) was cancelled."""

    broker_id: int
    draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRemoved:
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """A topic was created, with partitions 0 to n-1."""

    topic: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """Partitions were added after the existing ones of a topic."""

    topic: str
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanged:
    """A partition has changed; ``state`` is its complete new state (leader, ISR, epochs)."""

    topic: str
    partition: int
    state: PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A topic was deleted, with its partitions and its settings."""

    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDeleteMarked:
    """A tiered topic was deleted at a time (ms), and what the remote_dir has of it is to go.

    It is KIP-405's DELETE_PARTITION_MARKED, for all partitions of the topic.
    """

    topic_id: UUID
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteDeleteFinished:
    """The remote_dir has nothing of a deleted topic any more (DELETE_PARTITION_FINISHED)."""

    topic_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationFactorDeferred:
    """A topic was created with fewer replicas than its replication factor, for lack of brokers.

    Not ``deferred``: every partition has got that many replicas since.
    """

    topic: str
    deferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanged:
    """One override was set, or removed (``value`` None).

    ``resource_type`` is a ``ResourceType``; a broker's name is its id, or "" for all brokers.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    """The block [first_producer_id, first_producer_id + count) belongs to a node for ever."""

    broker_id: int
    first_producer_id: int
    count: int


Record = (
    ClusterCreated
    | ControllerChanged
    | BrokerIdAssigned
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerDraining
    | BrokerRemoved
    | TopicCreated
    | PartitionsAdded
    | PartitionChanged
    | TopicDeleted
    | RemoteDeleteMarked
    | RemoteDeleteFinished
    | ReplicationFactorDeferred
    | ConfigChanged
    | ProducerIdsAllocated
)

RECORD_TYPES: Mapping[str, type[Record]] = {t.__name__: t for t in get_args(Record)}


def to_json(record: Record) -> dict[str, Any]:
    """A record as JSON values."""
    return {"type": type(record).__name__, **_dump_value(record)}


def from_json(document: Any) -> Record:
    """The record of JSON values.  Raises DecodeError that says what is wrong."""
    if not isinstance(document, dict):
        raise DecodeError(f"a record must be a JSON object, not {type(document).__name__}")
    name = document.get("type")
    record_type = RECORD_TYPES.get(name) if isinstance(name, str) else None
    if record_type is None:
        raise DecodeError(f"unknown record type {name!r}")
    body = {key: value for key, value in document.items() if key != "type"}
    record: Record = _load_value(record_type, body)
    return record


def encode_records(records: Iterable[Record]) -> bytes:
    """The records of one commit (or of a snapshot) as JSON bytes."""
    return json.dumps([to_json(r) for r in records], separators=(",", ":")).encode()


def decode_records(data: bytes | bytearray | memoryview) -> tuple[Record, ...]:
    """The inverse of ``encode_records``.  Raises DecodeError."""
    try:
        documents = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"records are not JSON: {error}") from None
    if not isinstance(documents, list):
        raise DecodeError("records must be a JSON array")
    return tuple(from_json(document) for document in documents)


# JSON converters, compiled once per dataclass from its type hints.

_Load = Callable[[Any], Any]
_Dump = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


@cache
def _dumpers(value_type: type) -> tuple[tuple[str, Any, _Dump], ...]:
    """(name, default, dump) of each field."""
    hints = get_type_hints(value_type)
    return tuple((f.name, f.default, _dumper(hints[f.name])) for f in fields(value_type))


@cache
def _loaders(value_type: type) -> tuple[Mapping[str, _Load], frozenset[str]]:
    """The loader of each field, and the fields that are required."""
    hints = get_type_hints(value_type)
    load = {f.name: _loader(hints[f.name], f.name) for f in fields(value_type)}
    return load, frozenset(f.name for f in fields(value_type) if f.default is MISSING)


def _dump_value(value: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    value_type: type = type(value)
    for name, default, dump in _dumpers(value_type):
        held = getattr(value, name)
        if held != default:
            document[name] = dump(held)
    return document


def _load_value(value_type: type, document: Any) -> Any:
    kind = value_type.__name__
    if not isinstance(document, dict):
        raise DecodeError(f"{kind} must be a JSON object, not {type(document).__name__}")
    load, required = _loaders(value_type)
    if not document.keys() <= load.keys():
        raise DecodeError(f"{kind} has unknown fields {sorted(document.keys() - load.keys())}")
    if not required <= document.keys():
        raise DecodeError(f"{kind} lacks {', '.join(sorted(required - document.keys()))}")
    return value_type(**{name: load[name](value) for name, value in document.items()})


def _dumper(hint: Any) -> _Dump:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        inner = _dumper(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _dumper(arguments[0])
        return list if item is _same else lambda value: [item(v) for v in value]
    if hint is UUID:
        return str
    return _same if hint in _PLAIN else _dump_value


def _loader(hint: Any, name: str) -> _Load:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        inner = _loader(arguments[0], name)
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_loader(arguments[0], name)
    if hint is UUID:
        return lambda value: _load_uuid(value, name)
    if hint in _PLAIN:
        return _plain_loader(hint, name)
    return lambda value: _load_value(hint, value)


_PLAIN = (int, str, bool)


def _plain_loader(wanted: type, name: str) -> _Load:
    def load(value: Any) -> Any:
        if type(value) is not wanted:
            raise DecodeError(f"{name} must be {wanted.__name__}, not {value!r}")
        return value

    return load


def _tuple_loader(item: Any, name: str) -> _Load:
    load_item = _loader(item, name)

    def load(value: Any) -> Any:
        if not isinstance(value, list):
            raise DecodeError(f"{name} must be an array, not {value!r}")
        if {*map(type, value)} == {item}:
            return tuple(value)
        return tuple(map(load_item, value))

    return load


def _load_uuid(value: Any, name: str) -> UUID:
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise DecodeError(f"{name} must be a UUID, not {value!r}") from None
