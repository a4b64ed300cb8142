"""The markers of decided transactions, on their way to the leaders of partitions.

Owns: which markers no leader has confirmed, the one request under way to each broker, and what
follows from each error code.  Must not know why a transaction ends.  Kafka:
``TransactionMarkerChannelManager``.

A marker is repeated until its partition has it or is deleted; a leader takes a repeated marker as
it took the first.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, kafka_error
from sparklog.driver.transactions import ProducerIdentity, WriteMarkers
from sparklog.errors import ErrorCode, SparklogError
from sparklog.metadata import ClusterImage
from sparklog.types import NO_NODE, TopicPartition
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: Called with the transactional id, its producer, and partitions that have the marker.
OnWritten: TypeAlias = Callable[[str, ProducerIdentity, frozenset[TopicPartition]], None]

#: Most partitions of one request, each for one producer.
_REQUEST_MARKERS_MAX: Final = 2_000
#: Time for the response to one request, in seconds.
_RESPONSE_S: Final = 10.0
#: The pause before a marker is sent again, in seconds.
_PAUSE_S: Final = 0.1
#: The lane of the connections, so that no marker waits behind an append.
_LANE: Final = "markers"

logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """A marker of one producer in one partition; a producer has one transaction at a time."""

    producer_id: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class _Marker:
    """``load`` is the number of ``forget`` calls with ``on_written`` before this marker."""

    write: WriteMarkers
    on_written: OnWritten
    load: int


class MarkerSender:
    """Sends markers with the epoch of one controller.

    Args:
        image: returns the committed image.
        on_fenced: a leader knows a later controller.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        image: Callable[[], ClusterImage],
        controller_epoch: int,
        on_fenced: Callable[[SparklogError], None],
    ) -> None:
        self._cluster = cluster
        self._image = image
        self._controller_epoch = controller_epoch
        self._on_fenced = on_fenced
        #: Markers by the broker that leads their partitions; under ``NO_NODE`` those without a
        #: leader and those that wait for another attempt.
        self._unsent: dict[int, dict[_Key, _Marker]] = defaultdict(dict)
        self._loads: defaultdict[OnWritten, int] = defaultdict(int)
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._retry: asyncio.TimerHandle | None = None

    @property
    def unsent(self) -> int:
        """The markers that no request has taken yet."""
        return sum(map(len, self._unsent.values()))

    def write(self, write: WriteMarkers, on_written: OnWritten) -> None:
        """Write the marker to each partition; call back with the partitions that have it.

        ``on_written`` is not called before this returns.
        """
        marker = _Marker(write, on_written, self._loads[on_written])
        for tp in sorted(write.partitions):
            self._route(_Key(write.producer.producer_id, tp), marker)

    def forget(self, on_written: OnWritten) -> None:
        """Drop the markers with this callback: their transactions are loaded again.

        The markers of a request that is under way are neither sent again nor reported.  The next
        transaction of an old client has the same producer epoch, and would take them for its own.
        """
        self._loads[on_written] += 1
        for unsent in self._unsent.values():
            for key in [key for key, marker in unsent.items() if marker.on_written == on_written]:
                del unsent[key]

    async def close(self) -> None:
        """End the requests that are under way."""
        if self._retry is not None:
            self._retry.cancel()
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)

    def _route(self, key: _Key, marker: _Marker) -> None:
        state = self._image().partition(key.topic_partition)
        leader = NO_NODE if state is None else state.leader
        if leader == NO_NODE or not self._image().is_alive(leader):
            self._retry_later(key, marker)
            return
        self._unsent[leader][key] = marker
        if leader not in self._senders:
            sender = asyncio.get_running_loop().create_task(self._send(leader))
            self._senders[leader] = sender

    def _retry_later(self, key: _Key, marker: _Marker) -> None:
        self._unsent[NO_NODE][key] = marker
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_PAUSE_S, self._route_again)

    def _route_again(self) -> None:
        self._retry = None
        deleted: list[tuple[_Key, _Marker]] = []
        for key, marker in self._unsent.pop(NO_NODE, {}).items():
            if self._image().partition(key.topic_partition) is None:
                deleted.append((key, marker))
            else:
                self._route(key, marker)
        _report(deleted)

    async def _send(self, broker_id: int) -> None:
        """Send what there is for a broker, one request after the other."""
        try:
            await asyncio.sleep(0)  # the markers of one tick share a request
            while unsent := self._unsent.pop(broker_id, None):
                while unsent:
                    some = {key: unsent.pop(key) for key in list(unsent)[:_REQUEST_MARKERS_MAX]}
                    await self._send_some(broker_id, some)
        finally:
            self._senders.pop(broker_id, None)

    async def _send_some(self, broker_id: int, markers: Mapping[_Key, _Marker]) -> None:
        deadline = Deadline(_RESPONSE_S)
        try:
            if self._cluster.view.nodes.get(broker_id) is None:
                await self._cluster.refresh((), deadline)
            connection = await self._cluster.connect_node(broker_id, deadline, _LANE)
            markers = self._remembered(markers)
            if not markers:
                return
            request = _request(markers, self._controller_epoch)
            response: WriteTxnMarkersResponse = await connection.request(
                request, timeout_s=max(deadline.left_s, 0.001)
            )
        except SparklogError as error:
            logger.info("markers for broker %d are sent again: %s", broker_id, error)
            await self._cluster.refresh((), deadline)  # the broker may have another address now
            for key, marker in self._remembered(markers).items():
                self._retry_later(key, marker)
            return
        self._take(self._remembered(markers), _codes(response))

    def _remembered(self, markers: Mapping[_Key, _Marker]) -> dict[_Key, _Marker]:
        """The markers whose transactions were not loaded again since ``write``."""
        return {
            key: marker
            for key, marker in markers.items()
            if marker.load == self._loads[marker.on_written]
        }

    def _take(self, markers: Mapping[_Key, _Marker], codes: Mapping[_Key, int]) -> None:
        written: list[tuple[_Key, _Marker]] = []
        for key, marker in markers.items():
            code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE:
                written.append((key, marker))
            elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
                # A later epoch of the producer has been there, so its transaction is over there.
                logger.warning("%s has ended an earlier transaction: %s", *key[::-1])
                written.append((key, marker))
            elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                later = f"{key.topic_partition} knows a later controller"
                self._on_fenced(kafka_error(code, later))
            else:
                self._retry_later(key, marker)
        _report(written)


