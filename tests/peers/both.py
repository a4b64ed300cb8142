"""Kafka and sparklog side by side: the same bytes to both, and their answers compared.

Owns: the connections, topics by their ids on either side.  Must not know any API.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sparklog.wire.protocol.codec import decode_response, encode_request, response_type
from sparklog.wire.protocol.fetch import decode_fetch_response
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Request
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import Record, encode_batch
from tests.peers.comparison import Difference, differences, plain
from tests.peers.deviations import Deviation
from tests.support.raw_wire import RawWire, framed

READY_SECONDS_MAX, HEARD_SECONDS_MAX = 60.0, 60.0
#: How long either side may take for what it is told to do.
TIMEOUT_MS = 60_000
CORRELATION_ID = 7
CLIENT_ID = "both"
#: Serves topics by name, and partitions by number.
CREATE_VERSION, PRODUCE_VERSION, LIST_OFFSETS_VERSION, FETCH_VERSION = 7, 12, 10, 12


@dataclass(slots=True)
class Side:
    """One of the two; of its nodes "broker" leads partitions, "control plane" does not."""

    name: str
    addresses: Mapping[str, str]
    ids: dict[str, UUID] = field(default_factory=dict)
    _wires: dict[str, RawWire] = field(default_factory=dict)

    def wire(self, node: str) -> RawWire:
        if node not in self._wires:
            self._wires[node] = RawWire(self.addresses[node])
        return self._wires[node]

    def close(self) -> None:
        for node in list(self._wires):
            self._drop(node)

    def tell(self, request: Request, version: int, node: str = "broker") -> None:
        """A request that has no answer."""
        self.wire(node).send(framed(encode_request(request, version, CORRELATION_ID, CLIENT_ID)))

    def exchange(
        self, request: Request, version: int, node: str = "broker", *, another: bool = False
    ) -> Any:
        """The answer; None when the connection was closed instead.

        On a connection of its own if the node is busy with ``another`` request.
        """
        if another:
            beside = Side(self.name, self.addresses, self.ids)
            try:
                return beside.exchange(request, version, node)
            finally:
                beside.close()
        self.tell(request, version, node)
        return self.hear(type(request), version, node)

    def hear(self, kind: type[Request], version: int, node: str = "broker") -> Any:
        """The answer to a request of this kind that was sent before."""
        try:
            frame = self.wire(node).frame()
        except TimeoutError:
            self._drop(node)  # a late answer must not be taken for that to the next request
            raise AssertionError(f"{self.name} does not answer") from None
        if frame is None:
            self._drop(node)
            return None
        if kind is FetchRequest:
            correlation_id, response = decode_fetch_response(version, frame)
        else:
            correlation_id, response = decode_response(response_type(kind.API_KEY), version, frame)
        assert correlation_id == CORRELATION_ID
        return response

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """As ``Both.create``."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
        [created] = self.exchange(request, CREATE_VERSION).topics
        assert created.error_code == 0, (self.name, created)
        self.ids[name] = created.topic_id
        self.await_topic(name, partitions)

    def await_topic(self, name: str, partitions: int = 1) -> None:
        """Until every partition is led, and by a node that knows it."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        for number in range(partitions):
            while True:
                response = self.exchange(list_offsets(name, -2, number), LIST_OFFSETS_VERSION)
                [found] = response.topics[0].partitions
                if found.error_code == 0:
                    break
                assert time.monotonic() < deadline, (self.name, name, found)
                time.sleep(0.01)

    def fill(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Batches that must be taken."""
        for records in batches:
            request = produce(topic, records, partition=partition)
            [answered] = self.exchange(request, PRODUCE_VERSION).responses
            [result] = answered.partition_responses
            assert result.error_code == 0, (self.name, result)

    def records(self, topic: str, offset: int = 0, partition: int = 0) -> bytes:
        """All batches from the one with this offset on."""
        found = b""
        while True:
            wanted = FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24
            )
            request = FetchRequest(topics=(FetchTopic(topic=topic, partitions=(wanted,)),))
            [data] = self.exchange(request, FETCH_VERSION).responses[0].partitions
            assert data.error_code == 0, (self.name, data)
            if not data.records:
                return found
            found += data.records
            offset = list(iter_batches(data.records))[-1][0].next_offset

    def _drop(self, node: str) -> None:
        self._wires.pop(node).__exit__()


