"""Results of a request by partition: a value, or the error in its place.

Owns: the initial results of a request, and the reading of one result.  Must not know any
particular request.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

ResultT = TypeVar("ResultT")


def unanswered(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
    """An error for every partition, as initial results, because a response may omit partitions."""
    return {
        tp: KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {tp}")
        for tp in partitions
    }


def value_or_raise(tp: TopicPartition, answer: ResultT | KafkaError) -> ResultT:
    """The result, or its error raised with the partition named."""
    if isinstance(answer, KafkaError):
        message = answer.message or ""
        if str(tp) not in message:
            message = f"{tp}: {message}" if message else str(tp)
        raise KafkaError(answer.code, message)
    return answer
