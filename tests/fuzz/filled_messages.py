"""Messages with something in every field, as inputs to begin with.

Owns: making them from the schemas.  Must not know any particular message.
"""

from typing import Any
from uuid import UUID

from sparklog.wire.protocol.schema import Message, Struct, Wire, wire_fields
from sparklog.wire.records.builder import Record, encode_batch

RECORDS = encode_batch([Record(key=b"k", value=b"v", timestamp=7, headers=(("h", b"x"),))])
_VALUES: dict[str, Any] = {
    "string": "name",
    "bytes": b"bytes",
    "records": RECORDS,
    "uuid": UUID(int=77),
    "bool": True,
    "float64": 1.5,
}


def filled(struct_type: type[Struct], version: int) -> Any:
    """A struct with one item in each array, as far as the version has its fields."""
    fields = [field for field in wire_fields(struct_type) if field.wire.exists_in(version)]
    return struct_type(**{field.name: _value(field.wire, version) for field in fields})


def empty(message_type: type[Message]) -> Any:
    """The defaults."""
    return message_type()


def _value(wire: Wire, version: int) -> Any:
    inner = _VALUES.get(wire.kind, 1) if isinstance(wire.kind, str) else filled(wire.kind, version)
    return (inner,) if wire.is_array else inner
