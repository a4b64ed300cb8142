"""Deadlines, retries, and error codes as exceptions, for every call of a client.

Owns: the rules that no call waits for ever and that only retriable errors are retried.  Must not
know requests.
"""

from collections.abc import Awaitable, Callable, Container
from typing import Final, TypeVar

from sparklog.client.backoff import ExponentialBackoff
from sparklog.errors import ClosedError, ConnectError, ErrorCode, KafkaError
from sparklog.runtime_environment import clock_s

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0
#: Not retried when they come from the controller, which knows every topic.
UNKNOWN_TOPIC_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


class Deadline:
    """The point in time at which a call gives up."""

    __slots__ = ("_end", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = clock_s() + timeout_s

    @property
    def left_s(self) -> float:
        return max(self._end - clock_s(), 0.0)

    @property
    def left_ms(self) -> int:
        return int(self.left_s * 1000)

    @property
    def expired(self) -> bool:
        return self.left_s <= 0

    def capped(self, timeout_s: float) -> "Deadline":
        """The nearer of this deadline and a new one in ``timeout_s`` seconds."""
        return Deadline(min(timeout_s, self.left_s))


class Backoff:
    """Exponential backoff within a deadline."""

    __slots__ = ("_deadline", "_pauses")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._pauses = ExponentialBackoff(FIRST_PAUSE_S, PAUSE_S_MAX)

    async def pause(self) -> bool:
        """Wait before the next attempt; False when the deadline leaves no time for it."""
        if self._deadline.left_s <= self._pauses.next_s:
            return False
        await self._pauses.wait()
        return True


async def retry(
    attempt: Callable[[], Awaitable[T]],
    deadline: Deadline,
    before_retry: Callable[[], Awaitable[None]] | None = None,
    *,
    final: Container[ErrorCode] = (),
    grace: Deadline | None = None,
) -> T:
    """The result of the first success.  Raises the last error if it is final or time is up.

    Codes in ``final`` are not retried, or only within ``grace``, although Kafka calls them
    retriable.
    """
    backoff = Backoff(deadline)
    while True:
        try:
            return await attempt()
        except (KafkaError, ConnectError) as error:
            is_final = isinstance(error, KafkaError) and error.code in final
            if is_final and (grace is None or grace.expired):
                raise
            if not is_retriable(error) or not await backoff.pause():
                raise
        if before_retry is not None:
            await before_retry()


def is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, ConnectError) and not isinstance(error, ClosedError)


def kafka_error(code: int, message: str | None = None) -> KafkaError:
    """An error code from the wire as an exception; the message keeps an unknown code."""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"error code {code}: {message or 'no message'}"
        )


def check(code: int, message: str | None = None) -> None:
    """Raises KafkaError unless the code is NONE."""
    if code:
        raise kafka_error(code, message)
