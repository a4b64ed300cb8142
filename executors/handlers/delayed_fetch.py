"""Fetches that wait for more records.

Owns: the end of the wait, and its longest duration.  Must not know how a partition is read.
"""

import asyncio
from typing import Final

from sparklog.errors import ErrorCode
from sparklog.executors.fetch_sessions import FetchKey
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_completion import answer, answer_in_slices
from sparklog.executors.handlers.fetch_reader import FetchReader
from sparklog.executors.handlers.fetch_response import PARTITIONS_AT_ONCE, session_error
from sparklog.executors.purgatory import Owner
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.fetch import FetchResponse

#: Longest wait of a fetch, even if a client asks for more.
WAIT_MS_MAX: Final = 300_000
#: Maximum delay in ms of a new high watermark without records.  Under load records carry it, and
#: responses of its own would double the traffic.
HIGH_WATERMARK_WAIT_MS: Final = 5


class DelayedFetch:
    """A fetch that found too few bytes: a delayed operation until it is answered."""

    def __init__(self, reader: FetchReader, max_wait_ms: int, owner: Owner) -> None:
        self._reader = reader
        self._context = reader.context
        self._wait_ms = min(max_wait_ms, WAIT_MS_MAX)
        self._owner = owner
        self._answer: asyncio.Future[FetchResponse | Slices[FetchResponse]]
        self._answer = asyncio.get_running_loop().create_future()
        self._missing = 0
        #: Whether the wait is as short as a high watermark may wait for records.
        self._waits_for_high_watermark = False

    def begin_wait(
        self, attempt: FetchAttempt
    ) -> "asyncio.Future[FetchResponse | Slices[FetchResponse]]":
        """Wait for more than ``attempt`` found.  The future is the response."""
        self._wait(attempt)
        return self._answer

    def _wait(self, attempt: FetchAttempt) -> None:
        self._missing = self._reader.bytes_min - attempt.size - attempt.missed
        self._waits_for_high_watermark = attempt.lacks_high_watermark
        wait_ms = self._wait_ms
        if attempt.lacks_high_watermark:
            wait_ms = min(wait_ms, HIGH_WATERMARK_WAIT_MS)
        delayed_operations = self._reader.replica_manager.delayed_operations
        by_follower = self._reader.log_reads.by_follower
        purgatory = (
            delayed_operations.follower_fetches
            if by_follower
            else delayed_operations.consumer_fetches
        )
        purgatory.watch(
            self, self._context.begin_wait(attempt.results), wait_ms / 1000, self._owner
        )

    def try_complete(self, key: FetchKey, size: int) -> bool:
        """Read again after enough new bytes, or after a change without bytes, such as a role."""
        del key
        if self._context.superseded:
            self._finish(session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return True
        if 0 < size < self._missing:
            self._missing -= size
            return False
        if self._context.size > PARTITIONS_AT_ONCE:
            self._finish(answer_in_slices(self._reader))
            return True
        attempt = self._reader.read()
        if self._answer.done():
            # A follower's read can move the high watermark, which completes the same fetch.
            attempt.release()
            return True
        if not self._reader.is_enough(attempt):
            attempt.release()
            if attempt.lacks_high_watermark and not self._waits_for_high_watermark:
                self._wait(attempt)  # again, but for a shorter time
                return True
            self._missing = self._reader.bytes_min - attempt.size
            return False
        self._finish(answer(self._reader, attempt))
        return True

    def expire(self) -> None:
        if self._context.size > PARTITIONS_AT_ONCE:
            self._finish(answer_in_slices(self._reader))
        else:
            self._finish(answer(self._reader, self._reader.read()))

    def cancel(self) -> None:
        self._context.end_wait()
        self._answer.cancel()

    def _finish(self, response: FetchResponse | Slices[FetchResponse]) -> None:
        self._context.end_wait()
        self._answer.set_result(response)
