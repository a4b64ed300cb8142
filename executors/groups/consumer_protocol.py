"""The metadata of members in groups of the protocol type ``consumer``.

Owns: reading the topics of a subscription.  Must not know groups.  Other protocol types (Connect,
schema registries) have metadata that only their members understand.
"""

from struct import Struct, error
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_INT16: Final = Struct(">h")
_COUNTS: Final = Struct(">hi")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription (``ConsumerProtocolSubscription``); None if it is malformed.

    Every version begins with the version and the topics, and later versions may only append
    fields, so an unknown version is read like a known one.
    """
    try:
        version, count = _COUNTS.unpack_from(metadata, 0)
        if version < 0 or count < 0:
            return None
        return frozenset(_read_names(metadata, count))
    except (error, UnicodeDecodeError, ValueError):
        return None


def _read_names(metadata: bytes, count: int) -> list[str]:
    names, offset = [], _COUNTS.size
    for _ in range(count):
        (size,) = _INT16.unpack_from(metadata, offset)
        start, offset = offset + _INT16.size, offset + _INT16.size + size
        if size < 0 or offset > len(metadata):
            raise ValueError(f"a topic name cannot have {size} bytes")
        names.append(metadata[start:offset].decode())
    return names
