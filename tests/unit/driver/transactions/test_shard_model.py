"""Random lives of transactional ids, with crashes at every point, and what must hold always."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparklog.driver.transactions import (
    ProducerIdentity,
    TransactionRecord,
    TransactionState,
    WriteMarkers,
    read_transaction_record,
)
from sparklog.driver.transactions.transaction import EPOCH_MAX
from sparklog.driver.transactions.transaction_state import TRANSITIONS
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.driver.transactions.shard_rig import (
    T0,
    T1,
    TIMEOUT_MS,
    U0,
    V1,
    V2,
    ShardRig,
    last_epoch_record,
)

PARTITIONS = (T0, T1, U0)
#: Refusals that a client of this machine may get.
EXPECTED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


class Lives(RuleBasedStateMachine):
    """Two clients of one transactional id, old or new, and a coordinator that crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = ShardRig(log=self.log())
        self.known: list[ProducerIdentity] = []
        self.asked: set[int] = set()
        self.seen = 0

    @staticmethod
    def log() -> list[TransactionRecord]:
        """The log that the coordinator begins with."""
        return []

    # -- clients

    @rule()
    def start(self) -> None:
        self.asked.add(self.rig.init())

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        if self.known:
            self.asked.add(self.rig.init(expected=data.draw(st.sampled_from(self.known))))

    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), version=st.sampled_from([V1, V2]))
    def add(self, data: st.DataObject, partition: TopicPartition, version: int) -> None:
        if self.known:
            producer = data.draw(st.sampled_from(self.known[-3:]))
            self.asked.add(self.rig.add(producer, partition, version=version))

    @rule(data=st.data(), committed=st.booleans(), version=st.sampled_from([V1, V2]))
    def end(self, data: st.DataObject, committed: bool, version: int) -> None:
        if self.known:
            producer = data.draw(st.sampled_from(self.known[-3:]))
            self.asked.add(self.rig.end(producer, committed=committed, version=version))

    # -- the shell

    @rule()
    def append(self) -> None:
        if self.rig.appends:
            self.rig.append_next()

    @rule()
    def refuse(self) -> None:
        if self.rig.appends:
            self.rig.refuse_next(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "refused"))

    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        if self.rig.markers:
            markers = data.draw(st.sampled_from(self.rig.markers))
            self.rig.report(markers, data.draw(st.sampled_from(sorted(markers.partitions))))

    @rule()
    def report_all(self) -> None:
        for markers in list(self.rig.markers):
            self.rig.report(markers)

    @rule(duration_ms=st.sampled_from([10, 1_000, TIMEOUT_MS]))
    def pass_time(self, duration_ms: int) -> None:
        self.rig.pass_time(duration_ms)

    @rule()
    def crash(self) -> None:
        self.asked &= self.rig.completions.keys()  # the others lost their coordinator
        self.rig.load()

    # -- what must hold

    @invariant()
    def the_log_follows_the_table(self) -> None:
        previous: TransactionState | None = None
        epochs: list[ProducerIdentity] = []
        for record in self.rig.log:
            read = read_transaction_record(record)
            assert read is not None
            transaction = read[1]
            if transaction is None:
                previous = None
                continue
            if previous is not None:
                entered = transaction.state
                fences = TransactionState.PREPARE_ABORT in TRANSITIONS[previous]
                assert entered in TRANSITIONS[previous] or (
                    fences and entered == TransactionState.PREPARE_ABORT
                )
            previous = transaction.state
            epochs.append(ProducerIdentity(transaction.producer_id, transaction.producer_epoch))
        assert epochs == sorted(epochs), "an identity went back"

    @invariant()
    def a_transaction_is_decided_once(self) -> None:
        """The markers of one decision agree, and say what the log says."""
        for markers in self.rig.markers[self.seen :]:
            self.check(markers)
        self.seen = len(self.rig.markers)

    def check(self, markers: WriteMarkers) -> None:
        decided = []
        for record in self.rig.log:
            read = read_transaction_record(record)
            assert read is not None
            if read[1] is not None and read[1].state in (
                TransactionState.PREPARE_COMMIT,
                TransactionState.PREPARE_ABORT,
            ):
                decided.append(read[1])
        last = decided[-1]
        assert markers.producer == (last.producer_id, last.producer_epoch)
        assert markers.committed == (last.state == TransactionState.PREPARE_COMMIT)
        assert markers.partitions == last.partitions

    @invariant()
    def answers_are_expected(self) -> None:
        for completion in self.rig.completions.values():
            if isinstance(completion.result, KafkaError):
                assert completion.result.code in EXPECTED
            elif isinstance(completion.result, ProducerIdentity) and (
                completion.result not in self.known
            ):
                assert completion.result.epoch <= EPOCH_MAX, "its producer cannot be fenced"
                self.known.append(completion.result)

    def teardown(self) -> None:
        """Whatever happened, everything comes to rest, and a new producer can work."""
        self.rig.settle()
        self.rig.pass_time(TIMEOUT_MS * 2)
        self.rig.settle()
        self.answers_are_expected()
        assert self.asked <= self.rig.completions.keys()
        producer = self.rig.started()
        adding = self.rig.add(producer, T0)
        self.rig.settle()
        ending = self.rig.end(producer)
        self.rig.settle()
        assert self.rig.result(adding) is None
        assert self.rig.result(ending) == producer


class LastEpochs(Lives):
    """The same, with the last epochs of a producer id, one of which a client has."""

    def __init__(self) -> None:
        super().__init__()
        self.known.append(ProducerIdentity(7, EPOCH_MAX - 1))

    @staticmethod
    def log() -> list[TransactionRecord]:
        return [last_epoch_record(epochs_left=1)]


TestLives = Lives.TestCase
TestLastEpochs = LastEpochs.TestCase
TestLives.settings = TestLastEpochs.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
