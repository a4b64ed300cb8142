"""A consumer of single records from assigned partitions.

Owns: positions, fetches in flight (one per leader), and fetched records that were not polled yet,
which ``fetched_records`` decodes on demand.  Must not know groups (the caller keeps positions), nor
Arrow: bulk readers use ``DataClient``.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.damaged_ranges import end_of_answer, find_readable
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.fetch_api import Fetched, FetchFrom
from sparklog.client.fetched_records import REMEDY, ConsumedRecord, FetchedRecords, SkippedRecords
from sparklog.client.partition_results import value_or_raise
from sparklog.errors import (
    ClosedError,
    CorruptBatchError,
    DecodeError,
    ErrorCode,
    KafkaError,
    SparklogError,
)
from sparklog.types import NO_NODE, Isolation, OffsetSpec, TopicPartition

__all__ = ["ConsumedRecord", "Consumer", "ConsumerOptions"]

_Answers = tuple[Mapping[TopicPartition, FetchFrom], Mapping[TopicPartition, Fetched | KafkaError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer.

    ``on_out_of_range``: the offset to go on from when the position is out of range; None raises.

    ``skip_undecodable``: records that cannot be read are skipped, logged and counted
    (``Consumer.skipped``); otherwise ``poll`` raises CorruptBatchError.
    """

    isolation: Isolation = Isolation.READ_COMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes_max: int = 1024 * 1024
    fetch_bytes_max: int = 50 * 1024 * 1024
    on_out_of_range: OffsetSpec | None = None
    request_timeout_s: float = 30.0
    skip_undecodable: bool = False


