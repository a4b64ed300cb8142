"""How a follower deals with a leader that misbehaves, moves or is gone: a scripted one over TCP."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from sparklog.client.connection import Connection
from sparklog.errors import ConnectError, ErrorCode
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.executors.replication import replica_fetcher
from sparklog.executors.replication.replication import Replication
from sparklog.metadata import BrokerImage, ClusterImage, PartitionImage
from sparklog.metadata.records import BrokerRegistered, PartitionChanged, TopicCreated
from sparklog.runtime_environment import SYSTEM
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.transport import Server, serve
from sparklog.types import Endpoint, TopicPartition
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.fetch import MAX_VERSION, MIN_VERSION, encode_fetch_response
from sparklog.wire.protocol.messages.alter_partition import AlterPartitionResponse, TopicData
from sparklog.wire.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparklog.wire.protocol.private import ReportDamageRequest, ReportDamageResponse
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.test_session_model import NOW, TOPIC_ID

NODE, LEADER = 1, 2
TP = TopicPartition("t", 0)
SESSION = 99
#: In place of a response: bytes that are none.
GARBAGE = b"\xff" * 20


def answer(records: bytes = b"", *, code: int = 0, **more: Any) -> FetchResponse:
    data = PartitionData(
        partition_index=0, error_code=code, records=records, high_watermark=0, log_start_offset=0
    )
    topics = (FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(data,)),)
    return FetchResponse(responses=topics, **{"session_id": SESSION, **more})


IDLE = FetchResponse(session_id=SESSION)


@dataclass
class ScriptedLeader:
    """Gives its answers one by one; with none left it keeps fetches waiting."""

    answers: list[Any] = field(default_factory=list)
    asked: list[FetchRequest] = field(default_factory=list)
    reports: list[ReportDamageRequest] = field(default_factory=list)
    server: Server = field(init=False)

    async def start(self) -> "ScriptedLeader":
        handler = ApiHandler(
            api_key=FetchRequest.API_KEY,
            min_version=MIN_VERSION,
            max_version=MAX_VERSION,
            handle=self.handle,
            encode=self.encode,
            error_response=lambda _request, error: FetchResponse(error_code=int(error.code)),
        )
        reports = ApiHandler(
            api_key=ReportDamageRequest.API_KEY,
            min_version=0,
            max_version=0,
            handle=self.take_report,
            advertise=False,
        )
        self.server = await serve("127.0.0.1", 0, Dispatcher([handler, reports]))
        return self

    def take_report(
        self, _context: RequestContext, request: ReportDamageRequest
    ) -> ReportDamageResponse:
        self.reports.append(request)
        return ReportDamageResponse()

    def handle(self, _context: RequestContext, request: FetchRequest) -> Any:
        self.asked.append(request)
        if self.answers:
            return self.answers.pop(0)
        return asyncio.get_running_loop().create_future()

    def encode(self, header: RequestHeader, response: Any) -> Any:
        if isinstance(response, bytes):
            return (response,)
        return encode_fetch_response(header.api_version, header.correlation_id, response)

    @property
    def openings(self) -> list[int]:
        """The sessions that requests without one have asked to end."""
        return [request.session_id for request in self.asked if request.session_epoch == 0]


class Follower:
    """A broker's table with one partition that follows, and what copies it."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self.replica_manager = replica_manager
        self.replication = Replication(
            replica_manager,
            connect=self.connect,
            broker_epoch=lambda: 7,
            alter_partitions=self.no_controller,
        )

    @classmethod
    def open(cls, **settings: str) -> "Follower":
        log_dir = BrokerDir.take(
            MemoryBackend(), "broker-1", cluster_id="c", node_id=NODE, new=True, new_id=UUID(int=1)
        )
        replica_manager = ReplicaManager(
            node_id=NODE,
            log_dirs=LogDirs([log_dir]),
            settings={
                "replica.fetch.backoff.ms": "20",
                "replica.fetch.wait.max.ms": "50",
                **settings,
            },
            counters=BrokerMetrics(),
            now_ms=lambda: NOW,
            monotonic_ms=lambda: NOW,
            random_bytes=bytes,
        )
        return cls(replica_manager)

    @property
    def partition(self) -> Partition:
        partition = self.replica_manager.get(TP)
        assert partition is not None
        return partition

    async def follow(self, leader: ScriptedLeader) -> None:
        image = ClusterImage()
        both = (NODE, LEADER)
        state = PartitionImage(replicas=both, isr=both, last_known=both, leader=LEADER)
        image.replay(TopicCreated(topic="t", topic_id=TOPIC_ID, partitions=(state,)))
        self.locate(leader, image)
        await self.replica_manager.apply(image, lead=True)

    def locate(self, leader: ScriptedLeader, image: ClusterImage | None = None) -> None:
        """The image says that the leader is there."""
        broker = BrokerImage(
            broker_id=LEADER,
            directory_id=UUID(int=2),
            host="127.0.0.1",
            port=leader.server.port,
        )
        image = self.replica_manager.image if image is None else image
        image.replay(BrokerRegistered(broker=broker, clean=True))
        self.replication.image_changed()

    async def connect(self, endpoint: Endpoint) -> Connection:
        return await Connection.open(endpoint, runtime=SYSTEM)

    async def no_controller(self, topics: tuple[TopicData, ...]) -> AlterPartitionResponse:
        raise ConnectError("away")


