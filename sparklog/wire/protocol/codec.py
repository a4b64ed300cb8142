"""The codec: whole requests and responses <-> bytes, for every known API and version.

Owns: headers (v0, v1, v2 and the exceptions among them), the index from api key to message, and
the promise that malformed bytes raise DecodeError.  Must not know framing (the four length bytes
belong to the transport), sockets, or what a message means.  Records are decoded as views;
``produce`` and ``fetch`` encode them without copying.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeVar, cast

from sparklog.errors import DecodeError
from sparklog.slices import ITEMS_AT_ONCE, Slices
from sparklog.types import MAX_INT64
from sparklog.wire.protocol import messages
from sparklog.wire.protocol.decoders import (
    Decoder,
    SlicedDecoder,
    compile_decoder,
    compile_sliced_decoder,
)
from sparklog.wire.protocol.encoders import (
    Encoder,
    SlicedEncoder,
    compile_encoder,
    compile_sliced_encoder,
)
from sparklog.wire.protocol.primitives import (
    TooManyItemsError,
    end_of,
    skip_tagged_fields,
    write_string,
)
from sparklog.wire.protocol.private import PRIVATE_MESSAGES
from sparklog.wire.protocol.schema import (
    NEVER_FLEXIBLE,
    Message,
    Request,
    Response,
    remembered,
    thawed_type,
)

#: Items of all arrays of one request: each item is a few bytes on the wire, but an object here.
MAX_REQUEST_ITEMS: Final = 100_000
#: Unknown tagged fields of one header.
_MAX_HEADER_TAGS: Final = 100

Buffer = bytes | bytearray | memoryview
MessageT = TypeVar("MessageT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Response)

_API_VERSIONS_KEY: Final = 18
_REQUEST_START: Final = struct.Struct(">hhi")
#: With the length of the client id, which never has the compact form (KIP-511).
_REQUEST_START_AND_SIZE: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_pack_int32: Final = _INT32.pack
_MALFORMED: Final = (struct.error, IndexError, UnicodeDecodeError)
_UNFIT: Final = (struct.error, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


_FLEXIBLE_FROM: Final = {
    **{api_key: entry.flexible_from for api_key, entry in messages.APIS.items()},
    **dict.fromkeys(PRIVATE_MESSAGES, 0),
}
_ThawedHeader: Any = thawed_type(RequestHeader)
_new: Callable[[Any], Any] = object.__new__


def request_type(api_key: int) -> type[Request]:
    """The class of an API's requests.  Raises DecodeError for an unknown api key."""
    return _message_types(api_key)[0]


def response_type(api_key: int) -> type[Response]:
    """The class of an API's responses.  Raises DecodeError for an unknown api key."""
    return _message_types(api_key)[1]


def knows(api_key: int, version: int) -> bool:
    """Whether there is a schema for this version of this API."""
    entry = messages.APIS.get(api_key)
    if entry is None:
        return api_key in PRIVATE_MESSAGES and version == 0
    return entry.min_version <= version <= entry.max_version


