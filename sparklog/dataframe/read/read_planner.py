"""The planner of batch reads: it requests metadata and offsets, and makes the plan.

Owns: the requests (metadata, offsets, offsets by time, remote segments), their order, and their
retries.  Must not know Spark, nor the decisions in ``plan``, ``pushdown`` and ``remote_plan``.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from sparklog.client.data_client import DataClient
from sparklog.client.deadline import UNKNOWN_TOPIC_CODES, Deadline, is_retriable
from sparklog.client.partition_results import value_or_raise
from sparklog.client.remote_segments_api import RemoteSegments, Wanted, remote_segments
from sparklog.dataframe.options import Bound, ReadOptions, RemoteReads, topic_matcher
from sparklog.dataframe.read.cut_offsets import cut_offsets
from sparklog.dataframe.read.plan import (
    FoundByTime,
    OffsetRange,
    PartitionOffsets,
    check_names,
    resolve,
    split,
)
from sparklog.dataframe.read.pushdown import Narrowing
from sparklog.dataframe.read.remote_plan import cut_by_tier, with_own_segments
from sparklog.errors import ConfigError, ConnectError, ErrorCode, KafkaError
from sparklog.plurals import counted
from sparklog.types import NO_OFFSET, Isolation, OffsetSpec, OffsetTimestamp, TopicPartition

log = logging.getLogger(__name__)

#: Time in which the leaders give the segments in the bucket, in seconds.
REMOTE_SEGMENTS_S: Final = 10.0
#: Most segments that are asked for, about; tasks ask for those beyond.
REMOTE_SEGMENTS_MAX: Final = 20_000
#: Time for the search of where a filter by time begins, in seconds, if damage is in its way.
FILTER_SEARCH_S: Final = 10.0
_NOTHING_REMOTE: Final = RemoteSegments()


async def plan_read(
    client: DataClient, options: ReadOptions, narrowing: Narrowing
) -> list[OffsetRange]:
    """The ranges of one batch read, with fixed end offsets.

    Raises ConfigError for bounds outside of the partitions, DataLossError for deleted records,
    KafkaError for unknown topics, ConnectError when no node responds.
    """
    deadline = Deadline(options.poll_timeout_ms / 1000)
    tries_left = options.plan_tries
    while True:
        try:
            return await _ReadPlanner(client, options, deadline).plan(narrowing)
        except (KafkaError, ConnectError) as error:
            tries_left -= 1
            pause_s = options.plan_pause_ms / 1000
            unknown_topic = isinstance(error, KafkaError) and error.code in UNKNOWN_TOPIC_CODES
            if not tries_left or unknown_topic or not is_retriable(error):
                raise
            if deadline.left_s <= pause_s:
                raise
            log.warning("could not plan the read, trying again: %s", error)
            await asyncio.sleep(pause_s)


class _ReadPlanner:
    """One attempt at a plan."""

    def __init__(self, client: DataClient, options: ReadOptions, deadline: Deadline) -> None:
        self._client = client
        self._options = options
        self._deadline = deadline

    async def plan(self, narrowing: Narrowing) -> list[OffsetRange]:
        options = self._options
        partitions = await self._partitions()
        check_names(options.starting, "starting", partitions)
        check_names(options.ending, "ending", partitions)
        earliest = await self._offsets(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))
        latest = await self._latest(partitions, narrowing)
        starts = await self._by_time(options.starting, partitions)
        ends = await self._by_time(options.ending, partitions)
        ranges = []
        for tp in partitions:
            first, last = earliest[tp] or 0, latest[tp] or 0
            held = PartitionOffsets(earliest=first, latest=max(first, last))
            found = FoundByTime(start=starts.get(tp), end=ends.get(tp))
            ranges.append(replace(resolve(options, tp, held, found), topic_id=self._topic_id(tp)))
        self._warn_of_lost_records(ranges)
        selected = [tp for tp in partitions if narrowing.selects(tp)]
        narrowed = narrowing.apply(ranges, await self._firsts(selected, narrowing.lower_ms))
        remote = await self._remote_segments(narrowed)
        pieces = [
            piece
            for item in narrowed
            for piece in cut_by_tier(item, remote.get(item.topic_partition, _NOTHING_REMOTE))
        ]
        return with_own_segments(
            split(pieces, options.min_partitions, options.max_records_per_partition)
        )

    async def _partitions(self) -> list[TopicPartition]:
        options = self._options
        if options.pattern is not None:
            return await self._matching(options.pattern)
        wanted = options.topics or tuple(dict.fromkeys(tp.topic for tp in options.assigned))
        known = {name: await self._known(name) for name in wanted}
        if not options.assigned:
            return [TopicPartition(name, n) for name in wanted for n in known[name]]
        for tp in options.assigned:
            if tp.partition not in known[tp.topic]:
                held = counted(len(known[tp.topic]), "partition")
                raise ConfigError(f"assign names {tp}, but topic {tp.topic} has {held}")
        return list(options.assigned)

    async def _known(self, name: str) -> list[int]:
        """The partitions of a topic."""
        try:
            return sorted((await self._client.cluster.topic(name, self._deadline)).partitions)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(error.code, f"topic {name!r} does not exist") from None
            raise

    async def _matching(self, pattern: str) -> list[TopicPartition]:
        """The partitions of matching topics, without internal topics; there may be none."""
        matches = topic_matcher(pattern)
        view = await self._client.cluster.refresh(None, self._deadline)
        return [
            TopicPartition(name, number)
            for name, topic in sorted(view.topics.items())
            if not topic.is_internal and matches(name)
            for number in sorted(topic.partitions)
        ]

    async def _by_time(
        self, bound: Bound, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        times = {tp: bound.time_of(tp) for tp in partitions}
        return await self._offsets({tp: ms for tp, ms in times.items() if ms is not None})

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time (or ``OffsetSpec``); None without a record."""
        if not wanted:
            return {}
        found = await self._client.list_offsets(
            wanted,
            isolation=self._options.isolation,
            timeout_s=max(self._deadline.left_s, 0.001),
        )
        return {tp: _offset(at) for tp, at in found.items()}

    async def _firsts(
        self, partitions: Sequence[TopicPartition], lower_ms: int | None
    ) -> dict[TopicPartition, int | None]:
        """The first offsets that a filter by time may pass.

        Without the filter tasks would read around damage, so damage in the way of the search only
        costs what the search would save.
        """
        if lower_ms is None or not partitions:
            return {}
        if lower_ms < 0:  # before 1970: negative times are special offsets
            return dict.fromkeys(partitions, 0)
        firsts: dict[TopicPartition, int | None] = {}
        left = list(partitions)
        # Damage may be mended by another leader within the first time, and is believed in then.
        for patience_s, final in (
            (FILTER_SEARCH_S, ()),
            (self._deadline.timeout_s, (ErrorCode.CORRUPT_MESSAGE,)),
        ):
            found = await self._client.find_offsets(
                dict.fromkeys(left, lower_ms),
                isolation=self._options.isolation,
                timeout_s=max(self._deadline.capped(patience_s).left_s, 0.001),
                final=final,
            )
            for tp, at in found.items():
                if isinstance(at, OffsetTimestamp):
                    firsts[tp] = _offset(at)
                elif at.code is ErrorCode.CORRUPT_MESSAGE:
                    log.warning("a filter by time saves nothing of %s: %s", tp, at)
                    firsts[tp] = 0
            left = [tp for tp in partitions if tp not in firsts]
            if not left:
                break
        for tp in left:
            value_or_raise(tp, found[tp])
        return firsts

    async def _latest(
        self, partitions: Sequence[TopicPartition], narrowing: Narrowing
    ) -> dict[TopicPartition, int | None]:
        """The latest offsets; those at which the read ends tear no transaction, if possible."""
        options = self._options
        ends = [tp for tp in partitions if options.ending.is_latest(tp) and narrowing.selects(tp)]
        cut: dict[TopicPartition, int] = {}
        if options.isolation is Isolation.READ_COMMITTED and len(ends) > 1:
            cut = await cut_offsets(
                self._client.cluster, ends, options.consistent_cut, self._deadline
            )
        others = dict.fromkeys((tp for tp in partitions if tp not in cut), int(OffsetSpec.LATEST))
        return cut | await self._offsets(others)

    async def _remote_segments(
        self, ranges: Sequence[OffsetRange]
    ) -> dict[TopicPartition, RemoteSegments]:
        """The segments that tasks read from the bucket; without them the brokers read it."""
        if self._options.remote_reads is RemoteReads.BROKERS:
            return {}
        found = await remote_segments(
            self._client.cluster,
            {
                item.topic_partition: Wanted(
                    span=(item.start, item.end), topic_id=item.topic_id, times=item.times
                )
                for item in ranges
                if item.size > 0
            },
            self._deadline.capped(REMOTE_SEGMENTS_S),
            count_max=REMOTE_SEGMENTS_MAX,
        )
        errors = {tp: each for tp, each in found.items() if isinstance(each, KafkaError)}
        for tp, error in sorted(errors.items())[:1]:
            log.warning(
                "the brokers read %s of this read from the bucket, such as %s: %s",
                counted(len(errors), "partition"), tp, error,
            )  # fmt: skip
        return {tp: each for tp, each in found.items() if not isinstance(each, KafkaError)}

    def _topic_id(self, tp: TopicPartition) -> UUID | None:
        topic = self._client.cluster.view.topics.get(tp.topic)
        return topic.topic_id if topic else None

    def _warn_of_lost_records(self, ranges: Sequence[OffsetRange]) -> None:
        offsets = self._options.starting.offsets or {}
        for item in ranges:
            wanted = offsets.get(item.topic_partition, item.start)
            if 0 <= wanted < item.start:
                log.warning(
                    "%s: offsets %d to %d are deleted and not read (failOnDataLoss=false)",
                    item.topic_partition,
                    wanted,
                    item.start,
                )


def _offset(found: OffsetTimestamp) -> int | None:
    """The offset of a record that was looked for; None if there is no such record."""
    return None if found.offset == NO_OFFSET else found.offset
