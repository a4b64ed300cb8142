"""A member that consumes, transforms and produces in transactions of librdkafka.

Owns: how an application uses transactions: begin, produce, send offsets, commit; abort and go back
after a failure; end after a fatal error.  Must not know what becomes of the output.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from tests.chaos.group_member import (
    PASSING,
    REQUEST_TIMEOUT_MS,
    ChainAborted,
    CommitBegun,
    CommitTaken,
    Complained,
    LibrdkafkaMember,
    MemberPlan,
    Processed,
    Refused,
    Tell,
    ends_of,
)
from tests.simulation.events import LogId

OUTPUT: Final = "chained"
OUTPUT_PARTITIONS: Final = 3
#: Shorter than some pauses of members: then the coordinator aborts and fences.
TRANSACTION_TIMEOUT_MS: Final = 6_000
#: One call of librdkafka; a call that was not done is repeated.
CALL_S: Final = 10.0
#: A transaction that takes longer is a finding.
TRANSACTION_S_MAX: Final = 120.0
#: ``send_offsets_to_transaction`` can hang for ever when the broker that coordinates the group has
#: left the metadata, and does not mind its timeout (librdkafka's issues 5511 and 5456).  So many
#: seconds after its timeout the process ends, with this exit code, and another takes its place.
HUNG_S: Final = 15.0
HUNG: Final = 75
#: What ends the producer: another instance has its transactional id, or its transaction timed out.
REPLACED: Final = frozenset({KafkaError._FENCED, KafkaError._FATAL})
Call: TypeAlias = Callable[[float], object]


def output_of(log: LogId, offset: int) -> bytes:
    """The output of an input record."""
    return f"{log.topic}/{log.partition}/{offset}".encode()


class MustAbort(Exception):
    """The transaction can only be aborted; the argument is the client's error."""


class ChainMember(LibrdkafkaMember):
    """Each batch of records, its outputs and its offsets are one transaction."""

    records_at_once = 1_000

    def __init__(self, plan: MemberPlan, tell: Tell) -> None:
        super().__init__(plan, tell)
        #: When the last transaction was begun, on the clock ``time.monotonic``.
        self._begun = time.monotonic()
        self._producer = Producer(
            {
                **plan.settings,
                "bootstrap.servers": plan.bootstrap,
                "client.id": plan.name,
                "log_level": 0,
                "error_cb": self._producer_error,
                # The same in every life of the member: a new one aborts what the last one left.
                "transactional.id": plan.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "linger.ms": 2,
            }
        )

    def live(self) -> None:
        self._until_done(self._producer.init_transactions, "init_transactions")
        super().live()

    def _commit(self, batches: list[Processed]) -> None:
        """One transaction; after an abort the records are consumed again."""
        try:
            self._transact(batches)
        except MustAbort as failure:
            error: KafkaError = failure.args[0]
            self._tell(ChainAborted(code=error.code(), text=str(error), timed_out=self._timed_out))
            self._until_done(self._producer.abort_transaction, "abort_transaction")
            for batch in batches:
                place = Place(batch.log.topic, batch.log.partition, batch.records[0][0])
                with suppress(KafkaException):  # a partition that went to another member
                    self._consumer.seek(place)

    def _transact(self, batches: list[Processed]) -> None:
        ends = ends_of(batches)
        self._begun = time.monotonic()
        self._producer.begin_transaction()
        for batch in batches:
            for offset, _ in batch.records:
                self._produce(output_of(batch.log, offset), offset % OUTPUT_PARTITIONS)
        places = [Place(log.topic, log.partition, offset) for log, offset in ends]
        group = self._consumer.consumer_group_metadata()

        def send_offsets(timeout_s: float) -> object:
            watch = threading.Timer(timeout_s + HUNG_S, os._exit, (HUNG,))
            watch.start()
            try:
                return self._producer.send_offsets_to_transaction(places, group, timeout_s)
            finally:
                watch.cancel()

        self._tell(CommitBegun(generation=self._generation, offsets=ends))
        self._until_done(send_offsets, "send_offsets_to_transaction")
        self._until_done(self._producer.commit_transaction, "commit_transaction")
        # What a transaction commits is never sent twice, however long that took.
        self._tell(CommitTaken(took_ms=0))

    def _produce(self, value: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(OUTPUT, value, partition=partition)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as failure:
                self._failed(failure.args[0], "produce")

    def _until_done(self, call: Call, name: str) -> None:
        """Repeat a call until it has an outcome.  Raises MustAbort."""
        end = time.monotonic() + TRANSACTION_S_MAX
        while True:
            try:
                call(CALL_S)
                return
            except KafkaException as failure:
                self._failed(failure.args[0], name)
            if time.monotonic() > end:
                self._tell(Complained(text=f"{name} has no outcome in {TRANSACTION_S_MAX} s"))
                self._end()

    def _failed(self, error: KafkaError, name: str) -> None:
        """Return if the call is to be repeated.  Raises MustAbort."""
        if error.fatal() or error.code() in REPLACED:
            self._producer_error(error)
        if error.txn_requires_abort():
            raise MustAbort(error)
        if not error.retriable():
            self._tell(Complained(text=f"{name}: {error}"))
            self._end()

    def _producer_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in REPLACED:
            self._tell(Refused(text=str(error), timed_out=self._timed_out))
            self._end()
        if error.code() not in PASSING:
            self._tell(Complained(text=f"the producer: {error}"))

    @property
    def _timed_out(self) -> bool:
        return time.monotonic() - self._begun > TRANSACTION_TIMEOUT_MS / 1000

    def _end(self) -> None:
        os._exit(1)  # as an application that its supervisor starts again