@remembered
def _message_types(api_key: int) -> tuple[type[Request], type[Response]]:
    if api_key in PRIVATE_MESSAGES:
        return PRIVATE_MESSAGES[api_key]
    entry = messages.APIS.get(api_key)
    if entry is None:
        raise DecodeError(f"api key {api_key} is unknown")
    module = import_module(f"sparklog.wire.protocol.messages.{entry.module}")
    return getattr(module, f"{entry.name}Request"), getattr(module, f"{entry.name}Response")


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header and the offset of the body.

    A request of an unknown version still has a header, so that it can be refused (or, for
    ApiVersions, answered in version 0).  Raises DecodeError.
    """
    view = memoryview(frame)
    try:
        api_key, api_version, correlation_id, size = _REQUEST_START_AND_SIZE.unpack_from(view, 0)
        offset = _REQUEST_START_AND_SIZE.size
        client_id = None
        if size >= 0:
            client_id = str(view[offset : end_of(view, offset, size)], "utf-8")
            offset += size
        elif size != -1:
            raise DecodeError(f"a client id cannot have {size} bytes")
        if api_version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
            if offset < len(view) and view[offset] == 0:
                offset += 1
            else:
                offset = _end_of_header_tags(view, offset, knows(api_key, api_version))
    except _MALFORMED as error:
        raise DecodeError(f"malformed request header: {error}") from None
    header = _new(_ThawedHeader)
    header.api_key = api_key
    header.api_version = api_version
    header.correlation_id = correlation_id
    header.client_id = client_id
    header.__class__ = RequestHeader
    return header, offset


def _end_of_header_tags(view: memoryview, offset: int, known: bool) -> int:
    # A future header may continue differently, but the body behind it is never read.
    return skip_tagged_fields(view, offset, [_MAX_HEADER_TAGS, 0]) if known else len(view)


def decode_request(
    header: RequestHeader, body: Buffer, items_max: int = MAX_REQUEST_ITEMS
) -> Request:
    """The request behind the header; its records are views of ``body``.

    Raises TooManyItemsError, or another DecodeError; trailing bytes are refused.
    """
    return decode_body(
        request_type(header.api_key), header.api_version, memoryview(body), items_max=items_max
    )


def decode_request_in_slices(
    header: RequestHeader, body: Buffer, items_max: int = MAX_REQUEST_ITEMS
) -> Slices[Request]:
    """``decode_request`` in slices; ``body`` must not change until the last slice."""
    message_type, version, view = request_type(header.api_key), header.api_version, memoryview(body)
    decode = _sliced_decoder(message_type, version)
    try:
        message, end = yield from decode(view, 0, [items_max, ITEMS_AT_ONCE])
    except (DecodeError, *_MALFORMED) as error:
        raise _malformed(message_type, version, error) from None
    return cast(Request, _whole(message, view, end))


def encode_request(
    request: Request, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Header and body, without the length in front."""
    out = bytearray(request_header_bytes(request.API_KEY, version, correlation_id, client_id))
    try:
        _encoder(type(request), version)(out, request, _no_limit())
    except _UNFIT as error:
        raise _unfit(request, version, error) from error
    return bytes(out)


def request_header_bytes(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """A request header alone, in the form of the version."""
    out = bytearray(_REQUEST_START.pack(api_key, version, correlation_id))
    write_string(out, client_id)
    if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
        out.append(0)
    return bytes(out)


def encode_response(
    api: int | type[Response],
    version: int,
    response: Response,
    correlation_id: int,
    items_max: int = MAX_INT64,
) -> bytes:
    """Header and body, without the length in front.  ``api`` is a key or a response class.

    Raises TooManyItemsError when the arrays of structs and strings have more than ``items_max``.
    """
    api_key = api if isinstance(api, int) else api.API_KEY
    assert api_key == response.API_KEY, f"{response!r} does not answer {api}"
    encode, header_end = _response_encoder(type(response), version)
    out = bytearray(_pack_int32(correlation_id))
    out += header_end
    try:
        encode(out, response, [items_max, 0])
    except _UNFIT as error:
        raise _unfit(response, version, error) from error
    return bytes(out)


def encode_response_in_slices(
    version: int, response: Response, correlation_id: int
) -> Slices[bytearray]:
    """``encode_response`` in slices, without a limit."""
    encode = _sliced_encoder(type(response), version)
    out = bytearray(response_header_bytes(response.API_KEY, version, correlation_id))
    try:
        yield from encode(out, response, _no_limit())
    except _UNFIT as error:
        raise _unfit(response, version, error) from error
    return out


def response_header_bytes(api_key: int, version: int, correlation_id: int) -> bytes:
    """A response header alone; ApiVersions always has header v0 (KIP-511)."""
    if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE) and api_key != _API_VERSIONS_KEY:
        return _INT32.pack(correlation_id) + b"\x00"
    return _INT32.pack(correlation_id)


