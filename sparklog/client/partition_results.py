"""Results of a request by partition: a value, or the error in its place.

Owns: the results that a request starts from, and how one of them is taken.  Must not know any
particular request.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

ResultT = TypeVar("ResultT")


def unanswered(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
    """An error for every partition: the results to start from, as a response may omit some."""
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
