"""The batches of a task's range: from the bucket what is sound there, while that works, and the
rest from the brokers.

Owns: which of the two reads.  Must not know how either of them reads.
"""

from collections.abc import Iterator
from dataclasses import replace
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

    def made_up_for(part: OffsetRange) -> RangeFetcher:
        """Fails soon where the brokers do not have the part either."""
        strict = CorruptBatches(part.topic_partition, part.start, part.end, fail=True)
        lost = replace(options, fail_on_data_loss=True)
        timeout_s = min(ASK_SECONDS_MAX, client.timeout_s)
        return RangeFetcher(client, part, lost, strict, timeout_s)

    if item.remote is not None:
        # Only tasks that read the bucket pay for the import of an HTTP client.
        from sparklog.dataframe.read.direct_reads import DirectReads
        from sparklog.dataframe.read.segment_source import source_of
        from sparklog.storage_backends.url_ranges import BUSY_PAUSES_S, UrlRanges

        # Brokers would ask the same store, which is no less busy for them.
        ranges = UrlRanges(busy_pauses_s=BUSY_PAUSES_S)
        source = source_of(client, item)
        direct = DirectReads(item, source, ranges, options.isolation, corrupt, made_up_for)
        yield from direct
        if direct.offset >= item.end:
            return
        item = replace(item, start=direct.offset, remote=None)
    yield from RangeFetcher(client, item, options, corrupt)
