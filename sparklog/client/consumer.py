"""A consumer of single records from assigned partitions.

Owns: the fetches in flight (one per leader), and the consequences of their results for a partition.
``fetch_buffer`` holds positions and records, which ``fetched_records`` decodes on demand.  Must not
know groups (``client.groups`` builds on this consumer), nor Arrow: ``poll_fetched`` returns the
fetched records undecoded.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Self

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.damaged_ranges import BeyondHighWatermarkError, end_of_answer, find_readable
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.fetch_api import Fetched
from sparklog.client.fetch_buffer import FetchBuffer, PlannedFetch
from sparklog.client.fetched_records import REMEDY, ConsumedRecord, FetchedRecords, SkippedRecords
from sparklog.client.partition_results import value_or_raise
from sparklog.client.preferred_read_replicas import given_rack
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

_Answers = Mapping[TopicPartition, Fetched | KafkaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer.

    ``on_out_of_range``: the offset to continue at when the position is out of range; None raises.

    ``skip_undecodable``: records that cannot be read are skipped, logged and counted
    (``Consumer.skipped``); otherwise ``poll`` raises CorruptBatchError.

    ``prefetch_bytes_max``: while the application works on records, the next records are fetched, as
    long as the waiting and the requested records stay within this many bytes; 0 turns this off.

    ``rack``: read from replicas in this rack if the leader names one (KIP-392).
    """

    isolation: Isolation = Isolation.READ_COMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_bytes_max: int = 1024 * 1024
    fetch_bytes_max: int = 50 * 1024 * 1024
    prefetch_bytes_max: int = 64 * 1024 * 1024
    on_out_of_range: OffsetSpec | None = None
    request_timeout_s: float = 30.0
    skip_undecodable: bool = False
    rack: str = ""


