"""The parts of compiled decoders and encoders: sizes, runs of fixed fields, lines of source.

Owns: the translation of ``schema`` metadata, for one version, into the parts that ``decoders`` and
``encoders`` put together.  Must not know any particular message.

Functions are made as ``dataclasses`` makes its ``__init__``: as source text, once per (struct,
version), from class definitions alone and never from input.
"""

from collections.abc import Iterator
from itertools import groupby
from struct import Struct as Packer
from struct import calcsize
from typing import Any, Final

from sparklog.slices import ITEMS_AT_ONCE
from sparklog.wire.protocol import primitives
from sparklog.wire.protocol.schema import Struct, WireField, remembered, wire_fields

#: Units (see ``sparklog.slices``) of decoding or encoding one item.
ITEM_UNITS: Final = 2
#: The first line of a sliced function: it makes the function a generator in any case.
GENERATOR_LINE: Final = "if False: yield 0"

#: Kinds of a fixed size, as codes of the ``struct`` module.
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


def existing_fields(struct_type: type[Struct], version: int) -> list[WireField]:
    return [field for field in wire_fields(struct_type) if field.wire.exists_in(version)]


@remembered
def least_size(struct_type: type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this struct takes."""
    size = 1 if flexible else 0
    for field in existing_fields(struct_type, version):
        if field.wire.tag is None:
            size += _least_field_size(field, version, flexible)
    return size


@remembered
def has_arrays(struct_type: type[Struct], version: int) -> bool:
    """Whether a value of this struct may hold any number of items."""
    return any(
        field.wire.is_array
        or (not isinstance(field.wire.kind, str) and has_arrays(field.wire.kind, version))
        for field in existing_fields(struct_type, version)
    )


def least_item_size(kind: str | type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes of an array's item; at least 1, so that items are never free."""
    if not isinstance(kind, str):
        return max(1, least_size(kind, version, flexible))
    return _least_primitive_size(kind, flexible)


def _least_field_size(field: WireField, version: int, flexible: bool) -> int:
    kind = field.wire.kind
    if field.wire.is_array:
        return 1 if flexible else 4
    if isinstance(kind, str):
        return _least_primitive_size(kind, flexible)
    return 1 if field.wire.is_nullable_in(version) else least_size(kind, version, flexible)


def _least_primitive_size(kind: str, flexible: bool) -> int:
    if kind in FIXED:
        return calcsize(">" + FIXED[kind])
    if flexible:
        return 1
    return 2 if kind == "string" else 4


def is_fixed(field: WireField) -> bool:
    """Whether a field can be part of a run that one ``struct`` call handles."""
    return field.wire.kind in FIXED and not field.wire.is_array and field.wire.tag is None


def packer_of(fields: list[WireField]) -> Packer:
    return Packer(">" + "".join(FIXED[str(field.wire.kind)] for field in fields))


def items_form(kind: str, count: int) -> str:
    """The ``struct`` form of an array's items ("16s" cannot be repeated by a count in front)."""
    code = FIXED[kind]
    return f">{count}{code}" if len(code) == 1 else ">" + code * count


def slice_lines(indent: str) -> tuple[str, ...]:
    """Lines behind an item in sliced functions, which count the item.

    ``g`` is the budget; its second number is the number of items left in the present slice.  When
    no item is left, the function yields the units of the slice and begins a new slice.
    """
    return (
        f"{indent}g[1] -= 1",
        f"{indent}if g[1] < 0: g[1] = {ITEMS_AT_ONCE}; yield {ITEMS_AT_ONCE * ITEM_UNITS}",
    )


class FunctionSource:
    """The lines of a function and the names that they use."""

    #: Lines behind an item of variable size: ``slice_lines`` in sliced functions.
    after_item: tuple[str, ...] = ()

    def __init__(self, struct_type: type[Struct], version: int, flexible: bool) -> None:
        self.struct_type = struct_type
        self.version = version
        self.flexible = flexible
        fields = existing_fields(struct_type, version)
        self.untagged = [field for field in fields if field.wire.tag is None]
        self.tagged = sorted(
            (field for field in fields if field.wire.tag is not None),
            key=lambda field: field.wire.tag or 0,
        )
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []

    def add(self, indent: str, *lines: str) -> None:
        self.lines += [indent + line for line in lines]

    def name(self, stem: str, value: Any) -> str:
        """A new name for a value that the function uses."""
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def primitive(self, name: str) -> str:
        self.names[name] = getattr(primitives, name)
        return name

    def runs(self) -> Iterator[list[WireField]]:
        """The untagged fields in runs: neighbours of fixed size are one run."""
        for fixed, group in groupby(self.untagged, key=is_fixed):
            if fixed:
                yield list(group)
            else:
                yield from ([field] for field in group)

    def finish(self, signature: str) -> Any:
        source = "\n    ".join([f"def run{signature}:", *self.lines])
        file_name = f"<{type(self).__name__} {self.struct_type.__name__} v{self.version}>"
        exec(compile(source, file_name, "exec"), self.names)
        return self.names["run"]
