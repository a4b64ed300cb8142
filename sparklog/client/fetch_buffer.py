"""The records that a consumer has fetched ahead of its application, and the fetches under way.

Owns: the positions of assigned partitions, fetched records in order, and the choice of the
next fetch.  Must not know sockets, clocks nor asyncio: ``consumer`` carries fetches out.

A fetch either is needed, because nothing is left to hand out, or runs ahead of the application,
while the application works on the records of the fetch before.  A fetch runs ahead only where the
log is known to go on, so that it is answered at once, and within ``ahead_bytes_max``.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.client.fetch_api import FetchFrom
from sparklog.client.fetched_records import FetchedRecords
from sparklog.types import NO_NODE, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFetch:
    """One fetch from one node; ``bytes_max`` is the limit of the whole response."""

    node_id: int
    wanted: Mapping[TopicPartition, FetchFrom]
    bytes_max: int


class FetchBuffer:
    """Positions and records of one consumer, with at most one fetch under way at each node."""

    def __init__(
        self, *, partition_bytes_max: int, fetch_bytes_max: int, ahead_bytes_max: int
    ) -> None:
        """A fetch runs ahead only if the waiting records and all fetches in flight stay within
        ``ahead_bytes_max``; with 0 no fetch runs ahead."""
        #: The offset to fetch next, by assigned partition: behind the records that wait.
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self._partition_bytes_max = partition_bytes_max
        self._fetch_bytes_max = fetch_bytes_max
        self._ahead_bytes_max = ahead_bytes_max
        #: The records that wait; partitions in the order of their turns.
        self._ready: dict[TopicPartition, deque[FetchedRecords]] = {}
        #: Where the log could be read up to, as of the last response.
        self._readable: dict[TopicPartition, int] = {}
        #: The offsets of the fetch under way at each node, without partitions that were forgotten.
        self._under_way: dict[int, dict[TopicPartition, int]] = {}
        #: The bytes that the fetch under way at each node may return.
        self._expected_bytes: dict[int, int] = {}

    # positions

    def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets; their earlier fetched records are void."""
        for tp in positions:
            self.forget(tp)
        self.positions |= positions

    def remove(self, tp: TopicPartition) -> None:
        """Take a partition out of the assignment."""
        self.forget(tp)
        self.positions.pop(tp, None)
        self.paused.discard(tp)

    def forget(self, tp: TopicPartition) -> None:
        """Drop the records of a partition, including the result of a fetch in flight."""
        self._ready.pop(tp, None)
        self._readable.pop(tp, None)
        for offsets in self._under_way.values():
            offsets.pop(tp, None)

    def clear(self) -> None:
        """Take all partitions out of the assignment, and forget the fetches under way."""
        self.positions = {}
        self.paused = set()
        self._ready = {}
        self._readable = {}
        self._under_way = {}
        self._expected_bytes = {}

    def position(self, tp: TopicPartition) -> int:
        """The offset of the next record to hand out."""
        for fetched in self._ready.get(tp, ()):
            if not fetched.done:
                return fetched.position
        return self.positions[tp]

    # fetches

    def plan(
        self, node_of: Callable[[TopicPartition], int], *, ahead: bool = False
    ) -> list[PlannedFetch]:
        """The fetches to begin, which are under way from now on.

        Args:
            node_of: the node to fetch a partition from; partitions without one (``NO_NODE``) share
                a fetch, which looks for their leaders.
            ahead: whether the application still has records to work on.
        """
        groups: dict[int, list[TopicPartition]] = {}
        for tp, offset in self.positions.items():
            if tp in self.paused or (ahead and offset >= self._readable.get(tp, 0)):
                continue
            node_id = node_of(tp)
            if node_id not in self._under_way and not (ahead and node_id == NO_NODE):
                groups.setdefault(node_id, []).append(tp)
        planned = []
        for node_id, partitions in groups.items():
            wanted = min(self._fetch_bytes_max, self._partition_bytes_max * len(partitions))
            given = min(wanted, self._ahead_bytes_max - self.bytes_held) if ahead else wanted
            if ahead and given < min(wanted, self._partition_bytes_max):
                break  # it would return too little to be worth a request
            self._under_way[node_id] = {tp: self.positions[tp] for tp in partitions}
            self._expected_bytes[node_id] = given
            planned.append(self._fetch(node_id, given if ahead else self._fetch_bytes_max))
        return planned

    def _fetch(self, node_id: int, bytes_max: int) -> PlannedFetch:
        partition_bytes = self._partition_bytes_max
        return PlannedFetch(
            node_id=node_id,
            wanted={
                tp: FetchFrom(offset=offset, max_bytes=partition_bytes)
                for tp, offset in self._under_way[node_id].items()
            },
            bytes_max=bytes_max,
        )

    @property
    def bytes_held(self) -> int:
        """The bytes of waiting records, and the most bytes that fetches in flight may return."""
        waiting = sum(len(each.fetched.records) for part in self._ready.values() for each in part)
        return waiting + sum(self._expected_bytes.values())

    def finish(self, node_id: int) -> list[TopicPartition]:
        """End the fetch at a node.

        Returns:
            The partitions whose results count: still assigned, and still at the offset that was
            asked for.
        """
        offsets = self._under_way.pop(node_id, {})
        self._expected_bytes.pop(node_id, None)
        return [tp for tp, offset in offsets.items() if self.positions.get(tp) == offset]

    def note_readable(self, tp: TopicPartition, readable: int) -> None:
        """Note the offset up to which the log can be read, according to its leader."""
        self._readable[tp] = readable

    def put(self, fetched: FetchedRecords) -> None:
        """Add records of an assigned partition at its position, which moves behind them."""
        tp = fetched.topic_partition
        self._ready.setdefault(tp, deque()).append(fetched)
        self.positions[tp] = fetched.end

    # records

    def head(self) -> FetchedRecords | None:
        """The first records to return, with a record or an error to raise; None without records."""
        while (tp := next(self._wanted(), None)) is not None:
            waiting = self._ready[tp]
            while waiting:
                if not waiting[0].done:
                    return waiting[0]
                waiting.popleft()
            del self._ready[tp]
        return None

    def postpone_head(self) -> None:
        """Let the other partitions' records come first next time."""
        tp = next(self._wanted())
        self._ready[tp] = self._ready.pop(tp)

    @property
    def has_undecoded(self) -> bool:
        """Whether ``take_undecoded`` returns anything."""
        return next(self._wanted(), None) is not None

    def take_undecoded(self) -> list[FetchedRecords]:
        """Take all waiting records, except for paused partitions."""
        return [each for tp in list(self._wanted()) for each in self._ready.pop(tp)]

    def _wanted(self) -> Iterator[TopicPartition]:
        return (tp for tp in self._ready if tp not in self.paused)

    def check_invariants(self) -> None:
        """Assert what holds between two calls."""
        assert self.paused <= self.positions.keys()
        assert self._under_way.keys() == self._expected_bytes.keys()
        assert self._ready.keys() <= self.positions.keys()
        for tp, waiting in self._ready.items():
            reached = waiting[0].taken_until
            for each in waiting:
                assert each.topic_partition == tp
                assert reached <= each.end <= self.positions[tp]
                reached = each.end
