"""Results of a request by partition: a value, or the error in its place.

Owns: the initial results of a request, and the reading of one result.  Must not know any
particular request.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from sparklog.client.deadline import kafka_error
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

ResultT = TypeVar("ResultT")

#: Brokers send a code without a text, and only they know what failed.
_STORAGE_HINT: Final = (
    "a disk of the broker fails or, if the topic is tiered, its remote_dir does not answer; the "
    "log of the broker has the reason"
)


def unanswered(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
    """An error for every partition, as initial results, because a response may omit partitions."""
    return {
        tp: KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {tp}")
        for tp in partitions
    }


def refused_read(code: int, text: str) -> KafkaError:
    """The error of a partition that a broker does not read; ``text`` names the partition."""
    hint = f": {_STORAGE_HINT}" if code == ErrorCode.KAFKA_STORAGE_ERROR else ""
    return kafka_error(code, f"{text}{hint}")


def value_or_raise(tp: TopicPartition, answer: ResultT | KafkaError) -> ResultT:
    """The result, or its error raised with the partition named."""
    if isinstance(answer, KafkaError):
        message = answer.message or ""
        if str(tp) not in message:
            message = f"{tp}: {message}" if message else str(tp)
        raise KafkaError(answer.code, message)
    return answer
