"""Logs as they lie on a simulated disk, and how far they are safe there.

Owns: finding and walking the files, without any operation on the disk.  Must not know who wrote
them, or what brokers believe of them.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sparklog.storage_backends.memory_disk import MemoryDisk
from sparklog.storage_backends.memory_nodes import FileNode, FolderNode
from sparklog.types import TopicPartition
from sparklog.wire.records.batch import BatchHeader, iter_batches
from tests.simulation.events import SeenBatch

#: Of a batch: its base offset, its length behind these two, and its last offset delta.
_HEAD = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_AT = 23
_SUFFIX = ".log"


class _LogFile(NamedTuple):
    base_offset: int
    node: FileNode
    #: Whether a loss of power leaves its name.
    is_named: bool


def batches(disk: MemoryDisk, broker_id: int, tp: TopicPartition) -> Iterator[SeenBatch]:
    """All whole batches."""
    for file in _files(disk, broker_id, tp):
        yield from _walk(file.node.data, len(file.node.data))


def whole_batches(
    disk: MemoryDisk, broker_id: int, tp: TopicPartition, begin: int
) -> Iterator[tuple[bytes, BatchHeader]]:
    """The bytes of all whole batches that end above an offset."""
    files = list(_files(disk, broker_id, tp))
    for number, file in enumerate(files):
        if number + 1 < len(files) and files[number + 1].base_offset <= begin:
            continue
        data = bytes(file.node.data)
        for header, start in iter_batches(data, partial_tail=True):
            if header.next_offset > begin:
                yield data[start : start + header.size], header


def safe_end(disk: MemoryDisk, broker_id: int, tp: TopicPartition, log_end: int) -> int:
    """Up to where a loss of power takes nothing; ``log_end`` when it takes nothing at all."""
    for file in _files(disk, broker_id, tp):
        data, flushed = file.node.data, min(file.node.dirty_from, len(file.node.flushed))
        if not data or (file.is_named and flushed >= len(data)):
            continue
        end = file.base_offset
        if file.is_named:
            for batch in _walk(data, flushed):
                end = batch.next_offset
        return min(end, log_end)
    return log_end


def _files(disk: MemoryDisk, broker_id: int, tp: TopicPartition) -> Iterator[_LogFile]:
    """By base offset."""
    home, name = disk.root.live.get(f"broker-{broker_id}"), f"{tp.topic}-{tp.partition}"
    partition_dir = home.live.get(name) if isinstance(home, FolderNode) else None
    if not isinstance(home, FolderNode) or not isinstance(partition_dir, FolderNode):
        return
    is_named = home.durable.get(name) is partition_dir
    for file_name, node in sorted(partition_dir.live.items()):
        if isinstance(node, FileNode) and file_name.endswith(_SUFFIX):
            yield _LogFile(
                base_offset=int(file_name.removesuffix(_SUFFIX)),
                node=node,
                # A start finishes a swap.
                is_named=is_named
                and any(partition_dir.durable.get(file_name + s) is node for s in ("", ".swap")),
            )


def _walk(data: bytearray, size: int) -> Iterator[SeenBatch]:
    at = 0
    while at + _HEAD.size <= size:
        base_offset, length = _HEAD.unpack_from(data, at)
        stop = at + _HEAD.size + length
        if length <= 0 or stop > size:
            return  # being written, or cut off by whoever recovers it
        next_offset = base_offset + _LAST_DELTA.unpack_from(data, at + _LAST_DELTA_AT)[0] + 1
        yield SeenBatch(base_offset, next_offset, zlib.crc32(data[at:stop]))
        at = stop
