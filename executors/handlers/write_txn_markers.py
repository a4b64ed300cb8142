"""WriteTxnMarkers (key 27) v1-2: the transaction coordinator ends transactions in partitions.

For members of the cluster; every partition of another client's request is answered with
CLUSTER_AUTHORIZATION_FAILED.  With ``sparklog.client.abort.markers.enable`` a tool may abort
hanging transactions of producers, and commit none.

A marker is appended as with acks=all.  A partition that does not take it now is answered with an
error upon which the coordinator sends the marker again: then the partition may have it twice, which
changes nothing.  A marker of a coordinator epoch below the controller epoch that this broker knows
is refused everywhere (TRANSACTION_COORDINATOR_FENCED).  A tool only knows the epoch of the
producer's last marker, so its markers are judged by that one alone.  A later epoch than the
controller's would fence the coordinator, so it is refused from a tool (INVALID_REQUEST), and so are
the reserved producer ids, with which coordinators write their logs.

A marker of an old client's transaction has the epoch of the client's next transaction too.  So a
marker that was delayed on a connection that the coordinator gave up, and sent again since, would
end the next one in the partition.  Markers on an older connection than the coordinator's latest are
refused (REQUEST_TIMED_OUT); Kafka appends them.

In a partition of ``__consumer_offsets`` a marker also commits or drops the offsets of the
transaction, in the order of the partition.  While the group coordinator loads, the partition is
answered with NOT_LEADER_OR_FOLLOWER, as in Kafka.

A partition that a marker names twice gets the marker once.  The response has one result for each
marker, in the order of the request; Kafka's has one for each producer id.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRuntime
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.partition import Appended, RequiredOffset, TransactionEnd
from sparklog.executors.replica_manager import DelayedProduce, ReplicaManager
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_groups
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, TopicPartition
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.records.control import ControlType, EndTxnMarker

#: The setting that lets clients send abort markers.
ENABLED_BY: Final = "sparklog.client.abort.markers.enable"
#: How long a marker waits to be replicated: Kafka's default of ``request.timeout.ms``.
TIMEOUT_MS: Final = 30_000
#: The errors of a coordinator that does not take a marker now, for which the transaction
#: coordinator knows another one.
_REPEATED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
#: Units of one append, and of one partition of the response.
_APPEND_UNITS: Final = 40
_PARTITION_UNITS: Final = 3

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Outcome:
    """One partition of a marker; it is answered once ``required_offset`` is reached."""

    topic_partition: TopicPartition
    code: ErrorCode = ErrorCode.NONE
    required_offset: RequiredOffset | None = None


#: The outcomes of one marker by topic and partition.
_Outcomes: TypeAlias = Mapping[str, Mapping[int, _Outcome]]


def handler(
    replica_manager: ReplicaManager, coordinators: Iterable[CoordinatorRuntime]
) -> ApiHandler:
    """``coordinators`` are those whose topics have records of transactions."""
    by_topic = {runtime.topic: runtime for runtime in coordinators}
    latest = _LatestConnection()

    def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Slices[Any]:
        if not context.member:
            _check_tool(replica_manager, context, request)
        else:
            latest.check(replica_manager, context, request)
        return end_transactions(context, request)

    def end_transactions(context: RequestContext, request: WriteTxnMarkersRequest) -> Slices[Any]:
        outcomes: list[_Outcomes] = []
        for marker in request.markers:
            appended = _append(replica_manager, by_topic, marker, member=context.member)
            outcomes.append((yield from appended))
        delayed = _DelayedMarkers(replica_manager, request.markers, outcomes)
        if not delayed.waits:
            return (yield from _response(request.markers, outcomes))
        owner = owner_of(replica_manager, context.connection)
        yield from delayed.begin_long_wait(TIMEOUT_MS, owner)
        return delayed.answer

    return ApiHandler(
        api_key=WriteTxnMarkersRequest.API_KEY,
        min_version=WriteTxnMarkersRequest.MIN_VERSION,
        max_version=WriteTxnMarkersRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=_refused,
    )


class _LatestConnection:
    """The latest connection of the transaction coordinator, which sends markers on one."""

    def __init__(self) -> None:
        self._sender: tuple[int, str | None] = (-1, None)
        self._number = -1

    def check(
        self,
        replica_manager: ReplicaManager,
        context: RequestContext,
        request: WriteTxnMarkersRequest,
    ) -> None:
        """Raises KafkaError (REQUEST_TIMED_OUT): the request is late."""
        epoch = max((marker.coordinator_epoch for marker in request.markers), default=-1)
        if epoch < max(self._sender[0], replica_manager.image.controller_epoch):
            return  # an earlier coordinator, whose markers are refused one by one
        sender, number = (epoch, context.client_id), context.connection.number
        if sender == self._sender and number < self._number:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the coordinator has sent markers on a later connection",
            )
        self._sender, self._number = sender, number


def _check_tool(
    replica_manager: ReplicaManager, context: RequestContext, request: WriteTxnMarkersRequest
) -> None:
    """Check the markers of a client that aborts hanging transactions.

    Raises:
        KafkaError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
    """
    code, reason = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ""
    if not replica_manager.broker_config.sparklog_client_abort_markers_enable:
        reason = f"only brokers end transactions, unless {ENABLED_BY} is set"
    elif any(marker.transaction_result for marker in request.markers):
        reason = "a client may abort a hanging transaction, and commit none"
    elif not all(0 <= marker.producer_id < COORDINATOR_PRODUCER_ID_BASE
                 for marker in request.markers):  # fmt: skip
        code, reason = ErrorCode.INVALID_REQUEST, "a marker has the id of no producer"
    if reason:
        peer = context.connection.peer
        logger.warning("the markers of the client %s were refused: %s", peer, reason)
        raise KafkaError(code, reason)


def _append(
    replica_manager: ReplicaManager,
    coordinators: Mapping[str, CoordinatorRuntime],
    marker: WritableTxnMarker,
    *,
    member: bool,
) -> Slices[_Outcomes]:
    """Append a marker to its partitions, each once."""
    end = _end_of(marker)
    outcomes: dict[str, dict[int, _Outcome]] = {}
    spent = 0
    for topic in marker.topics:
        of_topic = outcomes.setdefault(topic.name, {})
        for number in topic.partition_indexes:
            if number not in of_topic:
                tp = TopicPartition(topic.name, number)
                of_topic[number] = outcome = _Outcome(tp)
                try:
                    _check_coordinator_epoch(replica_manager, end, member=member)
                    appended = _end_transaction(replica_manager, coordinators, tp, end)
                    outcome.required_offset = appended.required_offset
                except KafkaError as error:
                    replica_manager.report_error(tp, error)
                    outcome.code = error.code
            spent += _APPEND_UNITS
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
    yield spent
    return outcomes


def _end_of(marker: WritableTxnMarker) -> TransactionEnd:
    kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
    return TransactionEnd(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        marker=EndTxnMarker(control_type=kind, coordinator_epoch=marker.coordinator_epoch),
        transaction_version=marker.transaction_version,
    )


def _check_coordinator_epoch(
    replica_manager: ReplicaManager, end: TransactionEnd, *, member: bool
) -> None:
    """The controller may have changed since the request came.  Raises KafkaError."""
    known, epoch = replica_manager.image.controller_epoch, end.marker.coordinator_epoch
    why = f"the marker has the coordinator epoch {epoch}, and the controller epoch is {known}"
    if member and epoch < known:
        raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, why)
    if not member and epoch > known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _end_transaction(
    replica_manager: ReplicaManager,
    coordinators: Mapping[str, CoordinatorRuntime],
    tp: TopicPartition,
    end: TransactionEnd,
) -> Appended:
    partition = replica_manager.find(tp.topic, tp.partition)
    coordinator = coordinators.get(tp.topic)
    if coordinator is None:
        return replica_manager.end_transaction(partition, end)
    try:
        return coordinator.end_transaction(tp.partition, end)
    except KafkaError as error:
        if error.code in _REPEATED:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
        raise


class _DelayedMarkers(DelayedProduce[_Outcome]):
    """A request that is answered once all its markers are replicated."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        markers: Sequence[WritableTxnMarker],
        outcomes: Sequence[_Outcomes],
    ) -> None:
        super().__init__(replica_manager)
        self.answer: asyncio.Future[Slices[WriteTxnMarkersResponse]]
        self.answer = asyncio.get_running_loop().create_future()
        self._markers = markers
        self._outcomes = outcomes
        for outcome in _all(outcomes):
            if outcome.required_offset is not None:
                waiting = self._waiting.setdefault(outcome.topic_partition, deque())
                waiting.append((outcome.required_offset, outcome))

    @property
    def waits(self) -> bool:
        """Whether any marker has to be replicated yet."""
        return bool(self._waiting)

    def cancel(self) -> None:
        super().cancel()
        self.answer.cancel()

    def _complete(self, batch: _Outcome) -> None:
        """The outcome stays as it is."""

    def _refuse(self, batch: _Outcome, error: KafkaError) -> None:
        batch.code = error.code

    def _finish(self) -> None:
        if not self.answer.done():
            self.answer.set_result(_response(self._markers, self._outcomes))


