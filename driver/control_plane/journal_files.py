"""The files of a journal: their names, and the JSON document of a commit or a checkpoint.

Owns: the mapping between names and commit numbers, the encoding of a file, and its size limit.
Must not know where files are kept, nor what records mean.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from sparklog.errors import DecodeError, StorageError
from sparklog.metadata import Record, from_json

FORMAT = 1
#: Size limit of one commit or checkpoint.  Nodes receive it in one frame, whose limit is twice
#: as large.
FILE_BYTES_MAX = 128 * 1024 * 1024

_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(r"checkpoint-(\d{20})\.json", re.ASCII)
#: The checksum (CRC-32C) covers all bytes after it.  Files of former versions have no checksum.
_CHECKSUM = re.compile(rb'\{"format":1,"crc":(\d{1,10}),')


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHeader:
    """The header of a commit.  ``nonce`` tells a controller's own commit from another's.

    ``version`` is the number of the commit; ``time_ms`` is in milliseconds since the epoch.
    """

    version: int
    controller_epoch: int
    nonce: str
    time_ms: int


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint_name(version: int) -> str:
    return f"checkpoint-{version:020d}.json"


def commit_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the commits among the names of files, sorted."""
    return _numbers(_COMMIT, names)


def checkpoint_numbers(names: Iterable[str]) -> list[int]:
    """The numbers of the checkpoints among the names of files, sorted."""
    return _numbers(_CHECKPOINT, names)


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := pattern.fullmatch(name)))


def encode_file(header: CommitHeader, encoded_records: bytes) -> bytes:
    """Encode a file.  The encoded records are spliced in, so they are encoded once for all uses.

    Raises:
        StorageError: the file would exceed ``FILE_BYTES_MAX``.
    """
    start = json.dumps(
        {
            "version": header.version,
            "controller_epoch": header.controller_epoch,
            "nonce": header.nonce,
            "time_ms": header.time_ms,
        },
        separators=(",", ":"),
    )
    content = b'%s,"records":%s}\n' % (start[1:-1].encode(), encoded_records)
    document = b'{"format":%d,"crc":%d,%s' % (FORMAT, crc32c(content), content)
    if len(document) > FILE_BYTES_MAX:
        raise StorageError(
            f"a commit of {len(document)} bytes exceeds the journal's limit of {FILE_BYTES_MAX}; "
            "change less at once"
        )
    return document


def decode_file(data: bytes) -> tuple[CommitHeader, tuple[Record, ...]]:
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
    header = CommitHeader(
        version=_field(document, "version", int),
        controller_epoch=_field(document, "controller_epoch", int),
        nonce=_field(document, "nonce", str),
        time_ms=_field(document, "time_ms", int),
    )
    return header, tuple(map(from_json, _field(document, "records", list)))


def _json_damage(data: bytes) -> str:
    """The reason for a file that is no JSON at all, which tells users more than a checksum does."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON"
    return ""


def _field(document: dict[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    if type(value) is not kind:
        raise DecodeError(f"its {name} is {value!r}")
    return value
