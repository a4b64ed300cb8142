"""One member of a consumer group, in a process of its own, so that it can be killed.

Owns: how an application consumes: subscribe, process, commit afterwards.  Must not know what is
done to the cluster, nor what becomes of its reports.

The process gets its ``MemberPlan`` from the process that started it and reports every step.  It
goes on when the report was answered, so that the reports of all members come in one true order.
The answer False asks it to leave the group.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from sparklog.process import die_with_parent
from tests.simulation.events import LogId, PartitionsAssigned, Processed

LIBRDKAFKA, SPARKLOG, CHAIN = "librdkafka", "sparklog", "chain"
EAGER, COOPERATIVE = ("range", "roundrobin"), ("cooperative-sticky",)
#: A commit that took longer was perhaps sent twice: a broker may take the first attempt later.
REQUEST_TIMEOUT_MS: Final = 3_000
SESSION_TIMEOUT_MS: Final = 6_000
MAX_POLL_INTERVAL_MS: Final = 10_000
AUTO_COMMIT_MS: Final = 700
POLL_S: Final = 0.3
_RECORDS_AT_ONCE: Final = 300
_CGMD: Final = b"CGMDv2:"
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What a member is told once.  ``logs`` are all partitions of the topics of its group.

    ``commits_itself``: the member commits after each batch; otherwise the client commits stored
    offsets at times of its own.
    """

    bootstrap: str
    group: str
    name: str
    client: str
    assignors: tuple[str, ...]
    commits_itself: bool
    instance_id: str | None = None
    logs: tuple[LogId, ...] = ()
    #: Settings of librdkafka that all clients of the run share.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({log.topic for log in self.logs})

    def log(self, topic: str, partition: int) -> LogId:
        return next(log for log in self.logs if (log.topic, log.partition) == (topic, partition))


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The member has polled once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBegun:
    """The member is about to commit these offsets."""

    generation: int
    offsets: tuple[tuple[LogId, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTaken:
    """The last commit was acknowledged, ``took_ms`` milliseconds after it began."""

    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The group has another member with the same instance id; the process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsNotFetched:
    """The client was assigned partitions and has not read where to begin; the process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainAborted:
    """The member of a chain has to abort its transaction, and consumes the records again.

    ``timed_out``: the transaction was older than the producer's transaction timeout.
    """

    code: int
    text: str
    timed_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The member's transactional producer cannot go on; the process ends.

    ``timed_out``: its transaction was older than the producer's transaction timeout.
    """

    text: str
    timed_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Complained:
    """The client gave an error that no application should get."""

    text: str


Report: TypeAlias = (
    Polled
    | Processed
    | PartitionsAssigned
    | CommitBegun
    | CommitTaken
    | ChainAborted
    | Fenced
    | OffsetsNotFetched
    | Refused
    | Complained
)
#: Makes a report and returns whether the member is to go on.
Tell: TypeAlias = Callable[[Report], bool]
Taken: TypeAlias = Iterable[tuple[str, int, int, bytes | None]]


def processed(plan: MemberPlan, records: Taken) -> list[Processed]:
    """Records (topic, partition, offset, value), by partition."""
    found: dict[LogId, list[tuple[int, bytes | None]]] = {}
    for topic, partition, offset, value in records:
        found.setdefault(plan.log(topic, partition), []).append((offset, value))
    return [
        Processed(group=plan.group, log=log, records=tuple(some)) for log, some in found.items()
    ]


def ends_of(batches: Iterable[Processed]) -> tuple[tuple[LogId, int], ...]:
    """The offsets to commit for what was processed."""
    return tuple((batch.log, batch.records[-1][0] + 1) for batch in batches)


def generation_in(metadata: bytes) -> int:
    """The generation in librdkafka's serialized metadata of a group's member."""
    if not metadata.startswith(_CGMD):
        return NO_GENERATION
    return int.from_bytes(metadata[len(_CGMD) :][:4], sys.byteorder, signed=True)


# librdkafka

#: What a client keeps saying while brokers are away, or while it was stopped for too long itself.
PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)
#: Why a commit may be refused: the group rebalances, or has done so without this member, or its
#: coordinator moves for longer than librdkafka tries again.
NOT_TAKEN: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)
#: The coordinator has moved between SyncGroup and OffsetFetch.  librdkafka does not ask again: the
#: application gets the error, and its partitions are not read before the next rebalance
#: (``rd_kafka_assignment_handle_OffsetFetch``).
NOT_FETCHED: Final = frozenset({KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR})
FENCED: Final = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL})