Asked = Request | Callable[[Side], Request]


class Both:
    """``node`` is the one of ours that is asked; Kafka has one for everything."""

    def __init__(self, kafka: Side, ours: Side, node: str = "broker") -> None:
        self.kafka, self.ours, self.node = kafka, ours, node

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ours

    def at(self, node: str) -> "Both":
        return Both(self.kafka, self.ours, node)

    def ask(self, request: Asked, version: int) -> tuple[Any, Any]:
        """Kafka's answer and ours."""
        return tuple(  # type: ignore[return-value]
            side.exchange(
                request(side) if callable(request) else request,
                version,
                self.node if side is self.ours else "broker",
            )
            for side in self.sides
        )

    def same(
        self,
        request: Asked,
        versions: int | Iterable[int],
        *meant: Deviation,
        where: Iterable[str] = (),
    ) -> Any:
        """Ask both; fails for a difference that is not meant, and for a deviation that is none.

        Paths that match one of ``where`` are not compared.  Gives our answer to the last version.
        """
        ours = None
        for version in (versions,) if isinstance(versions, int) else versions:
            kafka, ours = self.ask(request, version)
            self.compare(kafka, ours, *meant, where=where, story=f"v{version}")
        return ours

    def await_same(
        self,
        request: Asked,
        version: int,
        *meant: Deviation,
        where: Iterable[str] = (),
        seconds_max: float = HEARD_SECONDS_MAX,
    ) -> None:
        """As ``same``, for what either side takes a moment to hear of."""
        deadline = time.monotonic() + seconds_max
        while True:
            try:
                self.same(request, version, *meant, where=where)
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def compare(
        self,
        kafka: Any,
        ours: Any,
        *meant: Deviation,
        where: Iterable[str] = (),
        story: str = "",
    ) -> None:
        of_kafka = {topic_id: name for name, topic_id in self.kafka.ids.items()}
        of_ours = {topic_id: name for name, topic_id in self.ours.ids.items()}
        found = differences(plain(kafka, of_kafka), plain(ours, of_ours))
        check(found, meant, where, story)

    # -- what tests stand on

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        """A topic on both sides; returns when it can be written to.  ``_`` in names is a dot."""
        for side in self.sides:
            side.create(name, partitions, **configs)
        return name

    def await_topic(self, name: str, partitions: int = 1) -> None:
        for side in self.sides:
            side.await_topic(name, partitions)

    def fill(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Batches that both must take."""
        for side in self.sides:
            side.fill(topic, *batches, partition=partition)


def check(
    found: Iterable[Difference],
    meant: Iterable[Deviation],
    where: Iterable[str] = (),
    story: str = "",
) -> None:
    """Every difference is meant, and everything meant is there."""
    unseen = list(meant)
    stray = []
    skipped = [re.compile(pattern) for pattern in where]
    for difference in found:
        if any(pattern.fullmatch(difference.path) for pattern in skipped):
            continue
        reasons = [deviation for deviation in meant if deviation.covers(difference)]
        if not reasons:
            stray.append(difference)
        unseen = [deviation for deviation in unseen if deviation not in reasons]
    assert stray == [], "\n".join(
        f"{story} {each.path}: Kafka {each.kafka!r:.300}, ours {each.ours!r:.300}" for each in stray
    )
    assert unseen == [], f"{story}: stated, but there is no such difference: {unseen}"


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **options: Any) -> bytes:
    records = [
        Record(value=value, timestamp=timestamp + number) for number, value in enumerate(values)
    ]
    return encode_batch(records, **options)


def produce(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )


def list_offsets(
    topic: str, timestamp: int, partition: int = 0, *, epoch: int = -1, **more: Any
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    return ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(wanted,)),), **more
    )
