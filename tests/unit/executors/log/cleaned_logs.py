"""A simple cleaner for tests of the log: it rewrites segments in memory.

The rules are those of ``cleaned_segments``: offsets do not change, a batch keeps its base offset
and its last offset, and the last batch stays, without records if need be.
"""

from collections.abc import Callable, Sequence

from sparklog.executors.log.cleaned_segments import (
    CLEANED_SUFFIX,
    CleanedGroup,
    CleanedSegment,
)
from sparklog.executors.log.log import Log
from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.steps import Steps, run_through
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.segment_files.index_builder import IndexBuilder
from sparklog.storage_backends.base import FileHalf
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import (
    DELETE_HORIZON_BIT,
    BatchHeader,
    iter_batches,
    pack_batch,
)
from sparklog.wire.records.builder import Record, decode_batch, encode_batch
from tests.unit.executors.log.log_fixtures import PARTITION_DIR


def keep_nothing(_: Record) -> bool:
    return False


def no_batch(_: BatchHeader) -> bool:
    return False


def filtered(data: bytes, start: int, header: BatchHeader, keep: Callable[[Record], bool]) -> bytes:
    """The batch with the records to keep; with none, an emptied batch (``writeEmptyHeader``)."""
    whole = data[start : start + header.size]
    records = decode_batch(data, start, header)
    kept = [record for record in records if keep(record)]
    if len(kept) == len(records) or header.is_control:
        return whole
    if not kept:
        return emptied(header)
    return encode_batch(
        kept,
        base_offset=header.base_offset,
        compression=header.compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        timestamp_type=header.timestamp_type,
        leader_epoch=header.partition_leader_epoch,
        last_offset_delta=header.last_offset_delta,
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records, as Kafka's cleaner leaves it: the largest timestamp stays."""
    return pack_batch(
        b"",
        attributes=header.attributes & ~(0x07 | DELETE_HORIZON_BIT),
        record_count=0,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def clean(
    half: FileHalf,
    segments: Sequence[Segment],
    keep: Callable[[Record], bool] = keep_nothing,
    *,
    keep_batch: Callable[[BatchHeader], bool] = no_batch,
    rewrite: Callable[[bytes], bytes] = bytes,
) -> CleanedGroup:
    """Write the cleaned files of these adjacent segments, durably.

    ``keep_batch`` tells which batches stay even without records.  ``rewrite`` may change a batch
    that stays.
    """
    batches: list[bytes] = []
    for segment in segments:
        data = segment.handle().read(0, segment.size)
        for header, start in iter_batches(data):
            batch = filtered(data, start, header, keep)
            (left,) = (each for each, _ in iter_batches(batch))
            last = segment is segments[-1] and start + header.size == len(data)
            if left.record_count or last or keep_batch(header):
                batches.append(rewrite(batch))
    aborted = [txn for segment in segments for txn in segment.txn_index.read_all()]
    return write_cleaned(half, segments, batches, aborted)


def write_cleaned(
    half: FileHalf,
    segments: Sequence[Segment],
    batches: Sequence[bytes],
    aborted: Sequence[AbortedTxn] = (),
) -> CleanedGroup:
    first, data = segments[0], b"".join(batches)
    builder = IndexBuilder(first.base_offset, first.indexes.interval_bytes)
    headers = [header for header, _ in iter_batches(data)]
    builder.add_all(headers, 0)
    builder.finish()
    txn = half.read(first.txn_index.path) if aborted and first.txn_index.entries else b""
    for segment in segments[1:] if aborted else ():
        txn += half.read(segment.txn_index.path) if segment.txn_index.entries else b""
    contents = {LOG_SUFFIX: data, INDEX_SUFFIX: builder.offsets, TIME_INDEX_SUFFIX: builder.times}
    if aborted:
        contents[TXN_INDEX_SUFFIX] = txn
    for suffix, content in contents.items():
        half.put(first.path(suffix) + CLEANED_SUFFIX, content)
    cleaned = CleanedSegment(
        base_offset=first.base_offset,
        next_offset=headers[-1].next_offset,
        size=len(data),
        largest_timestamp=builder.largest.timestamp,
        largest_offset=builder.largest.offset,
        offset_entries=len(builder.offsets) // 8,
        time_entries=len(builder.times) // 12,
        aborted_entries=len(aborted),
    )
    replaced = tuple(segment.base_offset for segment in segments)
    return CleanedGroup(segment=cleaned, replaced=replaced)


def swap_steps(
    log: Log, group: CleanedGroup, *, generation: int | None = None, now_ms: int = 0
) -> Steps[bool]:
    """The steps of a swap, with the announcement around them."""
    assert log.begin_replacement()
    try:
        known = log.generation if generation is None else generation
        return (yield from log.replace_segments(group, known, now_ms))
    finally:
        log.end_replacement()


def swap(log: Log, group: CleanedGroup, *, now_ms: int = 0) -> bool:
    return run_through(swap_steps(log, group, now_ms=now_ms))


def compact(
    log: Log,
    half: FileHalf,
    keep: Callable[[Record], bool] = keep_nothing,
    *,
    count: int | None = None,
    now_ms: int = 0,
) -> None:
    """Clean the first ``count`` sealed segments (None: all) into one."""
    sealed = log.segments[:-1][:count]
    assert swap(log, clean(half, sealed, keep), now_ms=now_ms)


__all__ = [
    "PARTITION_DIR",
    "clean",
    "compact",
    "emptied",
    "filtered",
    "swap",
    "swap_steps",
    "write_cleaned",
]