def _report(written: Sequence[tuple[_Key, _Marker]]) -> None:
    by_marker: dict[tuple[OnWritten, str, ProducerIdentity], list[TopicPartition]] = {}
    for key, marker in written:
        write = marker.write
        same = (marker.on_written, write.transactional_id, write.producer)
        by_marker.setdefault(same, []).append(key.topic_partition)
    for (on_written, transactional_id, producer), partitions in by_marker.items():
        on_written(transactional_id, producer, frozenset(partitions))


def _request(markers: Mapping[_Key, _Marker], controller_epoch: int) -> WriteTxnMarkersRequest:
    by_producer: dict[int, tuple[WriteMarkers, dict[str, list[int]]]] = {}
    for key, marker in markers.items():
        _, topics = by_producer.setdefault(key.producer_id, (marker.write, defaultdict(list)))
        topics[key.topic_partition.topic].append(key.topic_partition.partition)
    return WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=write.producer.producer_id,
                producer_epoch=write.producer.epoch,
                transaction_result=write.committed,
                topics=tuple(
                    WritableTxnMarkerTopic(name=name, partition_indexes=tuple(partitions))
                    for name, partitions in topics.items()
                ),
                coordinator_epoch=controller_epoch,
                transaction_version=write.client_version,
            )
            for write, topics in by_producer.values()
        )
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[_Key, int]:
    return {
        _Key(marker.producer_id, TopicPartition(topic.name, part.partition_index)): part.error_code
        for marker in response.markers
        for topic in marker.topics
        for part in topic.partitions
    }
