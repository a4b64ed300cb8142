"""How ``sparklog consume`` writes a record: as text, as JSON, or by a format string like kcat's.

Owns: the formats.  Must not know where records come from, nor where they go.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparklog.client.fetched_records import ConsumedRecord

TEXT: Final = "text"
JSON: Final = "json"
FORMAT_HELP: Final = (
    "text: the value on a line; json: one JSON document per line; or a format string as in kcat: "
    "%t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers, "
    "%K, %S and %R sizes in bytes (%R as 4 bytes), %% a percent sign, and \\n, \\t, \\xHH."
)

Render = Callable[["ConsumedRecord"], bytes]
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
#: A field, an escape, or a run of other characters.
_PART: Final = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.S)


def parse_format(text: str, key_separator: bytes | None = None) -> Render:
    """The function that renders a record.  Raises ValueError for a format that is none."""
    if text == JSON:
        return as_json
    if text == TEXT:
        return lambda record: _as_text(record, key_separator)
    if "%" not in text and "\\" not in text:
        raise ValueError(f"{text!r} is not text, json or a format string such as '%k: %s\\n'")
    parts = [_part(*match.groups()) for match in _PART.finditer(text)]
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def _part(
    field: str | None, code: str | None, escape: str | None, plain: str | None
) -> bytes | Render:
    if plain is not None:
        return plain.encode()
    if code is not None:
        return bytes.fromhex(code)
    if escape is not None:
        if escape not in _ESCAPES:
            raise ValueError(
                f"'\\{escape}' is not an escape; use \\n, \\r, \\t, \\0, \\\\ or \\xHH"
            )
        return _ESCAPES[escape]
    if field == "%":
        return b"%"
    if field not in _FIELDS:
        raise ValueError(f"'%{field}' is not a field of a record; use one of {', '.join(_NAMES)}")
    return _FIELDS[field]


def _as_text(record: "ConsumedRecord", key_separator: bytes | None) -> bytes:
    value = record.value or b""
    if key_separator is None:
        return value + b"\n"
    return (record.key or b"") + key_separator + value + b"\n"


def as_json(record: "ConsumedRecord") -> bytes:
    """One JSON document on a line, which ``sparklog produce --format json`` reads."""
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type.name.lower(),
        "key": as_json_value(record.key),
        "value": as_json_value(record.value),
        "headers": [[name, as_json_value(value)] for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def as_json_value(data: bytes | None) -> Any:
    """Bytes for JSON: UTF-8 as text, other bytes as ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _size(data: bytes | None) -> int:
    """The size as Kafka writes it: -1 for null."""
    return -1 if data is None else len(data)


def _headers(record: "ConsumedRecord") -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_FIELDS: Final[dict[str, Render]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
    "K": lambda record: b"%d" % _size(record.key),
    "S": lambda record: b"%d" % _size(record.value),
    "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
}
_NAMES: Final = [f"%{name}" for name in _FIELDS]