def read_response_header(api_key: int, version: int, payload: memoryview) -> tuple[int, int]:
    """The correlation id and the offset of the body.  Raises DecodeError."""
    try:
        (correlation_id,) = _INT32.unpack_from(payload, 0)
        if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE) and api_key != _API_VERSIONS_KEY:
            return correlation_id, skip_tagged_fields(payload, _INT32.size, [_MAX_HEADER_TAGS, 0])
    except _MALFORMED as error:
        raise DecodeError(f"malformed response header: {error}") from None
    return correlation_id, _INT32.size


def decode_response(
    response_type: type[ResponseT], version: int, payload: Buffer
) -> tuple[int, ResponseT]:
    """The correlation id and the response; its records are views of ``payload``.

    Raises DecodeError; trailing bytes are refused.
    """
    view = memoryview(payload)
    correlation_id, offset = read_response_header(response_type.API_KEY, version, view)
    return correlation_id, decode_body(response_type, version, view, offset)


def decode_body(
    message_type: type[MessageT],
    version: int,
    view: memoryview,
    offset: int = 0,
    items_max: int | None = None,
) -> MessageT:
    """The message in ``view`` from ``offset`` to its end.

    Raises TooManyItemsError, or another DecodeError.  Without ``items_max`` a request may have
    ``MAX_REQUEST_ITEMS``, and a response any number of items.
    """
    decode, item_limit = _decoder(message_type, version)
    try:
        message, end = decode(view, offset, [item_limit if items_max is None else items_max, 0])
    except (DecodeError, *_MALFORMED) as error:
        raise _malformed(message_type, version, error) from None
    return cast(MessageT, _whole(message, view, end))


def _malformed(message_type: type[Message], version: int, error: Exception) -> DecodeError:
    kind = TooManyItemsError if isinstance(error, TooManyItemsError) else DecodeError
    return kind(f"malformed {message_type.__name__} v{version}: {error}")


def _whole(message: Message, view: memoryview, end: int) -> Message:
    if end != len(view):
        raise DecodeError(f"{len(view) - end} bytes are left after a {type(message).__name__}")
    return message


def _no_limit() -> list[int]:
    return [MAX_INT64, ITEMS_AT_ONCE]


def _unfit(message: Message, version: int, error: Exception) -> ValueError:
    # Without the message itself, which may be of any length.
    return ValueError(
        f"a {type(message).__name__} does not fit version {version} of its schema: {error}"
    )


@remembered
def _decoder(message_type: type[Message], version: int) -> tuple[Decoder, int]:
    """The decoder and the most items that a message may have."""
    _check_version(message_type, version)
    item_limit = MAX_REQUEST_ITEMS if issubclass(message_type, Request) else MAX_INT64
    decode = compile_decoder(message_type, version, version >= message_type.FLEXIBLE_FROM)
    return decode, item_limit


@remembered
def _sliced_decoder(message_type: type[Message], version: int) -> SlicedDecoder:
    _check_version(message_type, version)
    return compile_sliced_decoder(message_type, version, version >= message_type.FLEXIBLE_FROM)


@remembered
def _sliced_encoder(message_type: type[Message], version: int) -> SlicedEncoder:
    _check_version(message_type, version)
    return compile_sliced_encoder(message_type, version, version >= message_type.FLEXIBLE_FROM)


@remembered
def _encoder(message_type: type[Message], version: int) -> Encoder:
    _check_version(message_type, version)
    return compile_encoder(message_type, version, version >= message_type.FLEXIBLE_FROM)


@remembered
def _response_encoder(message_type: type[Response], version: int) -> tuple[Encoder, bytes]:
    """The encoder, and the bytes between the correlation id and the body."""
    header = response_header_bytes(message_type.API_KEY, version, 0)
    return _encoder(message_type, version), header[_INT32.size :]


def _check_version(message_type: type[Message], version: int) -> None:
    if not message_type.MIN_VERSION <= version <= message_type.MAX_VERSION:
        raise DecodeError(
            f"{message_type.__name__} v{version} is unknown: "
            f"v{message_type.MIN_VERSION} to v{message_type.MAX_VERSION} are"
        )
