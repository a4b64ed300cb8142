"""How ``sparklog produce`` reads a record: from a line of text, or of JSON.

Owns: the formats and their errors.  Must not know where lines come from, nor how records are sent.
"""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64

Headers = tuple[tuple[str, bytes | None], ...]

#: The fields of a record that are set; the others say where a record was read, and are ignored.
_SET: Final = ("key", "value", "headers", "timestamp", "partition")
_IGNORED: Final = ("topic", "offset", "timestamp_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """A record to send; ``timestamp`` in milliseconds; None: the producer chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


ReadRecord = Callable[[bytes], InputRecord]


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line; no key without a separator in the line."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


def text_record(line: bytes, separator: bytes | None) -> InputRecord:
    """The record of a line of text."""
    key, value = split_line(line, separator)
    return InputRecord(key=key, value=value)


def json_record(line: bytes) -> InputRecord:
    """The record of a line as ``sparklog consume --format json`` writes it; all fields may miss.

    Raises ConfigError, naming the field and what it should be.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError('it is not a JSON object such as {"key": "k", "value": "v"}')
    for name in document:
        if name not in _SET and name not in _IGNORED:
            raise ConfigError(f"{name!r} is not a field of a record: {', '.join(_SET)}")
    return InputRecord(
        key=_bytes(document.get("key"), "key"),
        value=_bytes(document.get("value"), "value"),
        headers=_headers(document.get("headers", [])),
        timestamp=_number(document.get("timestamp"), "timestamp", MAX_INT64),
        partition=_number(document.get("partition"), "partition", MAX_INT32),
    )


def _bytes(value: Any, field: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{field} has a character that UTF-8 cannot encode") from None
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except (Base64Error, ValueError) as error:
            raise ConfigError(f"{field} is not base64: {error}") from None
    raise ConfigError(f'{field} is not a text, null or {{"base64": "..."}}')


def _headers(value: Any) -> Headers:
    if not isinstance(value, list):
        raise ConfigError("headers is not a list of [name, value]")
    found = []
    for each in value:
        if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
            raise ConfigError("headers is not a list of [name, value]")
        found.append((each[0], _bytes(each[1], f"the header {each[0]!r}")))
    return tuple(found)


def _number(value: Any, field: str, most: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ConfigError(f"{field} is not a number from 0 to {most}")
    return value
