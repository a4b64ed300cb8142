"""Encoders, ``(out, value, budget) -> None``, compiled per struct and version.

Owns: appending fields in order and tagged fields, and the budget of items (see ``decoders``): an
encoder raises TooManyItemsError for an array that exceeds the budget, and sliced encoders are
generators.  Must not know headers or any particular message.

A value that does not fit its kind makes an encoder raise struct.error, TypeError, AttributeError or
ValueError; ``wire.codec`` turns all of them into ValueError.
"""

from collections.abc import Callable
from struct import Struct as Packer
from struct import pack
from typing import Any, Final

from sparklog.slices import Slices
from sparklog.wire.protocol.layout import (
    FIXED,
    GENERATOR_LINE,
    FunctionSource,
    has_arrays,
    is_fixed,
    items_form,
    packer_of,
    slice_lines,
)
from sparklog.wire.protocol.primitives import TooManyItemsError
from sparklog.wire.protocol.schema import Struct, WireField, remembered

Encoder = Callable[[bytearray, Any, list[int]], None]
SlicedEncoder = Callable[[bytearray, Any, list[int]], Slices[None]]

#: The last word of the writer's name by kind.
_WRITERS: Final = {"string": "string", "bytes": "bytes", "records": "bytes"}


@remembered
def compile_encoder(struct_type: type[Struct], version: int, flexible: bool) -> Encoder:
    encoder: Encoder = _EncoderSource(struct_type, version, flexible).build()
    return encoder


@remembered
def compile_sliced_encoder(
    struct_type: type[Struct], version: int, flexible: bool
) -> SlicedEncoder:
    """An encoder that yields between items, after at most ``ITEMS_AT_ONCE`` of them."""
    encoder: SlicedEncoder = _SlicedEncoderSource(struct_type, version, flexible).build()
    return encoder


