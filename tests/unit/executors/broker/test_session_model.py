"""A client with a session sees what one without sees, whatever happens meanwhile.

The real handler over real partitions.  Every answer of the session is held against a fetch without
session of the same partitions at the same moment: what is told must be the same, and what is not
told must be what the client knows already.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.executors.handlers import fetch
from sparklog.executors.log_dirs.broker_dir import BrokerDir
from sparklog.executors.log_dirs.log_dirs import LogDirs
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.metrics import BrokerMetrics
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.metadata import ClusterImage, PartitionImage
from sparklog.metadata.records import TopicCreated
from sparklog.service.handler import RequestContext
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import values_of

NODE, FOLLOWER = 1, 2
NOW = 1_700_000_000_000
COUNT = 4
#: The last one does not exist.
NUMBERS = range(COUNT + 1)
TOPIC_ID = UUID(int=9)
BIG = 1 << 20
WAIT_MS = 60_000

Mark = tuple[int, int, int]
#: Error, high watermark and log start, and the values.
Told = tuple[Mark, list[bytes | None]]


class Peer:
    """What a handler needs of a connection."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.member = True
        self.closing: list[Callable[[], None]] = []

    def call_on_close(self, callback: Callable[[], None]) -> None:
        self.closing.append(callback)

    def call_on_eof(self, callback: Callable[[], None]) -> None:
        del callback

    def close(self) -> None:
        for callback in self.closing:
            callback()


def led(epoch: int) -> PartitionImage:
    """Led here, with a follower in sync: what is appended and what can be read differ."""
    both = (NODE, FOLLOWER)
    return PartitionImage(
        replicas=both, isr=both, last_known=both, leader=NODE, leader_epoch=epoch,
        partition_epoch=epoch,
    )  # fmt: skip


async def open_table() -> ReplicaManager:
    """Leads ``COUNT`` empty partitions of one topic."""
    log_dir = BrokerDir.take(
        MemoryBackend(), "broker-1", cluster_id="c", node_id=NODE, new=True, new_id=UUID(int=1)
    )
    ids = itertools.count(1)
    replica_manager = ReplicaManager(
        node_id=NODE,
        log_dirs=LogDirs([log_dir]),
        settings={"max.incremental.fetch.session.cache.slots": "2"},
        counters=BrokerMetrics(),
        now_ms=lambda: NOW,
        monotonic_ms=lambda: NOW,
        random_bytes=lambda size: next(ids).to_bytes(size),
    )
    image = ClusterImage()
    states = tuple(led(0) for _ in range(COUNT))
    image.replay(TopicCreated(topic="t", topic_id=TOPIC_ID, partitions=states))
    await replica_manager.apply(image, lead=True)
    return replica_manager


@dataclass
class Client:
    """A client as KIP-227 wants it; ``by_id`` decides about the version that it speaks."""

    handle: Callable[[RequestContext, FetchRequest], Any]
    by_id: bool
    isolation_level: int = 0
    session_id: int = 0
    epoch: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    known: dict[int, Mark] = field(default_factory=dict)
    #: What the session knows of this client's wishes.
    sent: dict[int, int] = field(default_factory=dict)
    peer: Peer = field(default_factory=Peer)
    waiting: "asyncio.Future[FetchResponse] | None" = None
    read: dict[int, list[bytes | None]] = field(default_factory=dict)

    def names(self) -> dict[str, Any]:
        return {"topic_id": TOPIC_ID} if self.by_id else {"topic": "t"}

    def request(self, offsets: dict[int, int], **more: Any) -> FetchRequest:
        parts = tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=BIG)
            for number, offset in offsets.items()
        )
        return FetchRequest(
            topics=(FetchTopic(**self.names(), partitions=parts),) if parts else (),
            isolation_level=self.isolation_level,
            **{"max_bytes": BIG, "min_bytes": 1, **more},
        )

    def ask(self, request: FetchRequest) -> Any:
        header = RequestHeader(
            api_key=1, api_version=13 if self.by_id else 12, correlation_id=1, client_id="t"
        )
        context = RequestContext(header=header, connection=self.peer)  # type: ignore[arg-type]
        return self.handle(context, request)

    def look(self) -> dict[int, Told]:
        """What a fetch without session finds now."""
        response = self.ask(self.request(self.offsets))
        assert (response.error_code, response.session_id) == (0, 0)
        return told_in(response)

    def poll(self, *, max_bytes: int = BIG, min_bytes: int = 1, wait_ms: int = 0) -> Any:
        """A request of the session, or for one; the response or a future of it."""
        changed = dict(self.offsets)
        forget: tuple[int, ...] = ()
        if self.epoch:
            changed = {n: o for n, o in self.offsets.items() if self.sent.get(n) != o}
            forget = tuple(n for n in self.sent if n not in self.offsets)
        self.sent = dict(self.offsets)
        request = replace(
            self.request(changed, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_ms=wait_ms),
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=(
                (ForgottenTopic(**self.names(), partitions=forget),) if forget else ()
            ),
        )
        return self.ask(request)

    def start_anew(self) -> None:
        """The session is lost; its id goes into the next request, which ends it."""
        self.epoch = 0
        self.known.clear()


