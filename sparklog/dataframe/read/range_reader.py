"""The batches of a task's range: from the bucket what is sound there, while that works, and the
rest from the brokers.

Owns: which of the two reads.  Must not know how either of them reads.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.fetch_api import Fetched
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.range_fetcher import RangeFetcher

#: Time for what brokers have of a damaged object, in seconds: damage is an answer that clients
#: otherwise ask for again until their time is up.
ASK_SECONDS_MAX: Final = 10.0


def read_range(
    client: BlockingDataClient, item: OffsetRange, options: ReadOptions, corrupt: CorruptBatches
) -> Iterator[tuple[int, Fetched]]:
    """Pairs of the first wanted offset and the batches from there on.

    Raises what ``RangeFetcher`` and ``DirectReads`` raise.
    """
    if item.remote is not None:
        # Only tasks that read the bucket pay for the import of an HTTP client.
        from sparklog.dataframe.read.direct_reads import DirectReads
        from sparklog.dataframe.read.segment_source import source_of
        from sparklog.storage_backends.url_ranges import BUSY_PAUSES_S, UNREACHABLE, UrlRanges

        # Brokers would ask the same store, which is no less busy for them, but they may reach it.
        ranges = UrlRanges(busy_pauses_s=BUSY_PAUSES_S, unreachable=UNREACHABLE)
        source = source_of(client, item)
        ask_brokers = partial(_lost_part, client, options)
        direct = DirectReads(item, source, ranges, options.isolation, corrupt, ask_brokers)
        yield from direct
        if direct.offset >= item.end:
            return
        item = replace(item, start=direct.offset, remote=None)
    yield from RangeFetcher(client, item, options, corrupt)


def _lost_part(client: BlockingDataClient, options: ReadOptions, part: OffsetRange) -> RangeFetcher:
    """Offsets that a damaged object has lost, from the brokers; fails soon and whatever the options
    allow, because the caller skips what nobody has."""
    return RangeFetcher(
        client,
        part,
        replace(options, fail_on_data_loss=True),
        CorruptBatches(part.topic_partition, part.start, part.end, fail=True),
        timeout_s=min(ASK_SECONDS_MAX, client.timeout_s),
    )
