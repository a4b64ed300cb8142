"""A consumer of single records from assigned partitions.

Owns: positions, fetches under way (one per leader) and what was fetched but not taken yet.  Must
not know groups (positions are the caller's), nor Arrow: bulk readers use ``raw``.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.client.raw import Fetched, FetchFrom, RawClient, value_or_raise
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import NO_NODE, Isolation, OffsetSpec, TimestampType, TopicPartition
from sparklog.wire.aborted import AbortedFilter
from sparklog.wire.batch import iter_batches
from sparklog.wire.builder import iter_records

_Answers = tuple[Mapping[TopicPartition, FetchFrom], Mapping[TopicPartition, Fetched | KafkaError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    """A record and where it was; timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """``on_out_of_range``: where to go on when the position is gone; None raises."""

    isolation: Isolation = Isolation.READ_COMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes_max: int = 1024 * 1024
    fetch_bytes_max: int = 50 * 1024 * 1024
    on_out_of_range: OffsetSpec | None = None
    request_timeout_s: float = 30.0


class Consumer:
    """Reads assigned partitions, each in order, from explicit positions."""

    def __init__(self, cluster: ClusterClient, options: ConsumerOptions | None = None) -> None:
        self.options = options or ConsumerOptions()
        self._cluster = cluster
        self._raw = RawClient(cluster)
        self._lane = cluster.new_lane()
        self._positions: dict[TopicPartition, int] = {}
        self._ready: deque[ConsumedRecord] = deque()
        self._fetches: dict[int, asyncio.Task[_Answers]] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop fetching.  The cluster client stays open."""
        self._closed = True
        await self._forget()
        await self._cluster.close_lane(self._lane)

    # positions

    async def assign(
        self,
        partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int],
        start: OffsetSpec = OffsetSpec.EARLIEST,
    ) -> None:
        """Read these partitions instead of those before, from given offsets or from ``start``.

        An offset may also be an ``OffsetSpec``.  Raises KafkaError for an unknown partition.
        """
        wanted = (
            dict(partitions)
            if isinstance(partitions, Mapping)
            else dict.fromkeys(partitions, int(start))
        )
        await self._forget()
        self._positions = {}
        self._positions = await self._resolve(wanted)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on from an offset, or an ``OffsetSpec``, of an assigned partition."""
        if tp not in self._positions:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} is not assigned")
        await self._forget(tp)
        self._positions |= await self._resolve({tp: offset})

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of a partition that ``poll`` will give."""
        for record in self._ready:
            if record.topic == tp.topic and record.partition == tp.partition:
                return record.offset
        return self._positions[tp]

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    async def _resolve(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        specs = {tp: offset for tp, offset in wanted.items() if offset < 0}
        found = await self._raw.list_offsets(
            specs, isolation=self.options.isolation, timeout_s=self.options.request_timeout_s
        )
        return {tp: found[tp].offset if tp in found else wanted[tp] for tp in wanted}

    # records

    async def poll(self, timeout_s: float = 1.0, max_records: int = 500) -> list[ConsumedRecord]:
        """The next records; none when there are none within the time.

        Raises KafkaError: OFFSET_OUT_OF_RANGE unless the options say where to go on, and what is
        still wrong with a partition after ``request_timeout_s``.
        """
        deadline = Deadline(timeout_s)
        while not self._ready and self._positions and not self._closed:
            self._start_fetches()
            done, _ = await asyncio.wait(
                self._fetches.values(),
                timeout=deadline.left_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await self._take(done)
            if deadline.expired:
                break
        count = min(max_records, len(self._ready))
        return [self._ready.popleft() for _ in range(count)]

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end; ``break`` when you have enough."""
        while not self._closed:
            for record in await self.poll():
                yield record

    def _start_fetches(self) -> None:
        """One fetch per leader that has none under way.

        Partitions without a leader share one that looks for theirs.
        """
        groups: dict[int, dict[TopicPartition, FetchFrom]] = {}
        for tp, offset in self._positions.items():
            leader = self._cluster.view.leader(tp)
            node_id = leader.leader if leader else NO_NODE
            if node_id not in self._fetches:
                groups.setdefault(node_id, {})[tp] = FetchFrom(
                    offset=offset, max_bytes=self.options.partition_bytes_max
                )
        for node_id, group in groups.items():
            self._fetches[node_id] = asyncio.ensure_future(self._fetch(group))

    async def _fetch(self, group: Mapping[TopicPartition, FetchFrom]) -> _Answers:
        answers = await self._raw.fetch_each(
            group,
            max_bytes=self.options.fetch_bytes_max,
            min_bytes=self.options.min_bytes,
            max_wait_ms=self.options.max_wait_ms,
            isolation=self.options.isolation,
            timeout_s=self.options.request_timeout_s,
            lane=self._lane,
        )
        return group, answers

    async def _take(self, done: "set[asyncio.Task[_Answers]]") -> None:
        finished = [task for task in self._fetches.values() if task in done]
        self._fetches = {node: task for node, task in self._fetches.items() if task not in done}
        for task in finished:  # in the order of asking: that of a set is another in every run
            group, answers = task.result()
            for tp, answer in answers.items():
                if self._positions.get(tp) == group[tp].offset:
                    await self._take_partition(tp, answer)

    async def _take_partition(self, tp: TopicPartition, answer: Fetched | KafkaError) -> None:
        if (
            isinstance(answer, KafkaError)
            and answer.code == ErrorCode.OFFSET_OUT_OF_RANGE
            and self.options.on_out_of_range is not None
        ):
            self._positions |= await self._resolve({tp: self.options.on_out_of_range})
            return
        fetched = value_or_raise(tp, answer)
        position = self._positions[tp]
        aborted = AbortedFilter(fetched.aborted)
        for header, start in iter_batches(fetched.records, partial_tail=True):
            dropped = aborted.drops(fetched.records, start, header)
            if header.next_offset <= position:
                continue
            if not (dropped or header.is_control):
                self._ready.extend(
                    ConsumedRecord(
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=record.offset,
                        timestamp=record.timestamp,
                        timestamp_type=header.timestamp_type,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
                    for record in iter_records(fetched.records, start, header)
                    if record.offset >= position
                )
            position = header.next_offset
        self._positions[tp] = position

    async def _forget(self, tp: TopicPartition | None = None) -> None:
        """Drop what was fetched (of one partition); answers under way will not fit any more."""
        self._ready = deque(
            record
            for record in self._ready
            if tp is not None and (record.topic, record.partition) != (tp.topic, tp.partition)
        )
        if tp is None:
            tasks, self._fetches = list(self._fetches.values()), {}
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