def told_in(response: FetchResponse) -> dict[int, Told]:
    found: dict[int, Told] = {}
    for topic in response.responses:
        for data in topic.partitions:
            assert data.partition_index not in found
            records = data.records
            raw = records if records is None or isinstance(records, bytes) else records.read()  # type: ignore[union-attr]
            mark = data.error_code, data.high_watermark, data.log_start_offset
            found[data.partition_index] = mark, values_of(raw)
    return found


class Story:
    """One history: steps change the broker or are a client's; every answer is checked."""

    def __init__(self, replica_manager: ReplicaManager, client: Client) -> None:
        self.replica_manager = replica_manager
        self.client = client
        self.made = itertools.count()
        self.written: dict[int, list[bytes | None]] = {number: [] for number in NUMBERS}
        self.min_bytes = 1

    def partition(self, number: int) -> Partition | None:
        return self.replica_manager.get(TopicPartition("t", number))

    # the broker's steps

    def append(self, number: int, count: int) -> None:
        partition = self.partition(number)
        if partition is None or not partition.is_leader:
            return
        for _ in range(1 + count % 3):
            value = b"%d" % next(self.made)
            self.written[number].append(value)
            appended = partition.append_as_leader(batch(value), acks=1, now_ms=NOW)
            self.replica_manager.carry_out(appended.effects)

    def replicate(self, number: int, back: int) -> None:
        partition = self.partition(number)
        if partition is not None and partition.is_leader:
            end = max(partition.log.log_end_offset - back % 3, partition.high_watermark)
            self.replica_manager.carry_out(partition.update_follower_fetch_state(FOLLOWER, end))

    def publish(self, number: int, count: int) -> None:
        self.append(number, count)
        self.replicate(number, 0)

    def delete(self, number: int, back: int) -> None:
        partition = self.partition(number)
        if partition is not None and partition.is_leader:
            target = max(partition.high_watermark - back % 3, 0)
            self.replica_manager.carry_out(partition.delete_records(target))

    def drop_role(self, number: int, _: int) -> None:
        partition = self.partition(number)
        if partition is not None:
            self.replica_manager.carry_out(partition.drop_role())

    def lead(self, number: int, _: int) -> None:
        partition = self.partition(number)
        if partition is not None and not partition.is_leader:
            epoch = partition.log.leader_epochs.latest_epoch + 1
            self.replica_manager.carry_out(partition.make_leader_or_follower(led(max(epoch, 1)), 0))

    def evict(self, number: int, _: int) -> None:
        del number
        session = self.replica_manager.delayed_operations.sessions.get(self.client.session_id)
        if session is not None:
            self.replica_manager.delayed_operations.sessions.close(session)

    # the client's steps

    def subscribe(self, number: int, offset: int) -> None:
        if self.client.waiting is None:
            self.client.offsets[number] = offset % 4
            self.client.read[number] = []

    def forget(self, number: int, _: int) -> None:
        if self.client.waiting is None:
            self.client.offsets.pop(number, None)
            self.client.known.pop(number, None)

    def isolate(self, number: int, _: int) -> None:
        if self.client.waiting is None:
            self.client.isolation_level = number % 2

    def reconnect(self, _: int, lose: int) -> None:
        """The connection breaks; with ``lose`` an answer is on its way."""
        client = self.client
        if lose % 2 and client.waiting is None:
            client.poll()
        client.peer.close()
        client.peer = Peer()
        if client.waiting is not None:
            assert client.waiting.cancelled()
            client.waiting = None
        client.start_anew()

    def poll(self, number: int, size: int) -> None:
        """At once; every other time with room for one batch only."""
        del number
        if self.client.waiting is None:
            expected = self.client.look()
            small = bool(size % 2)
            self.take(self.client.poll(max_bytes=1 if small else BIG), expected, small=small)

    def wait(self, number: int, size: int) -> None:
        del number
        client = self.client
        if client.waiting is not None or not client.offsets:
            return
        self.min_bytes = 1 + 60 * (size % 4)
        expected = client.look()
        answer = client.poll(min_bytes=self.min_bytes, wait_ms=WAIT_MS)
        if isinstance(answer, FetchResponse):
            self.take(answer, expected, small=False)
        else:
            client.waiting = answer
            self.check_waiting()

    def give_up(self, number: int, _: int) -> None:
        """The time of a fetch that waits is up."""
        del number
        client = self.client
        if client.waiting is not None:
            for parked in list(client.peer.state["delayed operations"]._watched):
                self.replica_manager.delayed_operations.consumer_fetches.expire(parked)
            self.check_waiting()

    # checks

    def check_waiting(self) -> None:
        """What waits has too little; what has enough was answered in the same moment."""
        client = self.client
        waiting = client.waiting
        if waiting is None:
            return
        expected = client.look()
        if waiting.done():
            client.waiting = None
            self.take(waiting.result(), expected, small=False)
            return
        size = sum(len(batch(value or b"")) for _, values in expected.values() for value in values)
        assert size < self.min_bytes
        assert not any(mark[0] for mark, _ in expected.values())

    def take(self, response: FetchResponse, expected: dict[int, Told], *, small: bool) -> None:
        client = self.client
        if response.error_code:
            assert response == FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            client.start_anew()
            client.session_id = 0
            return
        full = client.epoch == 0
        client.session_id = response.session_id
        client.epoch = client.epoch + 1 if response.session_id else 0
        told = told_in(response)
        assert set(told) <= set(expected)
        if full:
            assert set(told) == set(expected)
        for number, (mark, values) in expected.items():
            if number in told:
                assert told[number][0] == mark
                assert told[number][1] == (values[: len(told[number][1])] if small else values)
            else:
                assert client.known[number] == mark
                assert small or not values
        if small and any(values for _, values in expected.values()):
            assert sum(bool(values) for _, values in told.values()) == 1
        for number, (mark, values) in told.items():
            self.learn(number, mark, values)
        if not response.session_id:
            client.start_anew()

    def learn(self, number: int, mark: Mark, values: list[bytes | None]) -> None:
        client = self.client
        client.known[number] = mark
        start = client.offsets[number]
        assert values == self.written[number][start : start + len(values)]
        client.offsets[number] = start + len(values)
        partition = self.partition(number)
        if mark[0] == ErrorCode.OFFSET_OUT_OF_RANGE and partition is not None:
            client.offsets[number] = partition.log.log_start_offset

    def check(self) -> None:
        self.check_waiting()
        self.replica_manager.delayed_operations.sessions.check_invariants()
        self.replica_manager.delayed_operations.consumer_fetches.check_invariants()

    def drain(self) -> None:
        """In the end everything that can be read is, by answers with room for one batch."""
        client = self.client
        self.give_up(0, 0)
        for number in range(COUNT):
            self.lead(number, 0)
            self.replicate(number, 0)
        wanted = 2 + sum(len(values) for values in self.written.values())
        for _ in range(2 * wanted + len(client.offsets)):
            self.poll(0, 1)
        for number, offset in client.offsets.items():
            partition = self.partition(number)
            if partition is not None:
                assert offset == partition.high_watermark == len(self.written[number])


_broker_steps = ("append", "replicate", "delete", "drop_role", "lead", "evict", *["publish"] * 8)
_client_steps = ("subscribe", "forget", "isolate", "reconnect", "give_up", "poll", *["wait"] * 4)
_steps = st.lists(
    st.tuples(
        st.sampled_from((*_broker_steps, *_client_steps)),
        st.sampled_from(NUMBERS),
        st.integers(0, 11),
    ),
    min_size=10,
    max_size=50,
)


@given(by_id=st.booleans(), subscribed=st.sets(st.sampled_from(NUMBERS), min_size=2), steps=_steps)
def test_a_session_changes_nothing_of_what_a_client_sees(
    by_id: bool, subscribed: set[int], steps: list[tuple[str, int, int]]
) -> None:
    async def tell() -> None:
        replica_manager = await open_table()
        client = Client(fetch.handler(replica_manager).handle, by_id)
        story = Story(replica_manager, client)
        for number in sorted(subscribed):
            story.subscribe(number, 0)
        for name, number, value in steps:
            getattr(story, name)(number, value)
            story.check()
        story.drain()
        await replica_manager.close()

    asyncio.run(tell())
