"""The JSON document of a commit or a checkpoint.

Owns: the encoding of a document with its checksum and header, and the size limit.  Must not know
where files are kept, nor what records mean.

A document is ``{"format":1,"crc":...,HEADER,"records":[...]}``.  The header is a frozen dataclass
of the log's user, whose fields are the fields of the document, in their order.
"""

import json
import re
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from crc32c import crc32c

from sparklog.errors import DecodeError, StorageError

FORMAT = 1
#: Size limit of one commit or checkpoint.
FILE_BYTES_MAX = 128 * 1024 * 1024

#: The checksum (CRC-32C) covers all bytes after it.  Files of former versions have no checksum.
_CHECKSUM = re.compile(rb'\{"format":1,"crc":(\d{1,10}),')


class Header(Protocol):
    """The header of a commit: a dataclass of ``int`` and ``str`` fields.

    ``version`` is the number of the commit; ``time_ms`` is in milliseconds since the epoch.
    ``nonce`` tells a writer's own commit from another's.  Users add the epoch of the writer, under
    their name for it.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def version(self) -> int: ...

    @property
    def nonce(self) -> str: ...

    @property
    def time_ms(self) -> int: ...


HeaderT = TypeVar("HeaderT", bound=Header)
RecordT = TypeVar("RecordT")


def encode_document(header: Header, encoded_records: bytes, *, log_name: str) -> bytes:
    """Encode a file.  The encoded records are spliced in, so they are encoded once for all uses.

    Args:
        header: the header of the commit, or of the last commit that a checkpoint covers.
        encoded_records: a JSON array.
        log_name: the name of the log in an error.

    Raises:
        StorageError: the file would exceed ``FILE_BYTES_MAX``.
    """
    values = {field.name: getattr(header, field.name) for field in fields(header)}
    start = json.dumps(values, separators=(",", ":"))
    content = b'%s,"records":%s}\n' % (start[1:-1].encode(), encoded_records)
    document = b'{"format":%d,"crc":%d,%s' % (FORMAT, crc32c(content), content)
    if len(document) > FILE_BYTES_MAX:
        raise StorageError(
            f"a commit of {len(document)} bytes exceeds the {log_name}'s limit of "
            f"{FILE_BYTES_MAX}; change less at once"
        )
    return document


def decode_document(
    data: bytes, header_type: type[HeaderT], record_from_json: Callable[[Any], RecordT]
) -> tuple[HeaderT, tuple[RecordT, ...]]:
    """Decode a file.  Raises DecodeError that tells what is wrong with it."""
    if len(data) > FILE_BYTES_MAX:
        raise DecodeError(f"it is larger than {FILE_BYTES_MAX} bytes")
    beginning = _CHECKSUM.match(data)
    if beginning is not None and crc32c(memoryview(data)[beginning.end() :]) != int(beginning[1]):
        raise DecodeError(_json_damage(data) or "its bytes do not have the checksum that it says")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise DecodeError("it is not JSON") from None
    if not isinstance(document, dict):
        raise DecodeError("it is not a JSON object")
    if document.get("format") != FORMAT:
        raise DecodeError(f"its format is {document.get('format')!r}, known is {FORMAT}")
    values = {each.name: _field(document, each.name, each.type) for each in fields(header_type)}
    return header_type(**values), tuple(map(record_from_json, _field(document, "records", list)))


def _json_damage(data: bytes) -> str:
    """The reason for a file that is no JSON at all, which tells users more than a checksum does."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON"
    return ""


def _field(document: dict[str, Any], name: str, kind: Any) -> Any:
    value = document.get(name)
    if type(value) is not kind:
        raise DecodeError(f"its {name} is {value!r}")
    return value
