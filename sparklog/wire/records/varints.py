"""Zigzag varints by column, in NumPy.

Owns: the integer encoding of record fields for many records at once.  Must not know records.
Single values are encoded in ``zigzag``, so that brokers do not need NumPy.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparklog.errors import DecodeError
from sparklog.wire.records.zigzag import MAX_VARINT_BYTES

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

#: Bytes that must follow the data of ``read_varints``, so that malformed data stays inside.
PADDING_BYTES: Final = 64

_ONE: Final = np.uint64(1)
_SINGLE_BYTE_VALUES: Final[Ints] = np.array(
    [(raw >> 1) ^ -(raw & 1) for raw in range(128)], np.int64
)


def read_varints(
    data: Bytes, positions: Ints, max_bytes: int = MAX_VARINT_BYTES
) -> tuple[Ints, Ints]:
    """(values, positions after them) of the varints at ``positions``.

    ``data`` must continue for ``max_bytes`` after the last position.  The caller checks by the
    returned positions that no varint crosses the end of its record.  Raises DecodeError for a
    varint that is too long.
    """
    byte = data.take(positions)
    after = positions + 1
    active: Any = slice(None)
    raw: npt.NDArray[np.uint64] | None = None
    for shift in range(7, 7 * max_bytes + 1, 7):
        going_on = np.flatnonzero(byte > 0x7F)
        if not len(going_on):
            break
        if shift == 7 * max_bytes:
            raise DecodeError(f"a varint is longer than {max_bytes} bytes")
        if raw is None:
            raw = (byte & 0x7F).astype(np.uint64)
        if len(going_on) < len(byte):
            active = going_on if isinstance(active, slice) else active[going_on]
        byte = data.take(after[active])
        if shift == 63 and byte.max() > 1:
            raise DecodeError("a varint exceeds 64 bits")
        raw[active] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[active] += 1
    if raw is None:
        return _SINGLE_BYTE_VALUES.take(byte), after
    return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64), after


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """The zigzag form of signed values, as varints hold it."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint_widths(values: Ints) -> Ints:
    """Encoded size in bytes of each value."""
    if not values.any():
        return np.ones(len(values), np.int64)
    return _raw_widths(zigzag(values))


class RowWriter:
    """Builds rows of bytes and varints by column; rows may differ in width.

    Every field takes as many cells of a row as its widest value needs; ``finish`` drops the unused
    cells.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns: list[Bytes | int] = []
        self._keep: list[npt.NDArray[np.bool_] | None] = []

    def put_byte(self, value: int) -> None:
        self._columns.append(value)
        self._keep.append(None)

    def put_varints(self, values: Ints) -> None:
        if not values.any():
            self.put_byte(0)
            return
        raw = zigzag(values)
        top = int(raw.max())
        if top < 0x80:
            self._columns.append(raw.astype(np.uint8))
            self._keep.append(None)
            return
        widest = (top.bit_length() + 6) // 7
        narrowest = max(1, (int(raw.min()).bit_length() + 6) // 7)
        for index in range(widest):
            rest = raw >> np.uint64(7 * index) if index else raw
            low = rest.astype(np.uint8)
            if index + 1 < widest:
                going_on = rest > np.uint64(0x7F)
                low = np.where(going_on, low | np.uint8(0x80), low)
            self._columns.append(low)
            self._keep.append(None if index < narrowest else self._used(raw, index))

    @staticmethod
    def _used(raw: npt.NDArray[np.uint64], index: int) -> npt.NDArray[np.bool_]:
        return raw >= np.uint64(1 << (7 * index))

    def finish(self) -> tuple[Bytes, npt.NDArray[np.int32]]:
        """(bytes of all rows, row offsets into them)."""
        width = len(self._columns)
        cells = np.empty((self._rows, width), np.uint8)
        for index, column in enumerate(self._columns):
            cells[:, index] = column
        flat = cells.reshape(-1)
        offsets = np.arange(0, self._rows * width + 1, width, dtype=np.int32)
        if all(keep is None for keep in self._keep):
            return flat, offsets
        used = np.ones((self._rows, width), np.bool_)
        unused_count = np.zeros(self._rows, np.int32)
        for index, keep in enumerate(self._keep):
            if keep is not None:
                used[:, index] = keep
                unused_count += ~keep
        offsets[1:] -= np.cumsum(unused_count, dtype=np.int32)
        return np.compress(used.reshape(-1), flat), offsets


def _raw_widths(raw: npt.NDArray[np.uint64]) -> Ints:
    widths = np.ones(len(raw), np.int64)
    top = int(raw.max()) if len(raw) else 0
    for bits in range(7, max(top.bit_length(), 1), 7):
        widths += raw >= np.uint64(1 << bits)
    return widths