class _EncoderSource(FunctionSource):
    """The source of an encoder: value ``x``, output ``out``, budget ``g``."""

    def build(self) -> Any:
        for run in self.runs():
            if is_fixed(run[0]):
                self._fixed(run, "out", "")
            else:
                self._value(run[0], "out", "")
        if self.flexible:
            self._tags()
        self.add("", "return None")
        return self.finish("(out, x, g)")

    def _fixed(self, run: list[WireField], out: str, indent: str) -> None:
        to_bytes = self.primitive("uuid_to_bytes")
        values = ", ".join(
            f"{to_bytes}(x.{field.name})" if field.wire.kind == "uuid" else f"x.{field.name}"
            for field in run
        )
        self.add(indent, f"{out} += {self.name('pack', packer_of(run).pack)}({values})")

    def _value(self, field: WireField, out: str, indent: str) -> None:
        """Lines that append one value to ``out``."""
        kind = field.wire.kind
        if field.wire.is_array:
            self._array(field, out, indent)
        elif not isinstance(kind, str):
            self._struct(kind, field, out, indent)
        elif kind in FIXED:
            self._fixed([field], out, indent)
        else:
            self.add(indent, f"v = {self._present(field)}")
            self._refuse_null(field, "v", indent)
            self.add(indent, f"{self._writer(kind)}({out}, v)")

    def _present(self, field: WireField) -> str:
        """The value; in versions without null, None becomes the empty value."""
        wire = field.wire
        if wire.nullable_from is None or wire.is_nullable_in(self.version):
            return f"x.{field.name}"
        empty = "()" if wire.is_array else repr("" if wire.kind == "string" else b"")
        return f"{empty} if x.{field.name} is None else x.{field.name}"

    def _refuse_null(self, field: WireField, value: str, indent: str) -> None:
        if field.wire.nullable_from is None:
            refuse = self.name("refuse", _refuse_null)
            self.add(indent, f"if {value} is None: {refuse}({field.name!r})")

    def _writer(self, kind: str | type[Struct]) -> str:
        """The name of the function that appends one value of variable size."""
        if not isinstance(kind, str):
            return self.name("write", compile_encoder(kind, self.version, self.flexible))
        return self.primitive(f"write_{'compact_' if self.flexible else ''}{_WRITERS[kind]}")

    def _call(self, kind: str | type[Struct], out: str, value: str) -> str:
        """The statement that appends one item of variable size."""
        if isinstance(kind, str):
            return f"{self._writer(kind)}({out}, {value})"
        return f"{self._writer(kind)}({out}, {value}, g)"

    def _struct(self, kind: type[Struct], field: WireField, out: str, indent: str) -> None:
        value = f"x.{field.name}"
        write = self._call(kind, out, value)
        if not field.wire.is_nullable_in(self.version) or field.wire.tag is not None:
            self.add(indent, write)
            return
        self.add(
            indent,
            f"{out}.append(0xFF if {value} is None else 1)",
            f"if {value} is not None: {write}",
        )

    def _array(self, field: WireField, out: str, indent: str) -> None:
        kind = field.wire.kind
        self.add(indent, f"items = {self._present(field)}")
        self._refuse_null(field, "items", indent)
        self.add(indent, "n = -1 if items is None else len(items)")
        if self.flexible:
            uvarint = self.primitive("write_uvarint")
            self.add(indent, f"if n < 127: {out}.append(n + 1)", f"else: {uvarint}({out}, n + 1)")
        else:
            self.add(indent, f"{out} += {self.name('pack', Packer('>i').pack)}(n)")
        if isinstance(kind, str) and kind in FIXED:
            self._fixed_items(kind, out, indent)
        else:
            self.add(
                indent,
                "if n > 0:",
                "    g[0] -= n",
                f"    if g[0] < 0: {self.name('refuse', _refuse_items)}(n)",
                "    for item in items:",
                f"        {self._call(kind, out, 'item')}",
                *self.after_item,
            )

    def _fixed_items(self, kind: str, out: str, indent: str) -> None:
        items = f"map({self.primitive('uuid_to_bytes')}, items)" if kind == "uuid" else "items"
        self.add(indent, f"if n > 0: {out} += {self.name('pack', _pack_items)}({kind!r}, {items})")

    def _tags(self) -> None:
        if not self.tagged:
            self.add("", "out.append(0)")
            return
        # Values are mostly the default objects themselves, so values are rarely compared.
        defaults = [self.name("default", field.default) for field in self.tagged]
        changed = " or ".join(
            f"x.{field.name} is not {default}"
            for field, default in zip(self.tagged, defaults, strict=True)
        )
        self.add("", f"if not ({changed}):", "    out.append(0)", "    return None", "tags = []")
        for field, default in zip(self.tagged, defaults, strict=True):
            self.add("", f"if x.{field.name} != {default}:", "    part = bytearray()")
            self._value(field, "part", "    ")
            self.add("    ", f"tags.append(({field.wire.tag}, part))")
        uvarint = self.primitive("write_uvarint")
        self.add(
            "",
            f"{uvarint}(out, len(tags))",
            "for tag, part in tags:",
            f"    {uvarint}(out, tag)",
            f"    {uvarint}(out, len(part))",
            "    out += part",
        )


class _SlicedEncoderSource(_EncoderSource):
    """The source of a sliced encoder, a generator."""

    after_item = slice_lines("        ")

    def build(self) -> Any:
        self.add("", GENERATOR_LINE)
        return super().build()

    def _call(self, kind: str | type[Struct], out: str, value: str) -> str:
        if isinstance(kind, str) or not has_arrays(kind, self.version):
            return super()._call(kind, out, value)
        encoder = compile_sliced_encoder(kind, self.version, self.flexible)
        return f"yield from {self.name('write', encoder)}({out}, {value}, g)"


def _refuse_items(count: int) -> None:
    raise TooManyItemsError(f"an array of {count} items is more than is encoded at once")


def _refuse_null(name: str) -> None:
    raise ValueError(f"{name} is None, which the schema never allows")


def _pack_items(kind: str, items: Any) -> bytes:
    values = tuple(items)
    return pack(items_form(kind, len(values)), *values)
