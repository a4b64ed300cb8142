"""The check of a log file that passes by in chunks.

Owns: the framing, the headers and the CRC-32C of every batch.  Must not know files; memory is
limited to one header, whatever length a batch claims.
"""

from collections.abc import Callable

from crc32c import crc32c

from sparklog.errors import CorruptLogError
from sparklog.remote_log.batch_rules import BatchRules
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import BATCH_OVERHEAD, CRC_START, BatchHeader, Buffer, read_header


class BatchStream:
    """The batches of a file from ``start_position`` on.  ``take`` every chunk, then ``finish``.

    ``visit`` is called with the header and the position of each sound batch, in order.  Both
    methods raise CorruptLogError, which names the file and the position of the batch.
    """

    def __init__(
        self,
        path: str,
        base_offset: int,
        rules: BatchRules,
        visit: Callable[[BatchHeader, int], None],
        *,
        start_position: int = 0,
    ) -> None:
        self._path = path
        self._start_position = start_position
        self._rules = rules
        self._visit = visit
        self._next_offset = base_offset
        #: The position of the present batch, and what is known of it.
        self._position = 0
        self._head = bytearray()
        self._header: BatchHeader | None = None
        self._bytes_left = 0
        self._crc = 0
        #: Whether offsets are missing before a batch.
        self.gaps = False
        self.max_timestamp = NO_TIMESTAMP

    def take(self, chunk: Buffer) -> None:
        """Check the next bytes of the file."""
        view, at = memoryview(chunk), 0
        while at < len(view):
            if self._header is None:
                part = view[at : at + BATCH_OVERHEAD - len(self._head)]
                self._head += part
                if len(self._head) == BATCH_OVERHEAD:
                    self._begin(read_header(self._head))
            else:
                part = view[at : at + self._bytes_left]
                self._crc = crc32c(part, self._crc)
                self._bytes_left -= len(part)
            at += len(part)
            if self._header is not None and self._bytes_left == 0:
                self._end(self._header)

    def finish(self) -> None:
        """Check that the file has ended behind its last batch."""
        if self._position != self._rules.log_size:
            raise self._error(f"the file has {self._rules.log_size} bytes, a batch is cut off")

    def _begin(self, header: BatchHeader) -> None:
        damage = self._rules.damage(header, self._position, self._next_offset)
        if damage is not None:
            raise self._error(damage)
        self._header = header
        self._bytes_left = header.size - BATCH_OVERHEAD
        self._crc = crc32c(memoryview(self._head)[CRC_START:])

    def _end(self, header: BatchHeader) -> None:
        if self._crc != header.crc:
            raise self._error(f"CRC is {header.crc:#010x}, the bytes give {self._crc:#010x}")
        self._visit(header, self._position)
        self.gaps = self.gaps or header.base_offset > self._next_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self._next_offset = header.next_offset
        self._position += header.size
        self._header = None
        self._head = bytearray()

    def _error(self, reason: str) -> CorruptLogError:
        return CorruptLogError(self._path, self._start_position + self._position, reason)
