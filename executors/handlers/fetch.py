"""Fetch (key 1) v4-18: byte ranges of the logs, sent as they are.

A fetch that finds fewer than min_bytes waits up to max_wait_ms for a partition to grow.  Limits
hold per partition, per request and per broker (``fetch.max.bytes``), but the first partition with
data gives at least one whole batch (KIP-74).

With a session (KIP-227) a request names only partitions that changed, the response holds only news,
and only partitions that may have news are read.  Requests with a replica id are allowed to members
of the cluster only.  They tell the leader the end of a follower's log; the response says where that
log diverges from the leader's (KIP-595).  A follower waits for the high watermark too (KIP-1166),
which comes with the next records or, without any, a little later.  A follower that is out of range
gets the log start offset, which Kafka's followers request separately.  A consumer that names its
rack is sent to the replica there (KIP-392); followers serve it as leaders do.

Records of a tiered topic below the local log start come from the bucket (KIP-405).  While they are
on their way, a fetch that has found nothing else waits for them, at least for
``remote.fetch.max.wait.ms`` whatever max_wait_ms is; without them the response has no records and
no error.  Kafka waits for them also where other partitions have records.

Deviation: an error is answered at once; Kafka lets a fetch wait beside topics that it does not
know.

A fetch of more than ``PARTITIONS_AT_ONCE`` partitions reads them in slices.  When a request names a
partition several times, the last time counts, as in Kafka.
"""

from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.handlers.delayed_fetch import DelayedFetch
from sparklog.executors.handlers.fetch_completion import answer, answer_in_slices, answer_results
from sparklog.executors.handlers.fetch_context import (
    open_fetch_context,
    open_fetch_context_in_slices,
)
from sparklog.executors.handlers.fetch_reader import FIRST_ID_VERSION, FetchReader
from sparklog.executors.handlers.fetch_response import (
    PARTITIONS_AT_ONCE,
    encode,
    error_response,
    session_error,
)
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices
from sparklog.types import NO_BROKER_EPOCH
from sparklog.wire.protocol.fetch import MAX_VERSION, MIN_VERSION
from sparklog.wire.protocol.messages.fetch import FetchRequest, ReplicaState


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(context: RequestContext, request: FetchRequest) -> Any:
        replica = _replica(request)
        if replica.replica_id >= 0:
            _check_replica(replica_manager, context, replica)
        by_id = context.version >= FIRST_ID_VERSION
        if _names_many(request):
            return _fetch_many(replica_manager, context, request, replica)
        try:
            fetch_context = open_fetch_context(replica_manager, request, replica.replica_id, by_id)
        except KafkaError as error:
            return session_error(error.code)
        reader = FetchReader(replica_manager, context, request, replica, fetch_context)
        if fetch_context.size > PARTITIONS_AT_ONCE:
            owner = owner_of(replica_manager, context.connection)
            return _begin_in_slices(reader, request.max_wait_ms, owner)
        attempt = reader.read()
        wait_ms = reader.wait_ms(attempt, request.max_wait_ms)
        if wait_ms <= 0 or reader.is_enough(attempt):
            return answer(reader, attempt)
        attempt.release()
        owner = owner_of(replica_manager, context.connection)
        return DelayedFetch(reader, wait_ms, owner).begin_wait(attempt)

    return ApiHandler(
        api_key=FetchRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        encode=encode,
        error_response=error_response,
    )


def _names_many(request: FetchRequest) -> bool:
    topics, forgotten = request.topics, request.forgotten_topics_data
    named = sum([len(topic.partitions) for topic in topics]) + len(topics)
    if forgotten:
        named += sum([len(topic.partitions) for topic in forgotten]) + len(forgotten)
    return named > PARTITIONS_AT_ONCE


def _fetch_many(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: FetchRequest,
    replica: ReplicaState,
) -> Slices[Any]:
    """A fetch whose request names many partitions."""
    by_id = context.version >= FIRST_ID_VERSION
    try:
        fetch_context = yield from open_fetch_context_in_slices(
            replica_manager, request, replica.replica_id, by_id
        )
    except KafkaError as error:
        return session_error(error.code)
    reader = FetchReader(replica_manager, context, request, replica, fetch_context)
    owner = owner_of(replica_manager, context.connection)
    return (yield from _begin_in_slices(reader, request.max_wait_ms, owner))


def _begin_in_slices(reader: FetchReader, max_wait_ms: int, owner: Owner) -> Slices[Any]:
    """Read many partitions for the first time, then give the response or its future.

    With a session, news is returned at once, even below min_bytes, because the session's next
    request reads fewer partitions.  Records that came to a partition after its read would not wake
    the fetch, so a second read finds them.
    """
    session_id, answered, found = yield from reader.read_in_slices()
    max_wait_ms = reader.wait_ms(found, max_wait_ms)
    if max_wait_ms > 0 and not reader.is_enough(found) and not (session_id and answered):
        found.release()
        if found.size + found.missed >= reader.bytes_min:
            return (yield from answer_in_slices(reader))
        return DelayedFetch(reader, max_wait_ms, owner).begin_wait(found)
    return (yield from answer_results(reader, session_id, answered, found))


def _replica(request: FetchRequest) -> ReplicaState:
    """The follower that fetches.  Version 15 moved it into a tagged field."""
    state = request.replica_state
    return state if state.replica_id >= 0 else ReplicaState(replica_id=request.replica_id)


def _check_replica(
    replica_manager: ReplicaManager, context: RequestContext, replica: ReplicaState
) -> None:
    """Raises KafkaError unless a broker of the cluster asks, and its latest process (KIP-903)."""
    if not context.member:
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only brokers of the cluster may fetch with a replica id",
        )
    broker = replica_manager.image.broker(replica.replica_id)
    if broker is not None and NO_BROKER_EPOCH < replica.replica_epoch < broker.broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {replica.replica_id} has registered again since epoch {replica.replica_epoch}",
        )
