"""Requests whose arrays are as full as a request may have them, made from the schemas.

Owns: which array of a message is filled, and with what.  Must not know any node, nor what a message
means beyond the names of its fields.

Each array of a message gives requests of two shapes: all items in that array (one item in each
array around it), and as many items in the outermost array, with one item in each array below.
Items are all alike ("repeated") or all different ("distinct").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sparklog.wire.protocol.schema import Request, Struct, WireField, wire_fields
from sparklog.wire.records.builder import Record, encode_batch

#: A little below ``MAX_REQUEST_ITEMS``.
ITEMS = 99_000
_RECORDS = encode_batch([Record(value=b"v")])
#: Values of fields, by name, that let a node work instead of refusing the request as a whole.
_VALUES: Mapping[str, Any] = {
    "acks": 1,
    "timestamp": -1,
    "resource_type": 2,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 1_000_000,
    "partition_max_bytes": 1,
    "response_partition_limit": 2_000,
    "nonce": bytes(32),
    "client_software_name": "tests",
    "client_software_version": "1",
}
#: Values that stay the same in "distinct" items.
_FIXED = frozenset(_VALUES) | {"config_operation", "current_leader_epoch", "leader_epoch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FullArray:
    """A request and a text that says which array is full, and with what."""

    label: str
    request: Request


def full_arrays(
    request_type: type[Request],
    version: int,
    *,
    topic: str,
    topic_id: UUID,
    items: int = ITEMS,
    values: Mapping[str, Any] | None = None,
) -> Iterator[FullArray]:
    """The requests.  ``topic`` and ``topic_id`` exist; ``values`` are those of more fields."""
    filler = _Filler(version, topic, topic_id, {**_VALUES, **(values or {})})
    for path in _array_paths(request_type, version):
        counts = [[1] * (len(path) - 1) + [items]]
        if len(path) > 1:
            counts.append([items // len(path)] + [1] * (len(path) - 1))
        names = ".".join(field.name for field in path)
        for each in counts:
            for distinct in (False, True):
                kind = "distinct" if distinct else "repeated"
                yield FullArray(
                    label=f"{names} x {'x'.join(map(str, each))} {kind}",
                    request=filler.filled(request_type, path, each, distinct),
                )


def without_arrays(
    request_type: type[Request], version: int, topic: str, topic_id: UUID
) -> Request:
    """The request with null arrays where they may be null: "everything", for most APIs."""
    filler = _Filler(version, topic, topic_id, _VALUES)
    request = filler.filled(request_type, (), (), False)
    nulls = {
        field.name: None
        for field in wire_fields(request_type)
        if field.wire.is_array and field.wire.is_nullable_in(version)
    }
    filled: Request = replace(request, **nulls)
    return filled


def _array_paths(struct_type: type[Struct], version: int) -> Iterator[tuple[WireField, ...]]:
    for field in wire_fields(struct_type):
        if not field.wire.exists_in(version):
            continue
        inner = field.wire.kind
        if field.wire.is_array:
            yield (field,)
        if not isinstance(inner, str) and field.wire.is_array:
            yield from ((field, *path) for path in _array_paths(inner, version))


class _Filler:
    """Makes values for one version."""

    def __init__(self, version: int, topic: str, topic_id: UUID, values: Mapping[str, Any]) -> None:
        self._version = version
        self._topic = topic
        self._topic_id = topic_id
        self._values = values

    def filled(
        self,
        struct_type: type[Any],
        path: tuple[WireField, ...],
        counts: Sequence[int],
        distinct: bool,
        number: int = 0,
    ) -> Any:
        """A struct whose array at ``path`` is full."""
        made: dict[str, Any] = {}
        for field in wire_fields(struct_type):
            if not field.wire.exists_in(self._version) or field.wire.tag is not None:
                continue
            if path and field is path[0]:
                made[field.name] = self._items(path, counts, distinct, number)
            elif not field.wire.is_array:
                made[field.name] = self._value(field, distinct, number)
        return struct_type(**made)

    def _items(
        self,
        path: tuple[WireField, ...],
        counts: Sequence[int],
        distinct: bool,
        number: int,
    ) -> tuple[Any, ...]:
        field, count = path[0], counts[0]
        if not distinct:
            same: Any = self._item(field, path[1:], counts[1:], False, 0)
            found: tuple[Any, ...] = (same,) * count
            return found
        return tuple(
            self._item(field, path[1:], counts[1:], True, number + each) for each in range(count)
        )

    def _item(
        self,
        field: WireField,
        path: tuple[WireField, ...],
        counts: Sequence[int],
        distinct: bool,
        number: int,
    ) -> Any:
        if isinstance(field.wire.kind, str):
            return self._value(field, distinct, number)
        only = path and counts and counts[0] > 1  # the one item around a full array is a real one
        return self.filled(field.wire.kind, path, counts, distinct and not only, number)

    def _value(self, field: WireField, distinct: bool, number: int) -> Any:
        kind, name = field.wire.kind, field.name
        if name in self._values:
            return self._values[name]
        if not isinstance(kind, str):
            return self.filled(kind, (), (), False)
        if name in _FIXED:
            return field.default
        if kind == "string":
            optional = not field.wire.is_array and field.wire.is_nullable_in(self._version)
            if optional and not _names_a_topic(name):
                return field.default
            return f"unknown-{number}" if distinct else self._topic
        if kind == "uuid":
            if name != "topic_id":
                return field.default
            return UUID(int=number + 1) if distinct else self._topic_id
        if kind == "records":
            return _RECORDS
        if field.wire.is_array or _is_a_partition(name):
            return number if distinct else 0
        return field.default


def _names_a_topic(name: str) -> bool:
    return name in ("name", "topic", "resource_name", "topic_names", "topic_name")


def _is_a_partition(name: str) -> bool:
    return name in (
        "partition", "partitions", "partition_index", "partition_indexes", "index", "broker_ids",
        "replicas",
    )  # fmt: skip
