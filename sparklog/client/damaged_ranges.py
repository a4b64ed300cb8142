"""Damaged ranges of a partition: finding the offset from which it can be read again.

Owns: the next offset according to the batches of a fetch, and the search for an offset when these
batches are damaged.  Must not know records, nor whether the reader wants to go on.
"""

from typing import Final

from sparklog.client.data_client import DataClient
from sparklog.client.fetch_api import Fetched
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from sparklog.wire.records.batch import batch_size, check_batch, iter_batches, read_header

#: Time of one probe at an offset, in seconds: the request is retried meanwhile.
PROBE_S: Final = 2.0
#: Probes at an offset of which nothing comes in time: the leader may wait for a bucket.
PROBES_MAX: Final = 5


class BeyondHighWatermarkError(DecodeError):
    """The first batch of a fetch ends beyond the high watermark of the same fetch.

    Either its base offset is damaged, which no CRC covers, or the leader read its high watermark
    before the records, as Apache Kafka does (``UnifiedLog.read``).  A second fetch at the offset
    tells which: by then the high watermark has passed what the first one returned.
    """


def end_of_answer(fetched: Fetched, offset: int) -> tuple[int, int]:
    """The offset and the byte behind the last whole batch of a fetch at ``offset``.

    Raises DecodeError when there are bytes but no batch beyond ``offset``: a length or an offset in
    a header is damaged.  Raises BeyondHighWatermarkError when that may be so.  Raises KafkaError
    for another message format.
    """
    records = fetched.records
    before, after, start, end = offset, offset, 0, 0
    try:
        while (size := batch_size(records, end)) is not None and end + size <= len(records):
            header = read_header(records, end)
            if end and header.base_offset < after:
                # One of two neighbours is wrong; no CRC covers the base offset and the length.
                if _is_sound(records, start) or not before < header.base_offset:
                    break
                after = header.base_offset
            if not after < header.next_offset <= fetched.high_watermark:
                if not end:
                    is_beyond = header.next_offset > after
                    raise (BeyondHighWatermarkError if is_beyond else DecodeError)(
                        f"the batch there says that the next offset is {header.next_offset}; the "
                        f"log is readable up to {fetched.high_watermark}"
                    )
                break
            before, after = after, header.next_offset
            start, end = end, end + size
    except (DecodeError, KafkaError):
        if not end:
            raise
    if not end:
        raise DecodeError(f"the {len(records)} bytes there are no whole batch")
    return after, end


def _is_sound(records: memoryview, start: int) -> bool:
    try:
        check_batch(records, start, read_header(records, start))
    except (DecodeError, KafkaError):
        return False
    return True


async def find_readable(
    data_client: DataClient, tp: TopicPartition, offset: int, *, isolation: Isolation
) -> int:
    """An offset above ``offset`` from which a fetch returns a sound batch, behind a damaged range.

    Returns the end of the log if there is no such offset.  The number of fetches grows with the
    logarithm of the distance; in return, sound batches between two damaged ranges may be
    skipped.  Raises KafkaError when the end of the log cannot be found.
    """
    latest = await data_client.list_offsets({tp: OffsetSpec.LATEST}, isolation=isolation)
    end = latest[tp].offset
    refused, step = offset, 1
    while True:
        readable = min(refused + step, end)
        if readable >= end or await _is_readable(data_client, tp, readable, isolation):
            break
        refused, step = readable, step * 2
    while readable - refused > 1:
        middle = (refused + readable) // 2
        if await _is_readable(data_client, tp, middle, isolation):
            readable = middle
        else:
            refused = middle
    return max(readable, offset + 1)


async def _is_readable(
    data_client: DataClient, tp: TopicPartition, offset: int, isolation: Isolation
) -> bool:
    """Whether a fetch at ``offset`` returns a sound batch that ends beyond it."""
    try:
        records = await _probe(data_client, tp, offset, isolation)
        for header, start in iter_batches(records, partial_tail=True):
            check_batch(records, start, header)
            return header.last_offset >= offset
    except DecodeError:
        return False
    except KafkaError as error:
        if error.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD):
            raise
    return False


async def _probe(
    data_client: DataClient, tp: TopicPartition, offset: int, isolation: Isolation
) -> memoryview:
    """What a fetch at ``offset`` returns; empty if every answer is, which damage may cause.

    Raises KafkaError, with REQUEST_TIMED_OUT if none of PROBES_MAX fetches is answered in time:
    what is slow is not damaged.
    """
    records: memoryview | None = None
    for _ in range(PROBES_MAX):
        try:
            fetched = await data_client.fetch(
                tp,
                offset,
                max_bytes=1,
                max_wait_ms=int(PROBE_S * 500),
                isolation=isolation,
                timeout_s=PROBE_S,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            continue
        records = fetched.records
        if records:
            break
    if records is None:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{tp} answered none of {PROBES_MAX} fetches at offset {offset} within {PROBE_S:g} s: "
            "look for errors in the log of its leader",
        )
    return records
