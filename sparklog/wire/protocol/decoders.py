"""Decoders, ``(buffer, offset, budget) -> (value, next offset)``, compiled per struct and version.

Owns: reading fields in order, tagged fields, and the bounds of arrays: a count is checked against
the bytes that are left, and against the budget.  Must not know headers or any particular message.

The budget is a list of two numbers.  The first is the number of items (of arrays, and unknown
tagged fields) that the whole message may still have, the second the number left in the slice.
Only sliced decoders use the second number: generators with the same arguments and result.

Malformed bytes make a decoder raise DecodeError, IndexError, struct.error or UnicodeDecodeError;
``wire.codec`` turns all of them into DecodeError.
"""

from collections.abc import Callable
from struct import Struct as Packer
from struct import calcsize, unpack_from
from typing import Any, Final

from sparklog.errors import DecodeError
from sparklog.slices import Slices
from sparklog.wire.protocol.layout import (
    FIXED,
    GENERATOR_LINE,
    FunctionSource,
    has_arrays,
    is_fixed,
    items_form,
    least_item_size,
    packer_of,
    slice_lines,
)
from sparklog.wire.protocol.schema import Struct, WireField, remembered, thawed_type, wire_fields

Decoder = Callable[[memoryview, int, list[int]], tuple[Any, int]]
SlicedDecoder = Callable[[memoryview, int, list[int]], Slices[tuple[Any, int]]]

#: The last word of the reader's name by kind; records are read as a view, not copied.
_READERS: Final = {"string": "string", "bytes": "bytes", "records": "view"}


@remembered
def compile_decoder(struct_type: type[Struct], version: int, flexible: bool) -> Decoder:
    decoder: Decoder = _DecoderSource(struct_type, version, flexible).build()
    return decoder


@remembered
def compile_sliced_decoder(
    struct_type: type[Struct], version: int, flexible: bool
) -> SlicedDecoder:
    """A decoder that yields between items, after at most ``ITEMS_AT_ONCE`` of them."""
    decoder: SlicedDecoder = _SlicedDecoderSource(struct_type, version, flexible).build()
    return decoder