class Consumer:
    """Reads assigned partitions, each in order, from explicit positions."""

    def __init__(self, cluster: ClusterClient, options: ConsumerOptions | None = None) -> None:
        self.options = options or ConsumerOptions()
        self._cluster = cluster
        self._data_client = DataClient(cluster)
        self._lane = cluster.new_lane()
        self._positions: dict[TopicPartition, int] = {}
        self._ready: deque[FetchedRecords] = deque()
        #: Deadlines of partitions that have records and return none.
        self._stalled: dict[TopicPartition, Deadline] = {}
        #: Records that were skipped because they cannot be read (``skip_undecodable``).
        self.skipped = SkippedRecords()
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
        """Replace the assigned partitions; read from the given offsets or from ``start``.

        An offset may also be an ``OffsetSpec``.  Raises KafkaError for an unknown partition.
        """
        self._check_open()
        wanted = (
            dict(partitions)
            if isinstance(partitions, Mapping)
            else dict.fromkeys(partitions, int(start))
        )
        await self._forget()
        self._positions = {}
        self._positions = await self._resolve(wanted)

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Move the position of an assigned partition to an offset or an ``OffsetSpec``."""
        if tp not in self._positions:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} is not assigned")
        await self._forget(tp)
        self._positions |= await self._resolve({tp: offset})

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of a partition that ``poll`` will return."""
        for fetched in self._ready:
            if fetched.topic_partition == tp and not fetched.done:
                return fetched.position
        return self._positions[tp]

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._positions)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed; make a new one")

    async def _resolve(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        specs = {tp: offset for tp, offset in wanted.items() if offset < 0}
        found = await self._data_client.list_offsets(
            specs, isolation=self.options.isolation, timeout_s=self.options.request_timeout_s
        )
        return {tp: found[tp].offset if tp in found else wanted[tp] for tp in wanted}

    # records

    async def poll(self, timeout_s: float = 1.0, max_records: int = 500) -> list[ConsumedRecord]:
        """The next records; an empty list when no record arrives within ``timeout_s``.

        Raises ClosedError after ``close``.  Raises KafkaError: OFFSET_OUT_OF_RANGE unless
        ``on_out_of_range`` is set, and errors of a partition that persist for
        ``request_timeout_s``.  Raises CorruptBatchError, at every call until a ``seek``, for
        records that cannot be read, unless ``skip_undecodable`` is set.
        """
        self._check_open()
        deadline = Deadline(timeout_s)
        while not self._has_ready() and self._positions and not self._closed:
            self._start_fetches()
            done, _ = await asyncio.wait(
                self._fetches.values(),
                timeout=deadline.left_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await self._take(done)
            if deadline.expired:
                break
        return self._take_ready(max_records)

    def _has_ready(self) -> bool:
        """Whether there is a record to return, or an error to raise."""
        while self._ready and self._ready[0].done:
            self._ready.popleft()
        return bool(self._ready)

    def _take_ready(self, max_records: int) -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        while len(found) < max_records and self._has_ready():
            try:
                found += self._ready[0].take(max_records - len(found))
            except CorruptBatchError:
                if found:
                    break  # the next call raises it
                self._ready.rotate(-1)  # the other partitions' records come first next time
                raise
        return found

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end, until the caller breaks out of the loop."""
        while not self._closed:
            for record in await self.poll():
                yield record

    def _start_fetches(self) -> None:
        """Start a fetch at each leader without a fetch in flight.

        Partitions without a known leader share one fetch, which looks for the leaders.
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
        answers = await self._data_client.fetch_each(
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
        for task in finished:  # in the order of requests: sets are ordered differently in every run
            group, answers = task.result()
            given = sum(len(a.records) for a in answers.values() if isinstance(a, Fetched))
            for tp, answer in answers.items():
                if self._positions.get(tp) == group[tp].offset:
                    # A partition may return nothing because others have filled the response.
                    has_room = given < self.options.fetch_bytes_max // 2
                    await self._take_partition(tp, answer, has_room)

    async def _take_partition(
        self, tp: TopicPartition, answer: Fetched | KafkaError, has_room: bool
    ) -> None:
        if (
            isinstance(answer, KafkaError)
            and answer.code == ErrorCode.OFFSET_OUT_OF_RANGE
            and self.options.on_out_of_range is not None
        ):
            self._positions |= await self._resolve({tp: self.options.on_out_of_range})
            return
        position = self._positions[tp]
        if isinstance(answer, KafkaError) and answer.code == ErrorCode.CORRUPT_MESSAGE:
            await self._pass_damage(tp, position, answer)
            return
        fetched = value_or_raise(tp, answer)
        if not fetched.records:
            self._check_stall(tp, position, fetched, has_room)
            return
        self._stalled.pop(tp, None)
        try:
            end, size = end_of_answer(fetched, position)
        except (DecodeError, KafkaError) as error:
            await self._pass_damage(tp, position, error)
            return
        skipped = self.skipped if self.options.skip_undecodable else None
        whole = replace(fetched, records=fetched.records[:size])
        self._ready.append(FetchedRecords(tp, whole, position, end, skipped))
        self._positions[tp] = end

    async def _pass_damage(self, tp: TopicPartition, position: int, error: SparklogError) -> None:
        """Nothing can be read at the position: raise the error, or go on behind the damage."""
        if not self.options.skip_undecodable:
            raise CorruptBatchError(str(tp), position, position, str(error), REMEDY) from error
        found = await find_readable(
            self._data_client, tp, position, isolation=self.options.isolation
        )
        self.skipped.count(tp, position, found - 1, error)
        if self._positions.get(tp) == position:
            self._positions[tp] = found

    def _check_stall(
        self, tp: TopicPartition, position: int, fetched: Fetched, has_room: bool
    ) -> None:
        """Raise REQUEST_TIMED_OUT for a partition that has records but keeps returning none."""
        committed = self.options.isolation is Isolation.READ_COMMITTED
        readable = fetched.last_stable_offset if committed else fetched.high_watermark
        if fetched.preferred_read_replica != NO_NODE or position >= readable or not has_room:
            self._stalled.pop(tp, None)
            return
        timeout_s = self.options.request_timeout_s
        if self._stalled.setdefault(tp, Deadline(timeout_s)).expired:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{tp} gave no records from offset {position} for {timeout_s:g} s, although its "
                f"log is readable up to {readable}: look for errors in the log of its leader",
            )

    async def _forget(self, tp: TopicPartition | None = None) -> None:
        """Drop fetched records (of one partition); results in flight will not match positions."""
        self._ready = deque(
            fetched for fetched in self._ready if tp is not None and fetched.topic_partition != tp
        )
        self._stalled = {} if tp is None else {t: d for t, d in self._stalled.items() if t != tp}
        if tp is None:
            tasks, self._fetches = list(self._fetches.values()), {}
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