def run(test: Callable[[ScriptedLeader, Follower], Awaitable[None]], *answers: Any) -> None:
    async def within() -> None:
        leader = await ScriptedLeader(list(answers)).start()
        follower = Follower.open()
        await follower.follow(leader)
        await test(leader, follower)
        await follower.replication.close()
        await follower.replica_manager.close()
        await leader.server.close(0)

    asyncio.run(asyncio.wait_for(within(), 20))


def first(records: bytes) -> bytes:
    """A batch as the leader of epoch 0 has it."""
    framed = bytearray(records)
    framed[12:16] = bytes(4)
    return bytes(framed)


def test_what_comes_is_appended_and_asked_on_behind() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 3)
        assert follower.partition.log.log_end_offset == 2
        ((part,),) = [topic.partitions for topic in leader.asked[1].topics]
        assert (part.fetch_offset, part.last_fetched_epoch) == (2, 0)
        assert [r.replica_state.replica_epoch for r in leader.asked] == [7, 7, 7]
        assert follower.replica_manager.counters.replication_bytes_in == len(batch(b"a", b"b"))

    run(test, answer(first(batch(b"a", b"b"))), IDLE)


def test_an_unreadable_answer_costs_the_connection() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 3)
        assert leader.openings == [0, SESSION]
        assert len(follower.replication._fetchers) == 1

    run(test, IDLE, GARBAGE)


def test_a_whole_fetch_that_is_refused_is_tried_again_later() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 4)
        assert leader.openings == [0, 0, 0]

    stale = FetchResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    run(test, stale, stale, IDLE)


def test_records_that_are_damaged_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 4)
        assert follower.partition.log.log_end_offset == 1
        # Left alone for a while, it is all that there is to ask for.
        assert leader.openings == [0, SESSION]
        assert "records of t-0 are not taken" in caplog.text
        # The leader hears of it, and of where the sound batches end.
        report = ReportDamageRequest(topic_id=TOPIC_ID, partition=0, offset=0)
        assert leader.reports == [report]

    damaged = bytearray(first(batch(b"a")))
    damaged[-1] ^= 1
    good = IDLE, answer(first(batch(b"a")))
    run(test, answer(bytes(damaged)), *good)


def test_a_leader_that_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "ANSWER_TIMEOUT_S", 0.2)

    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.openings) == 2)
        assert leader.openings == [0, SESSION]

    run(test, IDLE)


def test_a_leader_that_moves_is_followed_at_once() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 2)
        other = await ScriptedLeader([IDLE]).start()
        follower.locate(other)
        await until(lambda: len(other.asked) == 2)
        assert (other.openings, len(leader.asked)) == ([SESSION], 2)
        await follower.replication.close()
        await other.server.close(0)

    run(test, IDLE)


def test_who_leads_itself_follows_nobody() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 2)
        state = follower.partition.state
        assert state is not None
        both = (NODE, LEADER)
        own = PartitionImage(
            replicas=both, isr=both, last_known=both, leader=NODE, leader_epoch=1, partition_epoch=1
        )
        image = follower.replica_manager.image
        image.replay(PartitionChanged(topic="t", partition=0, state=own))
        image.version += 1
        await follower.replica_manager.apply(image, lead=True)
        assert follower.partition.is_leader
        assert follower.replication.as_json()["leaders_followed"] == 0

    run(test, IDLE)


def test_a_leader_whose_connection_breaks_is_doubted_until_it_is_reached_again() -> None:
    async def test(leader: ScriptedLeader, follower: Follower) -> None:
        await until(lambda: len(leader.asked) == 2)
        suspected_brokers = follower.replication.suspected_brokers
        assert not suspected_brokers.is_suspected(follower.replica_manager.image.broker(LEADER))
        await leader.server.close(0)
        await until(
            lambda: suspected_brokers.is_suspected(follower.replica_manager.image.broker(LEADER))
        )
        other = await ScriptedLeader([IDLE]).start()
        follower.locate(other)
        await until(lambda: not suspected_brokers)
        await follower.replication.close()
        await other.server.close(0)
        assert not suspected_brokers

    run(test, IDLE)
