"""Reading the batches of a segment in windows, with every checksum checked.

Owns: the reads, their size, and the refusal of damage: a batch that is rewritten gets a new
checksum, which would hide the damage for ever.  Must not know the use of the batches.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from sparklog.errors import CorruptLogError, DecodeError, KafkaError
from sparklog.executors.log import LOG_SUFFIX
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    batch_size,
    check_batch,
    read_header,
)

#: The smallest window; ``log.cleaner.io.buffer.size`` may be less.
WINDOW_BYTES_MIN: Final = 65536

#: Called with a number of bytes that were read or written; it may wait.
Throttle = Callable[[int], None]


class Batch(NamedTuple):
    """A whole batch and its header."""

    header: BatchHeader
    data: memoryview


class SegmentReader:
    """The log file of one sealed segment of ``size`` bytes."""

    def __init__(self, half: FileHalf, partition_dir: str, base_offset: int, size: int) -> None:
        self.path = f"{partition_dir}/{base_offset:020d}{LOG_SUFFIX}"
        self._half = half
        self._size = size

    def windows(self, window_bytes: int, throttle: Throttle) -> Iterator[list[Batch]]:
        """Whole batches, about ``window_bytes`` at a time or one larger batch.

        Raises CorruptLogError, StorageError.
        """
        handle = self._half.open(self.path)
        try:
            position = 0
            while position < self._size:
                wanted = max(window_bytes, WINDOW_BYTES_MIN)
                data = handle.read(position, min(wanted, self._size - position))
                size = self._first_size(data, position)
                if size > len(data):
                    data = handle.read(position, min(size, self._size - position))
                batches = list(self._batches(data, position))
                if not batches:
                    raise CorruptLogError(self.path, position, "a batch is cut off")
                position += sum(len(batch.data) for batch in batches)
                throttle(len(data))
                yield batches
        finally:
            handle.close()

    def _first_size(self, data: bytes, position: int) -> int:
        try:
            size = batch_size(data, 0)
        except (DecodeError, KafkaError) as error:
            raise CorruptLogError(self.path, position, str(error)) from error
        if size is None or size > self._size - position:
            raise CorruptLogError(self.path, position, "a batch is cut off")
        return size

    def _batches(self, data: bytes, position: int) -> Iterator[Batch]:
        view, at = memoryview(data), 0
        while len(data) - at >= BATCH_OVERHEAD:
            try:
                size = batch_size(data, at)
                if size is None or at + size > len(data):
                    return
                header = read_header(data, at)
                check_batch(view, at, header)
            except (DecodeError, KafkaError) as error:
                raise CorruptLogError(self.path, position + at, str(error)) from error
            yield Batch(header, view[at : at + size])
            at += size