def _all(outcomes: Iterable[_Outcomes]) -> Iterator[_Outcome]:
    for of_marker in outcomes:
        for of_topic in of_marker.values():
            yield from of_topic.values()


def _response(
    markers: Sequence[WritableTxnMarker], outcomes: Sequence[_Outcomes]
) -> Slices[WriteTxnMarkersResponse]:
    results: list[WritableTxnMarkerResult] = []
    for marker, of_marker in zip(markers, outcomes, strict=True):
        topics = yield from in_groups(
            of_marker.items(),
            lambda of_topic: of_topic[1].values(),
            lambda _, outcome: WritableTxnMarkerPartitionResult(
                partition_index=outcome.topic_partition.partition, error_code=int(outcome.code)
            ),
            lambda of_topic, parts: WritableTxnMarkerTopicResult(
                name=of_topic[0], partitions=parts
            ),
            _PARTITION_UNITS,
        )
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=tuple(results))


def _refused(request: WriteTxnMarkersRequest, error: KafkaError) -> Slices[WriteTxnMarkersResponse]:
    """The response of one error for all partitions."""
    results: list[WritableTxnMarkerResult] = []
    for marker in request.markers:
        topics = yield from in_groups(
            marker.topics,
            lambda topic: topic.partition_indexes,
            lambda _, number: WritableTxnMarkerPartitionResult(
                partition_index=number, error_code=int(error.code)
            ),
            lambda topic, parts: WritableTxnMarkerTopicResult(name=topic.name, partitions=parts),
            _PARTITION_UNITS,
        )
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=tuple(results))
