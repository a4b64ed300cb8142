"""Completing a fetch: its answer from what was read, of few partitions at once, of many in slices.

Owns: what is counted and told when a fetch is answered.  Must not know how a partition is read, or
when a fetch has waited enough.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.executors.handlers.fetch_answer import FetchAnswer, session_error, with_hint
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_reader import FetchReader
from sparklog.executors.handlers.fetch_scope import Look
from sparklog.slices import Slices, in_slices
from sparklog.wire.protocol.messages.fetch import FetchResponse, NodeEndpoint, PartitionData

#: Units of answering one partition.
_ANSWER_UNITS: Final = 3


def answer(reader: FetchReader, attempt: FetchAttempt) -> FetchResponse:
    """The answer; its regions now belong to whoever sends it."""
    session_id, looks = reader.scope.answer(attempt.looks, reader.replica_manager.monotonic_ms())
    endpoints: dict[int, NodeEndpoint] = {}
    topics: dict[tuple[str, UUID | None], list[PartitionData]] = {}
    for look in looks:
        data = look.data
        if look.size or data.error_code:
            data = _told(reader, look, endpoints)
        topics.setdefault((look.topic, look.part.topic_id), []).append(data)
    return FetchAnswer.made(session_id, topics, endpoints)


def answer_in_slices(reader: FetchReader) -> Slices[FetchResponse]:
    """Look at many partitions, and answer with what there is."""
    session_id, answered, found = yield from reader.read_in_slices()
    return (yield from answer_looks(reader, session_id, answered, found))


def answer_looks(
    reader: FetchReader, session_id: int, looks: Sequence[Look], found: FetchAttempt
) -> Slices[FetchResponse]:
    made = FetchAnswer(lambda look, endpoints: _told(reader, look, endpoints))
    try:
        yield from in_slices(made.add, looks, _ANSWER_UNITS)
    except GeneratorExit:  # nobody takes the answer any more
        found.release()
        raise
    if reader.scope.overtaken:
        found.release()
        return session_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    return made.response(session_id)


def _told(reader: FetchReader, look: Look, endpoints: dict[int, NodeEndpoint]) -> PartitionData:
    """What the answer says about a partition."""
    if look.size:
        reader.log_reads.count_sent(look.topic, look.part.wanted.partition, look.size)
    elif look.data.error_code:
        return with_hint(reader.replica_manager, look.topic, look.data, endpoints)
    return look.data
