"""Fetches that wait for more records.

Owns: what ends the wait, and how long the wait may be.  Must not know how a partition is read.
"""

import asyncio
from typing import Final

from sparklog.errors import ErrorCode
from sparklog.executors.fetch_sessions import Awaited
from sparklog.executors.handlers.fetch_answer import PARTITIONS_AT_ONCE, session_error
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_completion import answer, answer_in_slices
from sparklog.executors.handlers.fetch_reader import FetchReader
from sparklog.executors.purgatory import Owner
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.fetch import FetchResponse

#: Longest wait that is granted, whatever the client asks for.
WAIT_MS_MAX: Final = 300_000
#: How long a high watermark waits for records to go with.  Under load there always are some, and
#: answers without any would be as many again.
HIGH_WATERMARK_WAIT_MS: Final = 5


class DelayedFetch:
    """A fetch that found too little.  It is an operation of the purgatory until it has answered."""

    def __init__(self, reader: FetchReader, max_wait_ms: int, owner: Owner) -> None:
        self._reader = reader
        self._scope = reader.scope
        self._wait_ms = min(max_wait_ms, WAIT_MS_MAX)
        self._owner = owner
        self._answer: asyncio.Future[FetchResponse | Slices[FetchResponse]]
        self._answer = asyncio.get_running_loop().create_future()
        self._missing = 0
        #: Whether it waits for records only as long as a high watermark may.
        self._hurries = False

    def park(
        self, attempt: FetchAttempt
    ) -> "asyncio.Future[FetchResponse | Slices[FetchResponse]]":
        """Wait for more than ``attempt`` found.  The future is the answer."""
        self._wait(attempt)
        return self._answer

    def _wait(self, attempt: FetchAttempt) -> None:
        self._missing = self._reader.bytes_min - attempt.size - attempt.missed
        self._hurries = attempt.stale
        wait_ms = self._wait_ms
        if attempt.stale:
            wait_ms = min(wait_ms, HIGH_WATERMARK_WAIT_MS)
        delayed_operations = self._reader.replica_manager.delayed_operations
        by_follower = self._reader.log_reads.by_follower
        purgatory = (
            delayed_operations.follower_fetches
            if by_follower
            else delayed_operations.consumer_fetches
        )
        purgatory.watch(self, self._scope.wait_for(attempt.looks), wait_ms / 1000, self._owner)

    def try_complete(self, key: Awaited, size: int) -> bool:
        """A role that changed wakes with size 0 and is always worth a look."""
        del key
        if self._scope.overtaken:
            self._finish(session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return True
        if 0 < size < self._missing:
            self._missing -= size
            return False
        if self._scope.size > PARTITIONS_AT_ONCE:
            self._finish(answer_in_slices(self._reader))
            return True
        attempt = self._reader.read()
        if self._answer.done():
            # A follower's look can move the high watermark, which wakes the same fetch.
            attempt.release()
            return True
        if not self._reader.is_enough(attempt):
            attempt.release()
            if attempt.stale and not self._hurries:
                self._wait(attempt)  # anew, and not for so long
                return True
            self._missing = self._reader.bytes_min - attempt.size
            return False
        self._finish(answer(self._reader, attempt))
        return True

    def expire(self) -> None:
        if self._scope.size > PARTITIONS_AT_ONCE:
            self._finish(answer_in_slices(self._reader))
        else:
            self._finish(answer(self._reader, self._reader.read()))

    def cancel(self) -> None:
        self._scope.wait_over()
        self._answer.cancel()

    def _finish(self, response: FetchResponse | Slices[FetchResponse]) -> None:
        self._scope.wait_over()
        self._answer.set_result(response)