class Consumer:
    """Reads assigned partitions, each in order, from explicit positions."""

    def __init__(self, cluster: ClusterClient, options: ConsumerOptions | None = None) -> None:
        self.options = options or ConsumerOptions()
        self._cluster = cluster
        self.data_client = DataClient(cluster, given_rack(self.options.rack))
        self._lane = cluster.new_lane()
        self._buffer = FetchBuffer(
            partition_bytes_max=self.options.partition_bytes_max,
            fetch_bytes_max=self.options.fetch_bytes_max,
            ahead_bytes_max=self.options.prefetch_bytes_max,
        )
        #: Deadlines of partitions that have records and return none.
        self._stalled: dict[TopicPartition, Deadline] = {}
        #: Positions whose batch ended beyond the high watermark, and that are fetched again.
        self._doubted: dict[TopicPartition, int] = {}
        #: The last errors of partitions whose fetches fail and are tried again; never changed in
        #: place, because other threads read it.
        self._failing: Mapping[TopicPartition, KafkaError] = {}
        #: Records that were skipped because they cannot be read (``skip_undecodable``).
        self.skipped = SkippedRecords()
        #: The fetches in flight, and those whose results were not taken yet.
        self._fetches: dict[asyncio.Future[_Answers], PlannedFetch] = {}
        #: Done when the poll that waits is to return; None while no poll waits.
        self._interruption: asyncio.Future[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop fetching.  The cluster client stays open."""
        self._closed = True
        await self._forget_all()
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
        await self._forget_all()
        self._buffer.move(await self.resolve(wanted))

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign further partitions, which are read from these offsets."""
        self._check_open()
        self._buffer.move(positions)

    async def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions out of the assignment; the others go on as they are."""
        for tp in partitions:
            self._buffer.remove(tp)
            self._stalled.pop(tp, None)
            self._doubted.pop(tp, None)
            self._note_failing({tp}, {})

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Let ``poll`` return no records of these assigned partitions until ``resume``."""
        self._buffer.paused |= self._checked(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Let ``poll`` return records of these assigned partitions again."""
        self._buffer.paused -= self._checked(partitions)
        self.interrupt()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffer.paused)

    def _checked(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        found = set(partitions)
        for tp in sorted(found - self._buffer.positions.keys()):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} is not assigned")
        return found

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        """Move the position of an assigned partition to an offset or an ``OffsetSpec``."""
        self._checked({tp})
        self._buffer.forget(tp)
        self._stalled.pop(tp, None)
        self._doubted.pop(tp, None)
        self._buffer.move(await self.resolve({tp: offset}))

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record of a partition that ``poll`` will return."""
        return self._buffer.position(tp)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._buffer.positions)

    @property
    def unreadable(self) -> dict[TopicPartition, KafkaError]:
        """The assigned partitions that return no records now, and why; they are tried again.

        ``poll`` raises the error of such a partition only after ``request_timeout_s``.
        """
        return dict(self._failing)

    def _note_failing(
        self, asked: Iterable[TopicPartition], errors: Mapping[TopicPartition, KafkaError]
    ) -> None:
        """Take these errors of the partitions that were asked; the others of them have none.

        A fetch that was in flight may tell of partitions that were taken out meanwhile.
        """
        others = self._failing.keys() - set(asked)
        told = {tp: self._failing[tp] for tp in others} | dict(errors)
        self._failing = {tp: told[tp] for tp in told if tp in self._buffer.positions}

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed; make a new one")

    async def resolve(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets, with every ``OffsetSpec`` among them replaced by an offset."""
        specs = {tp: offset for tp, offset in wanted.items() if offset < 0}
        found = await self.data_client.list_offsets(
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
        has_fetched = await self._await_ready(timeout_s, lambda: self._buffer.head() is not None)
        found = self._take_ready(max_records)
        if has_fetched:
            self._start_fetches(ahead=True)
        return found

    async def poll_fetched(self, timeout_s: float = 1.0) -> list[FetchedRecords]:
        """All fetched records, undecoded; empty when nothing arrives in time.

        Positions move behind the records.  Raises the errors of ``poll``, except for records that
        cannot be read.
        """
        has_fetched = await self._await_ready(timeout_s, lambda: self._buffer.has_undecoded)
        found = self._buffer.take_undecoded()
        if has_fetched:
            self._start_fetches(ahead=True)
        return found

    def interrupt(self) -> None:
        """Let a ``poll`` that waits return at once."""
        if self._interruption is not None and not self._interruption.done():
            self._interruption.set_result(None)

    async def _await_ready(self, timeout_s: float, is_ready: Callable[[], bool]) -> bool:
        """Fetch until there are records.  Returns whether results of fetches were taken."""
        self._check_open()
        deadline = Deadline(timeout_s)
        interruption = self._interruption = asyncio.get_running_loop().create_future()
        old = {task for task in self._fetches if task.done()}
        has_fetched = False
        while self._has_work and not is_ready() and not interruption.done():
            self._start_fetches()
            done, _ = await asyncio.wait(
                (*self._fetches, interruption),
                timeout=deadline.left_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            has_fetched = has_fetched or bool(done)
            await self._take(done, old)
            if deadline.expired:
                break
        return has_fetched

    @property
    def _has_work(self) -> bool:
        return bool(self._buffer.positions) and not self._closed

    def _take_ready(self, max_records: int) -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        while len(found) < max_records and (head := self._buffer.head()) is not None:
            try:
                found += head.take(max_records - len(found))
            except CorruptBatchError:
                if found:
                    break  # the next call raises it
                self._buffer.postpone_head()
                raise
        return found

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end, until the caller breaks out of the loop."""
        while not self._closed:
            for record in await self.poll():
                yield record

    def _start_fetches(self, *, ahead: bool = False) -> None:
        """Start a fetch at each leader without one; see ``FetchBuffer.plan``."""
        for planned in self._buffer.plan(self._node_of, ahead=ahead):
            self._fetches[asyncio.ensure_future(self._fetch(planned))] = planned

    def _node_of(self, tp: TopicPartition) -> int:
        leader = self._cluster.view.leader(tp)
        return leader.leader if leader else NO_NODE

    async def _fetch(self, planned: PlannedFetch) -> _Answers:
        answers = await self.data_client.fetch_each(
            planned.wanted,
            max_bytes=planned.bytes_max,
            min_bytes=self.options.min_bytes,
            max_wait_ms=self.options.max_wait_ms,
            isolation=self.options.isolation,
            timeout_s=self.options.request_timeout_s,
            lane=self._lane,
            on_retry=lambda errors: self._note_failing(planned.wanted, errors),
        )
        errors = {tp: each for tp, each in answers.items() if isinstance(each, KafkaError)}
        self._note_failing(planned.wanted, {tp: e for tp, e in errors.items() if e.retriable})
        return answers

    async def _take(
        self, done: Set["asyncio.Future[Any]"], old: Set["asyncio.Future[Any]"]
    ) -> None:
        """Take the results of fetches that are done; then raise the first partition's error.

        ``old`` fetches ended while the application was busy.  Their errors may have passed, and
        their empty partitions may have records now, so neither counts.
        """
        # In the order of requests: sets are ordered differently in every run.
        finished = {task: planned for task, planned in self._fetches.items() if task in done}
        self._fetches = {t: planned for t, planned in self._fetches.items() if t not in done}
        # Before anything is waited for: a poll that is cancelled leaves no node without fetches.
        counts = {task: self._buffer.finish(p.node_id) for task, p in finished.items()}
        errors: list[SparklogError] = []
        for task, planned in finished.items():
            answers = task.result()
            given = sum(len(a.records) for a in answers.values() if isinstance(a, Fetched))
            # A partition may return nothing because others have filled the response.
            has_room = given < planned.bytes_max // 2 and task not in old
            for tp in counts[task]:
                answer, offset = answers[tp], planned.wanted[tp].offset
                is_old = isinstance(answer, KafkaError) and answer.retriable and task in old
                if is_old or self._buffer.positions.get(tp) != offset:
                    continue
                try:
                    await self._take_partition(tp, offset, answer, has_room)
                except SparklogError as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    async def _take_partition(
        self, tp: TopicPartition, position: int, answer: Fetched | KafkaError, has_room: bool
    ) -> None:
        if (
            isinstance(answer, KafkaError)
            and answer.code == ErrorCode.OFFSET_OUT_OF_RANGE
            and self.options.on_out_of_range is not None
        ):
            found = await self.resolve({tp: self.options.on_out_of_range})
            if self._buffer.positions.get(tp) == position:
                self._buffer.move(found)
            return
        if isinstance(answer, KafkaError) and answer.code == ErrorCode.CORRUPT_MESSAGE:
            await self._pass_damage(tp, position, answer)
            return
        fetched = value_or_raise(tp, answer)
        self._buffer.note_readable(tp, self._readable_until(fetched))
        doubted = self._doubted.pop(tp, None)
        if not fetched.records:
            self._check_stall(tp, position, fetched, has_room)
            return
        self._stalled.pop(tp, None)
        try:
            end, size = end_of_answer(fetched, position)
        except (DecodeError, KafkaError) as error:
            if isinstance(error, BeyondHighWatermarkError):
                self._doubted[tp] = position
                if doubted != position:
                    return
            await self._pass_damage(tp, position, error)
            return
        skipped = self.skipped if self.options.skip_undecodable else None
        whole = replace(fetched, records=fetched.records[:size])
        self._buffer.put(FetchedRecords(tp, whole, position, end, skipped))

    async def _pass_damage(self, tp: TopicPartition, position: int, error: SparklogError) -> None:
        """Raise the error of a position that cannot be read, or continue behind the damage."""
        if not self.options.skip_undecodable:
            raise CorruptBatchError(str(tp), position, position, str(error), REMEDY) from error
        found = await find_readable(
            self.data_client, tp, position, isolation=self.options.isolation
        )
        self.skipped.count(tp, position, found - 1, error)
        if self._buffer.positions.get(tp) == position:
            self._buffer.move({tp: found})

    def _check_stall(
        self, tp: TopicPartition, position: int, fetched: Fetched, has_room: bool
    ) -> None:
        """Raise REQUEST_TIMED_OUT for a partition that has records but keeps returning none."""
        readable = self._readable_until(fetched)
        if fetched.preferred_read_replica != NO_NODE or position >= readable or not has_room:
            self._stalled.pop(tp, None)
            return

        def error(how_long: str = "") -> KafkaError:
            return KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{tp} gave no records from offset {position}{how_long}, although its log is "
                f"readable up to {readable}: look for errors in the log of its leader",
            )

        timeout_s = self.options.request_timeout_s
        if self._stalled.setdefault(tp, Deadline(timeout_s)).expired:
            raise error(f" for {timeout_s:g} s")
        self._note_failing({tp}, {tp: error()})

    def _readable_until(self, fetched: Fetched) -> int:
        committed = self.options.isolation is Isolation.READ_COMMITTED
        return fetched.last_stable_offset if committed else fetched.high_watermark

    async def _forget_all(self) -> None:
        """Give up the assignment, fetched records and the fetches in flight."""
        self._buffer.clear()
        self._stalled, self._doubted, self._failing = {}, {}, {}
        tasks, self._fetches = list(self._fetches), {}
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