class LibrdkafkaMember:
    """An application with librdkafka's ``subscribe``."""

    records_at_once = _RECORDS_AT_ONCE

    def __init__(self, plan: MemberPlan, tell: Tell) -> None:
        self._plan, self._tell = plan, tell
        self._owned: set[tuple[str, int]] = set()
        settings = {
            **plan.settings,
            "bootstrap.servers": plan.bootstrap,
            "client.id": plan.name,
            "log_level": 0,
            "error_cb": self._error,
            "group.id": plan.group,
            "partition.assignment.strategy": ",".join(plan.assignors),
            "enable.auto.commit": not plan.commits_itself,
            "auto.commit.interval.ms": AUTO_COMMIT_MS,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 6,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "check.crcs": True,
        }
        if plan.instance_id is not None:
            settings["group.instance.id"] = plan.instance_id
        self._consumer = Consumer(settings)

    def live(self) -> None:
        self._consumer.subscribe(
            self._plan.topics,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        while self._tell(Polled()):
            messages = self._consumer.consume(self.records_at_once, timeout=POLL_S)
            batches = processed(self._plan, self._records(messages))
            for batch in batches:
                self._tell(batch)
            if batches:
                self._commit(batches)
        self._consumer.close()

    def _records(self, messages: Iterable[Message]) -> Taken:
        """Without those of partitions that went to other members meanwhile."""
        for message in messages:
            error, topic, partition = message.error(), message.topic(), message.partition()
            if error is not None:
                where = f"{topic}-{partition} at {message.offset()}: "
                self._error(error, where if topic is not None else "")
            elif topic is not None and partition is not None and (topic, partition) in self._owned:
                offset = message.offset()
                assert offset is not None
                yield topic, partition, offset, message.value()

    def _error(self, error: KafkaError, where: str = "") -> None:
        if error.code() in FENCED or error.code() in NOT_FETCHED:
            self._tell(Fenced() if error.code() in FENCED else OffsetsNotFetched())
            os._exit(1)  # as an application that its supervisor starts again
        if error.code() not in PASSING:
            self._tell(Complained(text=f"{where}{error}"))

    def _commit(self, batches: list[Processed]) -> None:
        ends = ends_of(batches)
        places = [Place(log.topic, log.partition, offset) for log, offset in ends]
        if not self._plan.commits_itself:
            with suppress(KafkaException):  # a partition that went to another member
                self._consumer.store_offsets(offsets=places)
            return
        self._tell(CommitBegun(generation=self._generation, offsets=ends))
        began = time.monotonic()
        try:
            results = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            self._refused(failure.args[0])
            return
        errors = [place.error for place in results or () if place.error is not None]
        for error in errors:
            self._refused(error)
        if not errors:
            self._tell(CommitTaken(took_ms=int((time.monotonic() - began) * 1000)))

    def _refused(self, error: KafkaError) -> None:
        if error.code() not in NOT_TAKEN:
            self._error(error, "a commit was not taken: ")

    # rebalances

    def _assigned(self, _: Consumer, places: list[Place]) -> None:
        added = {(place.topic, place.partition) for place in places}
        kept = self._owned if self._plan.assignors == COOPERATIVE else set()
        self._owned = kept | added
        if self._generation != NO_GENERATION:
            self._tell(
                PartitionsAssigned(
                    group=self._plan.group,
                    # A member that takes over an instance id has the generation of the last one.
                    member_id=self._plan.instance_id or str(self._consumer.memberid()),
                    generation=self._generation,
                    logs=tuple(self._plan.log(*key) for key in sorted(self._owned)),
                )
            )

    def _revoked(self, _: Consumer, places: list[Place]) -> None:
        self._owned -= {(place.topic, place.partition) for place in places}

    @property
    def _generation(self) -> int:
        return generation_in(self._consumer.consumer_group_metadata() or b"")


# our own


class SparklogMember:
    """An application with ``sparklog.Consumer``, which commits after processing."""

    def __init__(self, plan: MemberPlan, tell: Tell) -> None:
        from sparklog import Consumer as SparklogConsumer

        self._plan, self._tell = plan, tell
        self._consumer = SparklogConsumer(
            plan.bootstrap,
            client_id=plan.name,
            group_id=plan.group,
            group_instance_id=plan.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=plan.assignors,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 6,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            metadata_max_age_ms=1_000,
        )

    def live(self) -> None:
        from sparklog.client.groups import RebalanceListener

        member = self

        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions: frozenset[Any]) -> None:
                member._assigned(partitions)

        self._consumer.subscribe(self._plan.topics, listener=Listener())
        while self._tell(Polled()):
            records = self._consumer.poll(POLL_S, _RECORDS_AT_ONCE)
            batches = processed(
                self._plan, ((r.topic, r.partition, r.offset, r.value) for r in records)
            )
            for batch in batches:
                self._tell(batch)
            if batches:
                self._commit(batches)
        self._consumer.close()

    def _commit(self, batches: list[Processed]) -> None:
        from sparklog.errors import KafkaError as RefusedError
        from sparklog.types import TopicPartition

        ends = ends_of(batches)
        self._tell(CommitBegun(generation=self._identity.generation, offsets=ends))
        began = time.monotonic()
        try:
            self._consumer.commit({TopicPartition(log.topic, log.partition): n for log, n in ends})
        except RefusedError as error:
            if int(error.code) not in NOT_TAKEN:
                raise
            return
        self._tell(CommitTaken(took_ms=int((time.monotonic() - began) * 1000)))

    def _assigned(self, added: frozenset[Any]) -> None:
        identity = self._identity
        if identity.generation != NO_GENERATION:
            owned = sorted(self._consumer.assignment | added)
            self._tell(
                PartitionsAssigned(
                    group=self._plan.group,
                    member_id=identity.member_id,
                    generation=identity.generation,
                    logs=tuple(self._plan.log(tp.topic, tp.partition) for tp in owned),
                )
            )

    @property
    def _identity(self) -> Any:
        member = self._consumer._core._member
        assert member is not None
        return member.identity


def _application(plan: MemberPlan, tell: Tell) -> LibrdkafkaMember | SparklogMember:
    if plan.client == CHAIN:
        from tests.chaos.chain_member import ChainMember

        return ChainMember(plan, tell)
    return (SparklogMember if plan.client == SPARKLOG else LibrdkafkaMember)(plan, tell)


def main() -> None:
    """The process; its argument is the descriptor of a ``Connection``."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run stops its members itself
    connection = Connection(int(sys.argv[1]))

    def tell(report: Report) -> bool:
        connection.send(report)
        answer = connection.recv()
        assert isinstance(answer, bool)
        return answer

    plan = connection.recv()
    assert isinstance(plan, MemberPlan)
    try:
        _application(plan, tell).live()
    except EOFError:
        pass  # the run has ended
    except Exception as error:
        tell(Complained(text=f"ended: {error!r}"))
