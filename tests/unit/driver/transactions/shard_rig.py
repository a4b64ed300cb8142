"""A transaction shard with its log, its markers and its clock, all under the test's control."""

from dataclasses import dataclass, field
from itertools import count

from sparklog.driver.transactions import (
    AddPartitions,
    Completion,
    ConsistentCuts,
    Decision,
    EndTransaction,
    InitProducerId,
    Now,
    ProducerIdentity,
    Transaction,
    TransactionConfig,
    TransactionRecord,
    TransactionRequest,
    TransactionShard,
    TransactionState,
    VerifyPartitions,
    WriteMarkers,
    transaction_record,
)
from sparklog.driver.transactions.transaction import EPOCH_MAX
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TIMEOUT_MS = 60_000
V1, V2 = 1, 2


def last_epoch_record(epochs_left: int = 0) -> TransactionRecord:
    """The record of producer 7 of ``x``, which can be bumped ``epochs_left`` times."""
    return transaction_record(
        Transaction(
            transactional_id="x",
            producer_id=7,
            producer_epoch=EPOCH_MAX - epochs_left,
            timeout_ms=TIMEOUT_MS,
            state=TransactionState.EMPTY,
            update_ms=0,
            client_version=V2,
        )
    )


@dataclass
class ShardRig:
    """``appends`` and ``markers`` hold what was decided and is not carried out yet."""

    config: TransactionConfig = field(default_factory=TransactionConfig)
    cuts: ConsistentCuts = field(default_factory=ConsistentCuts)
    now_ms: int = 1_000_000
    first_producer_id: int = 100
    log: list[TransactionRecord] = field(default_factory=list)
    appends: list[tuple[str, TransactionRecord]] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)
    completions: dict[int, Completion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer_ids = count(self.first_producer_id)
        self._request_ids = count(1)
        self.load()

    @property
    def now(self) -> Now:
        return Now(monotonic_ms=self.now_ms, wall_ms=self.now_ms + 1_700_000_000_000)

    # -- the shell's part

    def load(self) -> None:
        """A new shard from the log, as after a crash: what was not carried out is lost."""
        self.cuts = ConsistentCuts()
        self.shard = TransactionShard(self.config, lambda: next(self._producer_ids), self.cuts)
        self.appends, self.markers = [], []
        for record in self.log:
            self.shard.replay(record)
        self._take(self.shard.loaded(self.now))

    def append_all(self) -> None:
        """Every decided record becomes durable, and those that this leads to."""
        while self.appends:
            self.append_next()

    def append_next(self) -> None:
        transactional_id, record = self.appends.pop(0)
        self.log.append(record)
        self._take(self.shard.appended(transactional_id, self.now))

    def refuse_next(self, error: KafkaError) -> None:
        transactional_id, _ = self.appends.pop(0)
        self._take(self.shard.append_refused(transactional_id, error, self.now))

    def write_markers(self) -> list[WriteMarkers]:
        """Every partition gets its marker."""
        written, self.markers = self.markers, []
        for each in written:
            self.report(each)
        return written

    def report(self, markers: WriteMarkers, *partitions: TopicPartition) -> None:
        self._take(
            self.shard.markers_written(
                markers.transactional_id,
                markers.producer,
                frozenset(partitions) or markers.partitions,
                self.now,
            )
        )

    def settle(self) -> None:
        """Carry out everything that was decided."""
        while self.appends or self.markers:
            self.append_all()
            self.write_markers()

    def release(self) -> None:
        """A consistent cut has ended."""
        self._take(self.shard.release_held(self.now))

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._take(self.shard.pass_time(self.now))

    def _take(self, decision: Decision) -> None:
        self.appends += [(each.transactional_id, each.record) for each in decision.appends]
        self.markers += decision.markers
        for each in decision.completions:
            assert each.request_id not in self.completions, "answered twice"
            self.completions[each.request_id] = each

    # -- requests

    def send(self, request: TransactionRequest) -> int:
        self._take(self.shard.handle(request, self.now))
        return request.request_id

    def init(
        self,
        transactional_id: str = "x",
        *,
        expected: ProducerIdentity | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> int:
        return self.send(
            InitProducerId(
                request_id=next(self._request_ids),
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                expected=expected,
            )
        )

    def add(
        self,
        producer: ProducerIdentity,
        *partitions: TopicPartition,
        version: int = V1,
        connection: int = 1,
        transactional_id: str = "x",
    ) -> int:
        return self.send(
            AddPartitions(
                request_id=next(self._request_ids),
                transactional_id=transactional_id,
                producer=producer,
                partitions=frozenset(partitions),
                connection=connection,
                client_version=version,
            )
        )

    def end(
        self,
        producer: ProducerIdentity,
        *,
        committed: bool = True,
        version: int = V1,
        connection: int = 1,
        transactional_id: str = "x",
    ) -> int:
        return self.send(
            EndTransaction(
                request_id=next(self._request_ids),
                transactional_id=transactional_id,
                producer=producer,
                committed=committed,
                connection=connection,
                client_version=version,
            )
        )

    def verify(self, producer: ProducerIdentity, *partitions: TopicPartition) -> int:
        return self.send(
            VerifyPartitions(
                request_id=next(self._request_ids),
                transactional_id="x",
                producer=producer,
                partitions=frozenset(partitions),
            )
        )

    # -- results

    def result(self, request_id: int) -> ProducerIdentity | frozenset[TopicPartition] | None:
        """The result of a request that was not refused."""
        found = self.completions[request_id].result
        assert not isinstance(found, KafkaError), found
        return found

    def refusal(self, request_id: int) -> ErrorCode:
        found = self.completions[request_id].result
        assert isinstance(found, KafkaError), found
        return ErrorCode(found.code)

    def is_waiting(self, request_id: int) -> bool:
        return request_id not in self.completions

    def transaction(self, transactional_id: str = "x") -> Transaction:
        found = self.shard.get(transactional_id)
        assert found is not None
        return found

    def started(self, transactional_id: str = "x") -> ProducerIdentity:
        """A producer that was started."""
        request_id = self.init(transactional_id)
        self.settle()
        found = self.result(request_id)
        assert isinstance(found, ProducerIdentity)
        return found

    def ongoing(self, *partitions: TopicPartition, version: int = V1) -> ProducerIdentity:
        """A producer with an open transaction."""
        producer = self.started()
        self.add(producer, *(partitions or (T0,)), version=version)
        self.settle()
        return producer
