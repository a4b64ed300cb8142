"""Spans of one buffer -> Arrow arrays, and Arrow arrays -> one buffer.

Owns: nullable, length-prefixed fields by column, gathering scattered bytes into an Arrow array and
interleaving Arrow arrays into one run of bytes.  Must not know the fields of a record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.errors import DecodeError
from sparklog.wire.records.varints import Bytes, Ints, read_varints

_NO_BYTES: Final = b""


@dataclass(frozen=True, slots=True)
class Span:
    """[start, end) in a buffer by row, ascending; nulls have start == end and a mark."""

    start: Ints
    end: Ints
    null: npt.NDArray[np.bool_]

    def pick(self, rows: Ints | None) -> "Span":
        """The span of some rows; None stands for all."""
        if rows is None:
            return self
        return Span(self.start[rows], self.end[rows], self.null[rows])


def read_span(octets: Bytes, positions: Ints, limits: Ints) -> tuple[Span, Ints]:
    """(span of the field, positions after it): a varint length, -1 for null, then the bytes.

    Raises DecodeError for a length below -1 or beyond the limit of its row.
    """
    lengths, start = read_varints(octets, positions)
    null = lengths < 0
    if null.any():
        if int(lengths.min()) < -1:
            raise DecodeError("a field has a negative length")
        lengths = np.where(null, 0, lengths)
    end = start + lengths
    if bool((end > limits).any()):
        raise DecodeError("a field is longer than its record")
    return Span(start, end, null), end


def binary_buffers(column: Any) -> Iterator[memoryview]:
    """The values of a binary array without nulls, without a copy."""
    _, offsets, data = column.buffers()
    first = column.offset
    edges = np.frombuffer(offsets, np.int32, len(column) + 1, first * 4).tolist()
    whole = memoryview(data)
    return (whole[start:end] for start, end in pairwise(edges))


def gather(data: bytes, span: Span, kind: Any) -> Any:
    """The bytes of the span as an Arrow array of ``kind`` (binary or string, not validated).

    Spans and the gaps between them form one array over ``data``; ``take`` copies the spans out,
    so that the result does not keep ``data`` alive.
    """
    count = len(span.start)
    if bool(span.null.all()):
        return pa.nulls(count, kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = span.start
    offsets[1::2] = span.end
    offsets[-1] = offsets[-2]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    picks = np.arange(0, 2 * count, 2, dtype=np.int32)
    mask = span.null if span.null.any() else None
    return pa.Array.from_buffers(kind, 2 * count, buffers).take(pa.array(picks, mask=mask))


def interleave(columns: Sequence[Any], last: bytes = _NO_BYTES) -> tuple[memoryview, Ints]:
    """(the bytes of all columns row by row, then ``last``; the edges of rows).

    The columns are binary arrays of one length; a null has no bytes.
    """
    rows, width = len(columns[0]), len(columns)
    picks = np.empty(rows * width + 1, np.int32)
    for index in range(width):
        picks[index:-1:width] = np.arange(index * rows, (index + 1) * rows, dtype=np.int32)
    picks[-1] = rows * width
    laid_out = pa.concat_arrays([*columns, pa.array([last], pa.binary())])
    joined = laid_out.take(pa.array(picks))
    _, offsets, data = joined.buffers()
    edges = np.frombuffer(offsets, np.int32, rows * width + 1, joined.offset * 4)
    row_edges: Ints = edges[::width].astype(np.int64)
    return memoryview(b"" if data is None else data), row_edges


def binary_from(data: Bytes | memoryview, offsets: npt.NDArray[np.int32]) -> Any:
    """A binary array over ``data`` without a copy."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
