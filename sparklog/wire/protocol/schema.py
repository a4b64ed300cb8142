"""Schemas: the base classes of messages and the wire form of their fields.

Owns: the base classes of messages and the field metadata (kind, versions, nullability, tag) that
the codec is compiled from.  Must not know any particular message, nor how bytes are written.

A message is a frozen, slotted, keyword-only dataclass, made by ``@message``, with one attribute per
field of *any* version of its API.  A field that a version lacks is dropped on encoding and takes
its default on decoding.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast, dataclass_transform

#: "No version of this message is flexible" (KIP-482).
NEVER_FLEXIBLE: Final = 2**15
_LAST: Final = 2**15
_KEY: Final = "wire"
StructT = TypeVar("StructT", bound="Struct")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Region(Protocol):
    """Bytes of a file, which the transport sends without reading them into memory."""

    @property
    def size(self) -> int: ...


#: Record batches.  Decoded ones are views of the frame that they came in.
Records = bytes | memoryview
SendableRecords = bytes | memoryview | Region


class Struct:
    """A group of fields inside a message."""

    __slots__ = ()


class Message(Struct):
    """A whole request or response."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    #: The versions whose schema is known; a node may serve fewer.
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


class Request(Message):
    """A message from a client."""

    __slots__ = ()


class Response(Message):
    """A message from a server."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The wire form of one field: the versions that have it and its encoding.

    ``kind`` is a primitive's name (``int32``, ``string``, ...) or a struct's class.  ``tag`` marks
    a tagged field; it is left out when it equals its default.
    """

    kind: str | type[Struct]
    first: int
    last: int
    nullable_from: int | None
    tag: int | None
    is_array: bool

    def exists_in(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable_from is not None and version >= self.nullable_from


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """A field's name, default and wire form."""

    name: str
    default: Any
    wire: Wire


def one(
    kind: str | type[Struct],
    first: int = 0,
    last: int = _LAST,
    *,
    nullable: int | None = None,
    tag: int | None = None,
) -> Mapping[str, Any]:
    """Metadata of a single value that exists in versions ``first`` to ``last``."""
    wire = Wire(kind=kind, first=first, last=last, nullable_from=nullable, tag=tag, is_array=False)
    return {_KEY: wire}


def many(
    kind: str | type[Struct],
    first: int = 0,
    last: int = _LAST,
    *,
    nullable: int | None = None,
    tag: int | None = None,
) -> Mapping[str, Any]:
    """Metadata of an array, a tuple in Python."""
    wire = Wire(kind=kind, first=first, last=last, nullable_from=nullable, tag=tag, is_array=True)
    return {_KEY: wire}


def remembered(function: FunctionT) -> FunctionT:
    """``functools.cache`` that keeps the signature (for functions of classes and versions)."""
    return cast(FunctionT, cache(function))


@remembered
def wire_fields(struct_type: type[Any]) -> tuple[WireField, ...]:
    """The fields of a struct in the order in which they are written."""
    return tuple(
        WireField(name=field.name, default=field.default, wire=field.metadata[_KEY])
        for field in dataclasses.fields(struct_type)
    )


@remembered
def thawed_type(frozen_type: type[Any]) -> type[Any]:
    """A mutable class of the same layout, for a value while its fields are set.

    Setting the fields and then ``__class__`` to the frozen class takes a fraction of the time of a
    frozen dataclass's own ``__init__``, which goes through ``object.__setattr__`` per field.
    """
    names = tuple(field.name for field in dataclasses.fields(frozen_type))
    return type(f"Thawed{frozen_type.__name__}", frozen_type.__bases__, {"__slots__": names})


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def message(struct_type: type[StructT]) -> type[StructT]:
    """Class decorator: a frozen, slotted, keyword-only dataclass that is cheap to make."""
    # A dataclass without a docstring spends time on making one from its signature.
    struct_type.__doc__ = struct_type.__doc__ or struct_type.__name__
    frozen = dataclasses.dataclass(frozen=True, slots=True, kw_only=True, init=False)(struct_type)
    type.__setattr__(frozen, "__init__", _quick_init(frozen))
    return frozen


def _quick_init(frozen: type[Any]) -> Callable[..., None]:
    fields = dataclasses.fields(frozen)
    names: dict[str, Any] = {f"default_{field.name}": field.default for field in fields}
    names |= {"thaw": object.__setattr__, "thawed": thawed_type(frozen), "frozen": frozen}
    parameters = ", ".join(f"{field.name}=default_{field.name}" for field in fields)
    lines = [
        f"def __init__(self, {'*, ' if fields else ''}{parameters}):",
        '    thaw(self, "__class__", thawed)',
        *(f"    self.{field.name} = {field.name}" for field in fields),
        "    self.__class__ = frozen",
    ]
    exec(compile("\n".join(lines), f"<{frozen.__name__}.__init__>", "exec"), names)
    return cast(Callable[..., None], names["__init__"])
