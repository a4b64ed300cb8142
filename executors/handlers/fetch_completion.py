"""The response of a fetch from its reads: made at once, or in slices for many partitions.

Owns: the metrics of a response, and its content for each partition.  Must not know how a partition
is read, or when a fetch has waited long enough.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_context import ReadResult
from sparklog.executors.handlers.fetch_reader import FetchReader
from sparklog.executors.handlers.fetch_response import (
    FetchResponseBuilder,
    session_error,
    with_hint,
)
from sparklog.slices import Slices, in_slices
from sparklog.wire.protocol.messages.fetch import FetchResponse, NodeEndpoint, PartitionData

#: Units of answering one partition.
_ANSWER_UNITS: Final = 3


def answer(reader: FetchReader, attempt: FetchAttempt) -> FetchResponse:
    """Make the response.  The sender of the response owns the regions from now on."""
    session_id, results = reader.context.answer(
        attempt.results, reader.replica_manager.monotonic_ms()
    )
    endpoints: dict[int, NodeEndpoint] = {}
    topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
    for result in results:
        data = result.data
        if result.size or data.error_code:
            data = _describe(reader, result, endpoints)
        topics.setdefault((result.topic, result.part.topic_id), []).append(data)
    return FetchResponseBuilder.build(session_id, topics, endpoints)


def answer_in_slices(reader: FetchReader) -> Slices[FetchResponse]:
    """Read many partitions, and answer with the results."""
    session_id, answered, found = yield from reader.read_in_slices()
    return (yield from answer_results(reader, session_id, answered, found))


def answer_results(
    reader: FetchReader, session_id: int, results: Sequence[ReadResult], found: FetchAttempt
) -> Slices[FetchResponse]:
    made = FetchResponseBuilder(lambda result, endpoints: _describe(reader, result, endpoints))
    try:
        yield from in_slices(made.add, results, _ANSWER_UNITS)
    except GeneratorExit:  # the client is gone
        found.release()
        raise
    if reader.context.superseded:
        found.release()
        return session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    return made.response(session_id)


def _describe(
    reader: FetchReader, result: ReadResult, endpoints: dict[int, NodeEndpoint]
) -> PartitionData:
    """The response about one partition; its records are counted."""
    if result.size:
        reader.log_reads.count_sent(result.topic, result.part.wanted.partition, result.size)
    elif result.data.error_code:
        return with_hint(reader.replica_manager, result.topic, result.data, endpoints)
    return result.data