class _DecoderSource(FunctionSource):
    """The source of a decoder: buffer ``b``, offset ``o``, budget ``g``, fields ``v_<name>``."""

    def build(self) -> Any:
        for run in self.runs():
            if is_fixed(run[0]):
                self._fixed(run)
            else:
                self._value(run[0], f"v_{run[0].name}", "")
        if self.flexible:
            self._tags()
        self._make()
        return self.finish("(b, o, g)")

    def _make(self) -> None:
        new = self.name("new", object.__new__)
        self.add("", f"x = {new}({self.name('thawed', thawed_type(self.struct_type))})")
        for field in wire_fields(self.struct_type):
            if field.wire.exists_in(self.version):
                self.add("", f"x.{field.name} = v_{field.name}")
            else:
                self.add("", f"x.{field.name} = {self.name('default', field.default)}")
        self.add("", f"x.__class__ = {self.name('frozen', self.struct_type)}", "return x, o")

    def _fixed(self, run: list[WireField]) -> None:
        packer = packer_of(run)
        unpack = self.name("unpack", packer.unpack_from)
        targets = "".join(f"v_{field.name}, " for field in run)
        self.add("", f"{targets} = {unpack}(b, o)", f"o += {packer.size}")
        for field in run:
            if field.wire.kind == "uuid":
                self._convert_uuid(f"v_{field.name}", "")

    def _convert_uuid(self, target: str, indent: str) -> None:
        self.add(indent, f"{target} = {self.primitive('uuid_from_bytes')}({target})")

    def _value(self, field: WireField, target: str, indent: str) -> None:
        """Lines that read one value into ``target`` and move ``o`` behind it."""
        kind = field.wire.kind
        if field.wire.is_array:
            self._array(field, target, indent)
        elif not isinstance(kind, str):
            self._struct(kind, field, target, indent)
        elif kind in FIXED:
            packer = Packer(">" + FIXED[kind])
            unpack = self.name("unpack", packer.unpack_from)
            self.add(indent, f"{target} = {unpack}(b, o)[0]", f"o += {packer.size}")
            if kind == "uuid":
                self._convert_uuid(target, indent)
        else:
            read = self._reader(kind, nullable=field.wire.is_nullable_in(self.version))
            self.add(indent, f"{target}, o = {read}(b, o)")

    def _reader(self, kind: str | type[Struct], *, nullable: bool = False) -> str:
        """The name of the function that reads one value of variable size."""
        if not isinstance(kind, str):
            return self.name("read", compile_decoder(kind, self.version, self.flexible))
        compact = "compact_" if self.flexible else ""
        return self.primitive(f"read_{compact}{'nullable_' if nullable else ''}{_READERS[kind]}")

    def _call(self, kind: str | type[Struct]) -> str:
        """The expression that reads one item of variable size."""
        return f"{self._reader(kind)}{'(b, o)' if isinstance(kind, str) else '(b, o, g)'}"

    def _struct(self, kind: type[Struct], field: WireField, target: str, indent: str) -> None:
        read = f"{target}, o = {self._call(kind)}"
        if not field.wire.is_nullable_in(self.version) or field.wire.tag is not None:
            self.add(indent, read)
            return
        marker = self.primitive("read_struct_marker")
        self.add(indent, f"there, o = {marker}(b, o)", f"{target} = None", f"if there: {read}")

    def _array(self, field: WireField, target: str, indent: str) -> None:
        kind = field.wire.kind
        nullable = field.wire.is_nullable_in(self.version)
        self._count(kind, nullable, indent)
        if isinstance(kind, str) and kind in FIXED:
            self._fixed_items(kind, target, indent)
        else:
            self.add(
                indent,
                "items = []",
                "for _ in range(n):",
                f"    item, o = {self._call(kind)}",
                "    items.append(item)",
                *self.after_item,
                f"{target} = tuple(items)",
            )
        if nullable:
            self.add(indent, f"if n < 0: {target} = None")

    def _count(self, kind: str | type[Struct], nullable: bool, indent: str) -> None:
        """Lines that read the item count into ``n`` and refuse an impossible count."""
        if self.flexible:
            read = self.primitive("read_uvarint")
            self.add(indent, "n = b[o]", "o += 1", f"if n > 127: n, o = {read}(b, o - 1)", "n -= 1")
        else:
            unpack = self.name("unpack", Packer(">i").unpack_from)
            self.add(indent, f"n = {unpack}(b, o)[0]", "o += 4")
        size = least_item_size(kind, self.version, self.flexible)
        refuse = self.primitive("refuse_items")
        self.add(
            indent,
            "if n > 0: g[0] -= n",
            f"if n < 0 or g[0] < 0 or n * {size} > len(b) - o:",
            f"    {refuse}(b, o, n, {size}, g[0], {nullable})",
        )

    def _fixed_items(self, kind: str, target: str, indent: str) -> None:
        unpack = self.name("unpack", _unpack_items)
        size = calcsize(">" + FIXED[kind])
        self.add(indent, f"{target} = {unpack}({kind!r}, b, o, n)", f"if n > 0: o += n * {size}")
        if kind == "uuid":
            convert = self.primitive("uuid_from_bytes")
            self.add(indent, f"{target} = tuple(map({convert}, {target}))")

    def _tags(self) -> None:
        if not self.tagged:
            skip = self.primitive("skip_tagged_fields")
            self.add("", f"o = {skip}(b, o, g) if b[o] else o + 1")
            return
        for field in self.tagged:
            self.add("", f"v_{field.name} = {self.name('default', field.default)}")
        uvarint, end_of = self.primitive("read_uvarint"), self.primitive("end_of")
        self.add(
            "",
            f"tags, o = {uvarint}(b, o)",
            f"if tags: {self.primitive('take_items')}(g, tags)",
            "for _ in range(tags):",
            f"    tag, o = {uvarint}(b, o)",
            f"    size, o = {uvarint}(b, o)",
            f"    end = {end_of}(b, o, size)",
        )
        for index, field in enumerate(self.tagged):
            self.add("    ", f"{'elif' if index else 'if'} tag == {field.wire.tag}:")
            self._value(field, f"v_{field.name}", "        ")
            self.add("        ", f"if o != end: {self.name('refuse', _refuse_tag)}(tag)")
        self.add("    ", "o = end")


class _SlicedDecoderSource(_DecoderSource):
    """The source of a sliced decoder, a generator."""

    after_item = slice_lines("    ")

    def build(self) -> Any:
        self.add("", GENERATOR_LINE)
        return super().build()

    def _call(self, kind: str | type[Struct]) -> str:
        if isinstance(kind, str) or not has_arrays(kind, self.version):
            return super()._call(kind)
        decoder = compile_sliced_decoder(kind, self.version, self.flexible)
        return f"(yield from {self.name('read', decoder)}(b, o, g))"


def _unpack_items(kind: str, buffer: memoryview, offset: int, count: int) -> tuple[Any, ...]:
    return unpack_from(items_form(kind, count), buffer, offset) if count > 0 else ()


def _refuse_tag(tag: int) -> None:
    raise DecodeError(f"tagged field {tag} lies about its size")
