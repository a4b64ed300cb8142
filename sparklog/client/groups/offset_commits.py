"""The commits of one consumer, in order, in the foreground and in the background.

Owns: the order of commits, and the outcomes that wait for the application's callbacks.  Must not
know which offsets are committed, nor when.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparklog.client.deadline import Deadline
from sparklog.client.groups.coordinator_link import CoordinatorLink
from sparklog.client.groups.offset_requests import GroupIdentity, OffsetAndMetadata
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: (offsets, the error or None), once the commit is done.
CommitCallback = Callable[[Offsets, Exception | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """A finished commit, and the callback to call with its outcome."""

    callback: CommitCallback
    offsets: Offsets
    error: Exception | None


class OffsetCommits:
    """Commits one after the other, so that an older commit never overwrites a newer one."""

    def __init__(
        self,
        link: CoordinatorLink,
        timeout_s: float,
        on_refused: Callable[[GroupIdentity, KafkaError], None],
    ) -> None:
        #: Outcomes of ``commit_later``, for the application's next ``poll`` or commit.
        self.outcomes: deque[CommitOutcome] = deque()
        self._link = link
        self._timeout_s = timeout_s
        self._on_refused = on_refused
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a commit is under way."""
        return self._turn.locked()

    async def commit(
        self, identity: GroupIdentity, offsets: Offsets, timeout_s: float | None = None
    ) -> None:
        """Commit, after all earlier commits, whose end counts as a part of ``timeout_s``.

        Raises KafkaError, which is REQUEST_TIMED_OUT if the earlier commits do not end in time, and
        ConnectError.
        """
        deadline = Deadline(self._timeout_s if timeout_s is None else timeout_s)
        if self._tasks:
            await asyncio.sleep(0)  # tasks that have not begun ask for their turns first
        await self._commit(identity, offsets, deadline)

    async def _commit(self, identity: GroupIdentity, offsets: Offsets, deadline: Deadline) -> None:
        await self._take_turn(deadline)
        try:
            await self._link.commit(identity, offsets, deadline.left_s)
        except KafkaError as error:
            self._on_refused(identity, error)
            raise
        finally:
            self._turn.release()

    async def _take_turn(self, deadline: Deadline) -> None:
        try:
            # asyncio.wait_for would lose a cancellation, or the turn itself (Python 3.11).
            async with asyncio.timeout(deadline.left_s):
                await self._turn.acquire()
        except TimeoutError:
            text = f"an earlier commit did not end within {deadline.timeout_s:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    def commit_later(
        self, identity: GroupIdentity, offsets: Offsets, callback: CommitCallback | None
    ) -> None:
        """Commit in the background; without a callback an error is only logged."""
        task = asyncio.ensure_future(self._commit_later(identity, offsets, callback))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_later(
        self, identity: GroupIdentity, offsets: Offsets, callback: CommitCallback | None
    ) -> None:
        failure: Exception | None = None
        try:
            await self._commit(identity, offsets, Deadline(self._timeout_s))
        except SparklogError as error:
            failure = error
        if callback is not None:
            self.outcomes.append(CommitOutcome(callback=callback, offsets=offsets, error=failure))
        elif failure is not None:
            logger.warning("a commit failed: %s", failure)

    async def finish(self, timeout_s: float) -> None:
        """Wait for the commits in the background, at most ``timeout_s`` seconds."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)

    async def close(self) -> None:
        """Give up the commits in flight."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
