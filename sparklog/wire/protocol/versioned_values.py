"""Values behind two bytes of version, as keys and values of Kafka's internal topics are.

Owns: the prefix and the choice between flexible and plain encoding.  Must not know any topic.
Kafka: ``MessageUtil.toVersionPrefixedByteBuffer``.
"""

import struct
from struct import Struct as Form
from typing import Any, Final, TypeVar

from sparklog.errors import DecodeError
from sparklog.types import MAX_INT64
from sparklog.wire.protocol.decoders import compile_decoder
from sparklog.wire.protocol.encoders import compile_encoder
from sparklog.wire.protocol.schema import Struct

StructT = TypeVar("StructT", bound=Struct)

_VERSION: Final = Form(">h")
_MALFORMED: Final = (DecodeError, struct.error, IndexError, UnicodeDecodeError)


def version_of(data: bytes) -> int:
    """The version of an encoded value.  Raises DecodeError when it is shorter than two bytes."""
    try:
        (version,) = _VERSION.unpack_from(data, 0)
    except struct.error as error:
        raise DecodeError(f"no version: {error}") from None
    return int(version)


def encode_versioned(version: int, value: Struct, *, flexible: bool = False) -> bytes:
    """The bytes of ``value`` in ``version``, behind the version."""
    out = bytearray(_VERSION.pack(version))
    compile_encoder(type(value), version, flexible)(out, value, [MAX_INT64, 0])
    return bytes(out)


def decode_versioned(
    struct_type: type[StructT], data: bytes, *, flexible_from: int | None = None
) -> StructT:
    """The struct behind the version; further bytes are ignored, as Kafka does.

    Args:
        flexible_from: the first version with tagged fields; None if there is none.

    Raises:
        DecodeError: the bytes do not follow the schema.
    """
    version = version_of(data)
    flexible = flexible_from is not None and version >= flexible_from
    try:
        decode: Any = compile_decoder(struct_type, version, flexible)
        decoded, _ = decode(memoryview(data), _VERSION.size, [MAX_INT64, 0])
    except _MALFORMED as error:
        raise DecodeError(f"malformed {struct_type.__name__} v{version}: {error}") from None
    result: StructT = decoded
    return result
