"""The positions from which assigned partitions are read: committed offsets, or the reset policy.

Owns: the partitions that have no position yet, and the look-ups under way.  Must not know the group
beyond its committed offsets.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from sparklog.client.consumer import Consumer
from sparklog.client.groups.coordinator_link import CoordinatorLink
from sparklog.client.groups.options import GroupConsumerOptions
from sparklog.errors import ErrorCode, KafkaError, NoOffsetForPartitionError
from sparklog.types import TopicPartition


class StartPositions:
    """Partitions without a position; ``on_news`` is called when they have one, or an error."""

    def __init__(
        self,
        records: Consumer,
        link: CoordinatorLink | None,
        options: GroupConsumerOptions,
        on_news: Callable[[], None],
    ) -> None:
        self._records = records
        self._link = link
        self._options = options
        self._on_news = on_news
        self._waiting: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._held = False
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> frozenset[TopicPartition]:
        return frozenset(self._waiting)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def add(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Add partitions that need a position.

        With ``held``, the look-up waits for ``release``, because the listener may seek.
        """
        self._waiting |= set(partitions)
        self._held = held

    def release(self) -> None:
        self._held = False

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that need no position any more; running look-ups of them are void."""
        gone = self._waiting & set(partitions)
        if gone:
            self._waiting -= gone
            self._paused -= gone
            self._cancel()

    def start_at(self, positions: Mapping[TopicPartition, int]) -> None:
        """Start partitions at positions that were not looked up; running look-ups are void."""
        if self._waiting & positions.keys():
            self._cancel()
        self._start(positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Pause the partitions without a position; return the others."""
        wanted = set(partitions)
        self._paused |= wanted & self._waiting
        return wanted - self._waiting

    def resume(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Resume the partitions without a position; return the others."""
        wanted = set(partitions)
        self._paused -= wanted
        return wanted - self._waiting

    def look_up(self) -> None:
        """Start a look-up of positions, if there are partitions without one.

        Raises the error of the last look-up, if it failed; the next call starts another one.
        """
        task = self._task
        if task is not None and task.done():
            self._task = None
            if not task.cancelled():
                task.result()
        if self._waiting and not self._held and self._task is None:
            self._task = asyncio.ensure_future(self._look_up())

    async def await_position(self, tp: TopicPartition, timeout_s: float) -> None:
        """Wait until a partition has a position.  Raises KafkaError(REQUEST_TIMED_OUT)."""
        held, self._held = self._held, False
        try:
            async with asyncio.timeout(timeout_s):
                while tp in self._waiting:
                    self.look_up()
                    if self._task is not None:
                        await asyncio.wait((self._task,))
        except TimeoutError:
            text = f"{tp} had no position within {timeout_s:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
        finally:
            self._held = held

    async def close(self) -> None:
        task = self._task
        self._cancel()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.cancel() and not task.cancelled():
            task.exception()  # seen: nobody needs the position any more

    async def _look_up(self) -> None:
        try:
            self._start(await self._find(self.waiting))
        finally:
            self._on_news()

    def _start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Let the records of partitions be fetched, unless they were paused meanwhile."""
        self._records.add(positions)
        self._waiting -= positions.keys()
        paused = self._paused & positions.keys()
        self._records.pause(paused)
        self._paused -= paused

    async def _find(self, wanted: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        if self._link is not None:
            committed = await self._link.committed(
                sorted(wanted),  # what is fetched first must not depend on the order of a set
                self._options.default_api_timeout_ms / 1000,
                require_stable=self._options.is_read_committed,
            )
            offsets = {tp: found.offset for tp, found in committed.items() if found is not None}
        missing = sorted(wanted - offsets.keys())
        reset = self._options.reset
        if missing and reset is None:
            names = ", ".join(map(str, missing))
            raise NoOffsetForPartitionError(
                f"no offset is committed for {names}, and auto_offset_reset is 'none': "
                "seek to an offset, or set auto_offset_reset"
            )
        if reset is not None:
            offsets |= dict.fromkeys(missing, int(reset))
        return await self._records.resolve(offsets)
