"""Members of consumer groups, of the clients that we did not write, behind one face.

Owns: how each client subscribes, polls, commits and leaves.  Must not know what a test expects.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka import Consumer

from tests.clients.peer_kafka_python import KafkaConsumer, RebalanceInProgressError
from tests.clients.rows import Place

SESSION_MS = 10_000
_POLL_S = 0.05


class RejoiningError(Exception):
    """The member is joining again: its positions are lost, and it reads from the committed ones."""


class Member(ABC):
    """One consumer that has subscribed to a topic; ``poll`` must be called again and again.

    ``assigned`` is what it owns, ``revocations`` counts how often it was told to give partitions
    up, ``seen`` is every record that it got, in order.
    """

    def __init__(self) -> None:
        self.seen: list[Place] = []
        self.revocations = 0

    @abstractmethod
    def poll(self) -> None:
        """Take what has come, and let the client do its part of the protocol."""

    @property
    @abstractmethod
    def assigned(self) -> set[int]:
        """The partitions that this member owns now."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the positions, and wait for the answer.  May raise RejoiningError."""

    @abstractmethod
    def close(self) -> None:
        """Leave; a static member stays in the group until its session ends."""


class ConfluentMember(Member):
    """librdkafka."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance: str, strategy: str):
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                **({"group.instance.id": instance} if instance else {}),
                **({"partition.assignment.strategy": strategy} if strategy else {}),
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._revoked)

    def poll(self) -> None:
        for message in self._consumer.consume(100, timeout=_POLL_S):
            assert message.error() is None, message.error()
            self.seen.append((message.partition(), message.offset()))

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self.revocations += bool(partitions)


class KafkaPythonMember(Member):
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance: str, strategy: str):
        super().__init__()
        assert not strategy, "its default is tested"
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            **({"group_instance_id": instance} if instance else {}),
        )
        # It may join before it knows the topic's partitions, against Kafka too, and assign none.
        assert self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe([topic])

    def poll(self) -> None:
        for messages in self._consumer.poll(int(_POLL_S * 1000)).values():
            self.seen += [(each.partition, each.offset) for each in messages]

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit()
        except RebalanceInProgressError as error:  # its metadata or a heartbeat came late
            raise RejoiningError from error

    def close(self) -> None:
        self._consumer.close()


class AioKafkaMember(Member):
    """aiokafka, on an event loop that runs while it is asked something."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance: str, strategy: str):
        super().__init__()
        assert not strategy, "its default is tested"
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(bootstrap, group, topic, instance))

    async def _start(self, bootstrap: str, group: str, topic: str, instance: str) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._consumer.subscribe([topic], listener=_CountRevocations(self))
        # It waits here until the group is stable, and other members must poll meanwhile.
        self._starting = asyncio.ensure_future(self._consumer.start())

    def poll(self) -> None:
        self._loop.run_until_complete(self._poll())

    async def _poll(self) -> None:
        if not self._starting.done():
            await asyncio.wait([self._starting], timeout=_POLL_S)
            return
        self._starting.result()
        found = await self._consumer.getmany(timeout_ms=int(_POLL_S * 1000))
        self.seen += [(m.partition, m.offset) for messages in found.values() for m in messages]

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        if not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self._consumer.stop()


class _CountRevocations(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revocations += bool(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


def _of_go(client: str) -> "MakeMember":
    def make(bootstrap: str, group: str, topic: str, instance: str, strategy: str) -> Member:
        from tests.clients.go_member import GoMember  # it needs ``Member``

        return GoMember(client, bootstrap, group, topic, instance, strategy)

    return make


#: Bootstrap, group, topic, instance id (or ""), strategy (or "" for the client's default).
MakeMember = Callable[[str, str, str, str, str], Member]
MEMBERS: dict[str, MakeMember] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
    "franz-go": _of_go("franz-go"),
    "sarama": _of_go("sarama"),
}
