"""Group commit: decisions that are made at about the same time share one commit of the journal.

Owns: the committed image, the one commit in progress, checkpoints, and the order in which decisions
become durable.  Must not know what is decided, or which requests wait for it.

When storage refuses a commit (a full disk), every decision that is not durable is given up, and the
controller starts again from the committed image.  When it is unknown whether the commit was
written, or when another controller has written it, the process must end and load the journal again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from sparklog.driver.control_plane.journal import (
    CHECKPOINT_EVERY,
    TAIL_BYTES_MAX,
    CommitHeader,
    Journal,
    JournalConflict,
    JournalError,
)
from sparklog.errors import StorageError
from sparklog.metadata import ClusterImage, Record, encode_records
from sparklog.storage_backends.blocking import run_blocking

logger = logging.getLogger(__name__)

#: Most decisions that share one commit.
GROUP_MAX = 1_000
#: With this many records a commit takes no further decision: its records are encoded in one go.
GROUP_RECORDS_MAX = 500
#: How often an idle controller reads the journal's head, in seconds.
HEAD_CHECK_S = 60.0
_ENDED = "this controller has ended"


#: Called once per decision: with None when it is durable, with the error when it was given up.
OnOutcome = Callable[[StorageError | None], None]


@dataclass(frozen=True, slots=True)
class _PendingDecision:
    """A decision that is not durable yet."""

    records: tuple[Record, ...]
    on_outcome: OnOutcome


class GroupCommitter:
    """Writes the controller's decisions to the journal, many per commit.

    Args:
        journal: the journal, of which this controller owns the head.
        image: the committed image; commits are replayed on it.
        wall_ms: returns the time of day, in milliseconds since the epoch.
        new_nonce: returns a unique text.
        on_commit: called with the encoded records of each commit.
        on_give_up: called when decisions were given up.  The controller's speculative image, which
            includes them, is then invalid.
        checkpoint_every: commits between two checkpoints.
        tail_bytes_max: bytes of commits after which a checkpoint is written in any case.
        idle_check_s: how often an idle controller looks for a commit of another one, in seconds.
            Brokers follow a replaced controller for so long if it has nothing to commit.
    """

    def __init__(
        self,
        journal: Journal,
        image: ClusterImage,
        *,
        wall_ms: Callable[[], int],
        new_nonce: Callable[[], str],
        on_commit: Callable[[bytes], None],
        on_give_up: Callable[[], None],
        checkpoint_every: int = CHECKPOINT_EVERY,
        tail_bytes_max: int = TAIL_BYTES_MAX,
        idle_check_s: float = HEAD_CHECK_S,
    ) -> None:
        self.image = image
        self.commits = 0
        self._journal = journal
        self._wall_ms = wall_ms
        self._new_nonce = new_nonce
        self._on_commit = on_commit
        self._on_give_up = on_give_up
        self._checkpoint_every = checkpoint_every
        self._tail_bytes_max = tail_bytes_max
        self._idle_check_s = idle_check_s
        self._checkpointing: asyncio.Task[None] | None = None
        self._head_read_ms = wall_ms()
        self._queue: deque[_PendingDecision] = deque()
        self._committing = False
        self._wake = asyncio.Event()
        self._stopping = False
        #: Those who wait for a proof that no other controller has taken over.
        self._confirmations: list[asyncio.Future[None]] = []
        self._ended = False

    @property
    def idle(self) -> bool:
        """Whether all decisions are durable."""
        return not self._queue and not self._committing

    def add(self, records: tuple[Record, ...], on_outcome: OnOutcome) -> None:
        """Commit records, after all that were added before.

        Args:
            records: the decision's records; with none, the decision waits for those before it.
            on_outcome: called once, with None when the decision is durable, otherwise with the
                error that it was given up for.
        """
        self._queue.append(_PendingDecision(records, on_outcome))
        self._wake.set()

    async def confirm_leadership(self) -> None:
        """Return when no other controller had taken the journal over at the time of the call.

        Raises:
            JournalConflict: another controller has, or ``run`` has ended.
            StorageError: the journal cannot be read.
        """
        if self._ended:
            raise JournalConflict(_ENDED)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirmations.append(future)
        self._wake.set()
        await future

    async def run(self) -> None:
        """Commit until ``stop()``.

        Raises:
            JournalConflict: another controller has taken the journal over.
            JournalError: the journal is damaged.
            StorageError: it is unknown whether a commit was written.
        """
        try:
            while not (self._stopping and not self._queue):
                if self._confirmations:
                    await self._confirm()
                elif self._queue:
                    await self._commit_group()
                elif not await self._wait_for_decisions():
                    await self._check_idle()
        finally:
            self._ended = True
            self._refuse_confirmations(JournalConflict(_ENDED))
        if self._checkpointing is not None:
            await self._checkpointing

    def stop(self) -> None:
        """Let ``run`` return once all decisions are durable or given up."""
        self._stopping = True
        self._wake.set()

    async def _wait_for_decisions(self) -> bool:
        try:
            async with asyncio.timeout(min(self._idle_check_s, HEAD_CHECK_S)):
                await self._wake.wait()
        except TimeoutError:
            return False
        self._wake.clear()
        return True

    async def _commit_group(self) -> None:
        group: list[_PendingDecision] = []
        size = 0
        while self._queue and len(group) < GROUP_MAX and size < GROUP_RECORDS_MAX:
            group.append(self._queue.popleft())
            size += len(group[-1].records)
        records = tuple(record for waiting in group for record in waiting.records)
        self._committing = True
        try:
            if records:
                await self._commit(records)
        except StorageError as error:
            await self._give_up(group, error)
            return
        self._committing = False
        for waiting in group:
            waiting.on_outcome(None)

    async def _give_up(self, group: list[_PendingDecision], error: StorageError) -> None:
        """Give up all decisions since the last commit.

        Raises:
            StorageError: the journal holds the failed commit, so its outcome is not certain.
        """
        if await run_blocking(self._journal.has_commit, self.image.version + 1):
            raise error
        given_up = [*group, *self._queue]
        logger.error("%d decisions are given up: %s", len(given_up), error)
        self._queue.clear()
        self._committing = False
        self._on_give_up()
        for waiting in given_up:
            waiting.on_outcome(error)

    async def _commit(self, records: tuple[Record, ...]) -> None:
        encoded = encode_records(records)
        if self._wall_ms() - self._head_read_ms > 2 * HEAD_CHECK_S * 1000:
            await self._check_head()  # this process was stalled, for example on a suspended machine
        header = self._header(self.image.version + 1)
        await run_blocking(self._journal.commit, header, encoded)
        self._check_not_stalled()
        self.image.replay_commit(header.version, records)
        self.commits += 1
        self._on_commit(encoded)
        tail_is_long = self._journal.tail_bytes > self._tail_bytes_max
        if header.version % self._checkpoint_every == 0 or tail_is_long:
            self._begin_checkpoint()

    def _header(self, version: int) -> CommitHeader:
        return CommitHeader(
            version=version,
            controller_epoch=self.image.controller_epoch,
            nonce=self._new_nonce(),
            time_ms=self._wall_ms(),
        )

    def _check_not_stalled(self) -> None:
        """Refuse the commit of a controller that was stalled for very long.

        A pruned commit number can be written a second time.  A controller that was stalled for so
        long that this may have happened must not trust its own commit.
        """
        now = self._wall_ms()
        if now - self._head_read_ms > self._journal.keep_ms // 2:
            raise JournalConflict(
                f"this controller stood still for {(now - self._head_read_ms) // 1000} s; it "
                "discards its last commit and ends, because another may have replaced it"
            )
        self._head_read_ms = now

    async def _check_idle(self) -> None:
        """Find out whether this controller was replaced while it had nothing to commit."""
        if self._wall_ms() - self._head_read_ms >= HEAD_CHECK_S * 1000:
            await self._check_head()
        else:
            await self._confirm()

    async def _check_head(self) -> None:
        if await run_blocking(self._journal.head_moved, self.image.version):
            raise JournalConflict(
                f"another controller has written to {self._journal.url}; this one (epoch "
                f"{self.image.controller_epoch}) was replaced and ends"
            )
        self._head_read_ms = self._wall_ms()

    async def _confirm(self) -> None:
        """Answer those who wait for a proof.  Between two commits the next number must be free.

        Raises:
            JournalConflict: another controller has taken the journal over.
        """
        confirmations, self._confirmations = self._confirmations, []
        try:
            if await run_blocking(self._journal.has_commit, self.image.version + 1):
                await self._check_head()
        except (JournalConflict, StorageError) as error:
            self._confirmations += confirmations
            self._refuse_confirmations(error)
            if isinstance(error, JournalConflict):
                raise
            return
        for future in confirmations:
            if not future.done():
                future.set_result(None)

    def _refuse_confirmations(self, error: Exception) -> None:
        confirmations, self._confirmations = self._confirmations, []
        for future in confirmations:
            if not future.done():
                future.set_exception(error)

    def _begin_checkpoint(self) -> None:
        if self._checkpointing is not None and not self._checkpointing.done():
            return  # the disk is slow; the next checkpoint will do
        self._journal.reset_tail()
        header, records = self._header(self.image.version), tuple(self.image.snapshot_records())
        self._checkpointing = asyncio.create_task(self._checkpoint(header, records))

    async def _checkpoint(self, header: CommitHeader, records: tuple[Record, ...]) -> None:
        try:
            await run_blocking(self._journal.write_checkpoint, header, records)
            await run_blocking(self._journal.prune, self._wall_ms())
        except (StorageError, JournalError) as error:
            logger.warning("no checkpoint at commit %d: %s", header.version, error)
