"""Followers whose leader has the next records only in the bucket: the search for a new start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError, StorageError
from sparklog.executors.log import EpochEntry
from sparklog.executors.partition import Partition, ProducerStateManager, TieredStart, TieredState
from sparklog.executors.replication import fetch_session_handler
from sparklog.executors.replication.replica_fetcher import no_remote_start
from sparklog.executors.replication.replication import Replication
from sparklog.metadata import PartitionImage
from sparklog.metadata.records import PartitionChanged
from sparklog.service.dispatch import Dispatcher
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.transport import serve
from sparklog.wire.protocol.fetch import MAX_VERSION, MIN_VERSION
from sparklog.wire.protocol.messages.fetch import FetchRequest, FetchResponse
from sparklog.wire.protocol.private_replicas import (
    ReadTieredStateRequest,
    ReadTieredStateResponse,
)
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.test_replica_fetcher import (
    IDLE,
    LEADER,
    NODE,
    TP,
    Follower,
    ScriptedLeader,
    answer,
    first,
)
from tests.unit.executors.broker.test_session_model import TOPIC_ID

#: Where the leader's log, its files, and what is in the bucket begin or end.
STATE = ReadTieredStateResponse(
    log_start_offset=20, local_log_start_offset=500, tiered_end_offset=700
)
START = TieredStart(500, 20, (EpochEntry(0, 20),), ProducerStateManager(TP).to_snapshot())
MOVED = answer(code=int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE))
TROUBLE = StorageError("the bucket is away")


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings with pauses longer than a test: only what ends a pause early goes on."""
    monkeypatch.setattr(fetch_session_handler, "BACKOFF_MS_MIN", 60_000)
    return {"replica.fetch.backoff.ms": "60000"}


@dataclass
class TieredLeader(ScriptedLeader):
    """Tells of its bucket too, with these answers, the last of them again and again.

    Without scripted answers to fetches, all offsets below its files are in the bucket.
    """

    states: list[Any] = field(default_factory=lambda: [STATE])
    state_requests: list[ReadTieredStateRequest] = field(default_factory=list)

    async def start(self) -> "TieredLeader":
        handlers = [
            ApiHandler(
                api_key=FetchRequest.API_KEY,
                min_version=MIN_VERSION,
                max_version=MAX_VERSION,
                handle=self.handle,
                encode=self.encode,
                error_response=lambda _request, error: FetchResponse(error_code=int(error.code)),
            ),
            ApiHandler(
                api_key=ReadTieredStateRequest.API_KEY,
                min_version=0,
                max_version=0,
                handle=self.tell_state,
                advertise=False,
            ),
        ]
        self.server = await serve("127.0.0.1", 0, Dispatcher(handlers))
        return self

    def handle(self, context: RequestContext, request: FetchRequest) -> Any:
        offsets = [part.fetch_offset for topic in request.topics for part in topic.partitions]
        if not self.answers and any(offset < START.offset for offset in offsets):
            self.asked.append(request)
            return MOVED
        return super().handle(context, request)

    def tell_state(
        self, _context: RequestContext, request: ReadTieredStateRequest
    ) -> ReadTieredStateResponse:
        self.state_requests.append(request)
        answer = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(answer, KafkaError):
            raise answer
        assert isinstance(answer, ReadTieredStateResponse)
        return answer


@dataclass
class Bucket:
    """The ``RemoteStart`` of a broker; without answers it keeps a search waiting."""

    answers: list[TieredStart | SparklogError] = field(default_factory=list)
    asked: list[tuple[Partition, int, int]] = field(default_factory=list)
    cancelled: int = 0

    async def find_start(self, partition: Partition, *starts: int) -> TieredStart:
        log_start, local_log_start = starts
        self.asked.append((partition, log_start, local_log_start))
        if not self.answers:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        answer = self.answers.pop(0)
        if isinstance(answer, SparklogError):
            raise answer
        return answer


def run(
    test: Callable[[TieredLeader, Follower, Bucket], Awaitable[None]],
    *answers: Any,
    bucket: tuple[TieredStart | SparklogError, ...] = (START,),
    states: tuple[Any, ...] = (STATE,),
    **settings: str,
) -> None:
    async def within() -> None:
        leader = await TieredLeader(list(answers), states=list(states)).start()
        found = Bucket(list(bucket))
        follower = Follower.open(**settings)
        follower.replication = Replication(
            follower.replica_manager,
            connect=follower.connect,
            broker_epoch=lambda: 7,
            alter_partitions=follower.no_controller,
            remote_start=found.find_start,
        )
        await follower.follow(leader)
        await test(leader, follower, found)
        await follower.replication.close()
        await follower.replica_manager.close()
        await leader.server.close(0)

    asyncio.run(asyncio.wait_for(within(), 20))


def starts(partition: Partition) -> tuple[int, int, int]:
    log = partition.log
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def positions(leader: ScriptedLeader) -> list[tuple[int, int]]:
    """Offset and last epoch of the partition in each fetch that names it."""
    return [
        (part.fetch_offset, part.last_fetched_epoch)
        for request in leader.asked
        for topic in request.topics
        for part in topic.partitions
    ]


