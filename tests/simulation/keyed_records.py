"""Records of compacted topics as texts, so that histories can name each of them.

Owns: the text of a record, ``key=value`` or ``key!id`` for a tombstone, and the way back.  Must not
know who sends records or what is checked.  No two texts of a run are equal: a value says who sent
it, and a tombstone has an id in a header.
"""

from typing import Final

from sparklog.wire.records.builder import Record

_VALUE: Final = b"="
_TOMBSTONE: Final = b"!"
_ID_HEADER: Final = "id"


def record_of(text: bytes, timestamp: int) -> Record:
    """The record that a text names."""
    if is_tombstone(text):
        key, _, name = text.partition(_TOMBSTONE)
        return Record(key=key, value=None, timestamp=timestamp, headers=((_ID_HEADER, name),))
    key, _, value = text.partition(_VALUE)
    return Record(key=key, value=value, timestamp=timestamp)


def text_of(record: Record) -> bytes:
    """The text of a record; one that nobody made here gets a text that nobody sent."""
    key = record.key if record.key is not None else b"no key"
    if record.value is not None:
        return key + _VALUE + record.value
    return key + _TOMBSTONE + (dict(record.headers).get(_ID_HEADER) or b"no id")


def key_of(text: bytes) -> bytes:
    return text.partition(_TOMBSTONE if is_tombstone(text) else _VALUE)[0]


def is_tombstone(text: bytes) -> bool:
    return _VALUE not in text


def value_text(key: bytes, value: bytes) -> bytes:
    return key + _VALUE + value


def tombstone_text(key: bytes, name: bytes) -> bytes:
    return key + _TOMBSTONE + name