async def some_round_trips(follower: Follower) -> None:
    """As long as several fetches take."""
    for _ in range(5):
        found = await follower.replication.tiered_states.ask(LEADER, [follower.partition])
        assert found == {follower.partition: TieredState(20, 500, 700)}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_follower_asks_where_to_start_and_goes_on_from_there(long_pause: dict[str, str]) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: (501, 0) in positions(leader))
        partition = follower.partition
        assert starts(partition) == (20, 500, 501)
        assert bucket.asked == [(partition, 20, 500)]
        assert leader.state_requests == [
            ReadTieredStateRequest(topic_id=TOPIC_ID, partition=0, current_leader_epoch=0)
        ]
        assert positions(leader) == [(0, -1), (500, 0), (501, 0)]
        assert partition.log.leader_epochs.entries == (EpochEntry(0, 20),)
        counters = follower.replica_manager.counters
        assert (counters.truncations, counters.offsets_truncated) == (1, 0)

    batches = first(batch(b"a", base_offset=500))
    run(test, MOVED, answer(batches), **long_pause)


def test_while_the_bucket_is_asked_the_leader_is_not(long_pause: dict[str, str]) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: bucket.asked)
        await some_round_trips(follower)
        assert positions(leader) == [(0, -1)]
        assert starts(follower.partition) == (0, 0, 0)

    run(test, bucket=(), **long_pause)


def test_another_search_does_not_begin_while_one_runs() -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: not leader.answers)
        assert len(bucket.asked) == 1

    run(test, *[MOVED] * 5, bucket=())


def refused_snapshot() -> TieredStart:
    damaged = bytearray(ProducerStateManager(TP).to_snapshot())
    damaged[2] ^= 1
    return START._replace(producer_snapshot=bytes(damaged))


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (TROUBLE, "the bucket is away"),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no such segment"), "no such segment"),
        (DecodeError("damaged epochs"), "damaged epochs"),
        (refused_snapshot(), "snapshot"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_fails_is_tried_again_and_told_once(
    failure: TieredStart | SparklogError, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: starts(follower.partition) == (20, 500, 500))
        assert len(bucket.asked) == 4
        (warning,) = warnings(caplog)
        assert warning.startswith(
            "the earlier records of t-0 are in the bucket only, and its replica here cannot start "
            "there; it tries again: "
        )
        assert message in warning
        told = [r.levelno for r in caplog.records if "it tries again" in r.message]
        assert told == [logging.WARNING, logging.DEBUG, logging.DEBUG]

    run(test, bucket=(failure,) * 3 + (START,))


def test_after_a_failure_there_is_a_pause(long_pause: dict[str, str]) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: not bucket.answers)
        await some_round_trips(follower)
        assert positions(leader) == [(0, -1)]
        assert len(bucket.asked) == 1

    run(test, bucket=(TROUBLE,), **long_pause)


def test_a_leader_that_does_not_tell_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: starts(follower.partition) == (20, 500, 500))
        assert len(bucket.asked) == 1
        (warning,) = warnings(caplog)
        assert "it is not the leader" in warning

    refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is not the leader")
    run(test, states=(refusal, STATE))


async def become_leader(follower: Follower) -> None:
    both = (NODE, LEADER)
    own = PartitionImage(
        replicas=both, isr=both, last_known=both, leader=NODE, leader_epoch=1, partition_epoch=1
    )
    image = follower.replica_manager.image
    image.replay(PartitionChanged(topic="t", partition=0, state=own))
    image.version += 1
    await follower.replica_manager.apply(image, lead=True)


def test_a_replica_that_leads_meanwhile_waits_for_no_search(
    caplog: pytest.LogCaptureFixture, long_pause: dict[str, str]
) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: bucket.asked)
        await become_leader(follower)
        assert follower.partition.is_leader
        await until(lambda: bucket.cancelled)
        assert starts(follower.partition) == (0, 0, 0)
        assert follower.replication.as_json()["leaders_followed"] == 0
        assert warnings(caplog) == []

    run(test, bucket=(), **long_pause)


def test_a_stop_waits_for_no_search(long_pause: dict[str, str]) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        await until(lambda: bucket.asked)
        await follower.replication.close()
        assert bucket.cancelled == 1

    run(test, bucket=(), **long_pause)


def test_a_start_for_an_earlier_leader_epoch_is_dropped(long_pause: dict[str, str]) -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        partition = follower.partition

        async def changing(_: Partition, *starts: int) -> TieredStart:
            state = partition.state
            assert state is not None
            partition.make_leader_or_follower(
                PartitionImage(
                    replicas=state.replicas,
                    isr=state.isr,
                    last_known=state.last_known,
                    leader=LEADER,
                    leader_epoch=1,
                    partition_epoch=1,
                ),
                0,
            )
            changed.set()
            return START

        changed = asyncio.Event()
        object.__setattr__(follower.replication._fetchers._tools, "remote_start", changing)
        await changed.wait()
        await until(lambda: not follower.replication._fetchers._start_searches._tasks)
        assert starts(partition) == (0, 0, 0)
        assert follower.replica_manager.counters.truncations == 0

    run(test, **long_pause)


def test_without_a_remote_dir_the_error_says_so() -> None:
    async def test(leader: TieredLeader, follower: Follower, bucket: Bucket) -> None:
        with pytest.raises(KafkaError) as refused:
            await no_remote_start(follower.partition, 20, 500)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.value.message == (
            "the beginning of t-0 is in a remote_dir, and this cluster was started without one; "
            "start it with its remote_dir"
        )

    run(test, IDLE)
