"""TxnOffsetCommit: who confirms the transaction, what is written, and errors in every version."""

import asyncio
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import TransactionalProducer
from sparklog.executors.handlers import latest_connections
from sparklog.executors.handlers.latest_connections import LatestConnections
from sparklog.executors.partition import TransactionEnd
from sparklog.metadata import TopicDeleted
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.service.transactional_ids import TRANSACTIONAL_ID_BYTES_MAX
from sparklog.storage_backends import blocking
from sparklog.transport import ClientConnection
from sparklog.types import (
    COORDINATOR_PRODUCER_ID_BASE,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Isolation,
    TopicPartition,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.records.batch import BatchHeader, iter_batches
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.support.waiting import until
from tests.unit.executors.coordinator.group_rig import ELSEWHERE
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led
from tests.unit.executors.coordinator.runtime_rig import Gate
from tests.unit.executors.coordinator.transaction_rig import (
    CONTROLLER_EPOCH,
    EPOCH,
    PRODUCER_ID,
    TransactionRig,
    commit_codes,
    commit_of,
    confirm,
    marker,
    refuse,
    run,
)

VERSIONS = range(6)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
OFFSETS_0 = TopicPartition(CONSUMER_OFFSETS, 0)


def written(rig: TransactionRig) -> list[BatchHeader]:
    partition = rig.replicas.partition(CONSUMER_OFFSETS)
    read = partition.read(0, 1 << 20, replica_id=NODE, isolation=Isolation.READ_UNCOMMITTED)
    return [] if read.records is None else [h for h, _ in iter_batches(read.records.read())]


async def end(rig: TransactionRig, *, commit: bool = True, epoch: int = EPOCH) -> None:
    ended = await rig.end(marker({CONSUMER_OFFSETS: (0,)}, commit=commit, producer_epoch=epoch))
    assert ended == [[(CONSUMER_OFFSETS, 0, 0)]]


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_pending_until_the_transaction_is_committed(version: int) -> None:
    async def test(rig: TransactionRig) -> None:
        response = await rig.ask(commit_of((1, 11), (0, 10)), version)
        assert response == TxnOffsetCommitResponse(
            topics=(
                TxnOffsetCommitResponseTopic(
                    name="t",
                    partitions=(
                        TxnOffsetCommitResponsePartition(partition_index=1),
                        TxnOffsetCommitResponsePartition(partition_index=0),
                    ),
                ),
            )
        )
        assert rig.verified == [("tx", PRODUCER_ID, EPOCH, (OFFSETS_0,), version >= 5)]
        assert await rig.offsets(0, 1) == [(-1, 0), (-1, 0)]
        assert await rig.offsets(0, 1, stable=True) == [(-1, UNSTABLE), (-1, UNSTABLE)]
        (batch,) = written(rig)
        assert (batch.is_transactional, batch.is_control, batch.record_count) == (True, False, 2)
        assert (batch.producer_id, batch.producer_epoch) == (PRODUCER_ID, EPOCH)
        assert batch.base_sequence == NO_SEQUENCE
        await end(rig)
        assert await rig.offsets(0, 1, stable=True) == [(10, 0), (11, 0)]

    run(test)


def test_an_aborted_commit_leaves_the_offsets_before_it() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.ask(commit_of((0, 10)))
        await end(rig)
        await rig.ask(commit_of((0, 20), (1, 21)))
        await end(rig, commit=False)
        assert await rig.offsets(0, 1, stable=True) == [(10, 0), (-1, 0)]

    run(test)


def test_a_transaction_is_confirmed_once_for_a_partition() -> None:
    async def test(rig: TransactionRig) -> None:
        for offset in (1, 2, 3):
            assert commit_codes(await rig.ask(commit_of((0, offset)))) == [0]
        assert len(rig.verified) == 1
        await end(rig)
        assert commit_codes(await rig.ask(commit_of((0, 4)))) == [0]
        assert len(rig.verified) == 2
        assert commit_codes(await rig.ask(commit_of((0, 5), producer_epoch=EPOCH + 1))) == [0]
        assert len(rig.verified) == 3

    run(test)


#: The verdict of the transaction coordinator, and the codes for clients of versions 0, 2 and 5.
VERDICTS = [
    (ErrorCode.INVALID_TXN_STATE, [ErrorCode.INVALID_TXN_STATE] * 3),
    (ErrorCode.INVALID_PRODUCER_EPOCH, [ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
    (ErrorCode.PRODUCER_FENCED, [ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
    (
        ErrorCode.TRANSACTION_ABORTABLE,
        [
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ],
    ),
    (ErrorCode.CONCURRENT_TRANSACTIONS, [ErrorCode.COORDINATOR_NOT_AVAILABLE, LOADING, LOADING]),
    (ErrorCode.NETWORK_EXCEPTION, [ErrorCode.COORDINATOR_NOT_AVAILABLE, LOADING, LOADING]),
    (ErrorCode.NOT_COORDINATOR, [ErrorCode.COORDINATOR_NOT_AVAILABLE, LOADING, LOADING]),
]


@pytest.mark.parametrize(("verdict", "answers"), VERDICTS)
def test_an_unconfirmed_commit_writes_nothing(verdict: ErrorCode, answers: list[ErrorCode]) -> None:
    async def test(rig: TransactionRig) -> None:
        rig.verdict = refuse(KafkaError(verdict))
        found = [await rig.ask(commit_of((0, 1), (1, 2)), version) for version in (0, 2, 5)]
        assert [commit_codes(each) for each in found] == [[code] * 2 for code in answers]
        assert written(rig) == []
        assert len(rig.verified) == 3

    run(test)


def test_a_transaction_that_ends_while_it_is_confirmed_is_confirmed_anew() -> None:
    """Otherwise the delayed commit of an ended transaction would open the next one."""

    async def test(rig: TransactionRig) -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            asked.set()
            await answered.wait()

        rig.verdict = slow
        late = asyncio.create_task(rig.ask(commit_of((0, 1)), 4))
        await asked.wait()
        marker_ = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=CONTROLLER_EPOCH)
        rig.runtime.end_transaction(
            0, TransactionEnd(producer_id=PRODUCER_ID, producer_epoch=EPOCH, marker=marker_)
        )
        answered.set()
        assert commit_codes(await late) == [LOADING]
        assert [batch.is_control for batch in written(rig)] == [True]
        assert commit_codes(await rig.ask(commit_of((0, 1)), 4)) == [0]

    run(test)


@pytest.mark.parametrize(("version", "expected"), [(4, LOADING), (5, 0)])
def test_a_commit_that_is_confirmed_late_joins_no_later_transaction_of_an_old_client(
    version: int, expected: int
) -> None:
    """The client sends the commit again on its connection, and goes on with the next transaction.

    A new client has another epoch then; with the same epoch the transaction is the same.
    """

    async def test(rig: TransactionRig) -> None:
        answered = asyncio.Event()

        async def slow() -> None:
            rig.verdict = confirm
            await answered.wait()

        rig.verdict = slow
        client = await rig.connect()
        late = asyncio.create_task(rig.ask(commit_of((0, 1)), version, client))
        await until(lambda: rig.verified)
        await end(rig, commit=False)
        later = asyncio.create_task(rig.ask(commit_of((0, 20)), version, client))
        await until(lambda: [each.is_control for each in written(rig)] == [True, False])
        answered.set()
        assert commit_codes(await later) == [0]
        assert commit_codes(await late) == [expected]

    run(test)


def test_commits_that_are_confirmed_together_are_all_written() -> None:
    async def test(rig: TransactionRig) -> None:
        asking = [asyncio.create_task(rig.ask(commit_of((number, 5)))) for number in (0, 1)]
        assert [commit_codes(each) for each in await asyncio.gather(*asking)] == [[0], [0]]
        await end(rig)
        assert await rig.offsets(0, 1) == [(5, 0), (5, 0)]

    run(test)


def test_commits_of_an_old_client_that_are_confirmed_together_are_written_in_turn() -> None:
    async def test(rig: TransactionRig) -> None:
        client = await rig.connect()
        asking = [rig.ask(commit_of((number, 5)), 4, client) for number in (0, 1)]
        assert [commit_codes(each) for each in await asyncio.gather(*asking)] == [[0], [LOADING]]
        assert commit_codes(await rig.ask(commit_of((1, 5)), 4, client)) == [0]
        await end(rig)
        assert await rig.offsets(0, 1) == [(5, 0), (5, 0)]

    run(test)


def test_an_older_epoch_is_fenced_by_the_partition() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.ask(commit_of((0, 1)))
        await end(rig, commit=False, epoch=EPOCH + 1)
        zombie = await rig.ask(commit_of((0, 2)))
        assert commit_codes(zombie) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert await rig.offsets(0, stable=True) == [(-1, 0)]

    run(test)


def test_the_generation_and_the_member_fence_from_version_3_on() -> None:
    async def test(rig: TransactionRig) -> None:
        stale = commit_of((0, 1), generation_id=4, member_id="m", group_instance_id="i")
        for version in (3, 4, 5):
            assert commit_codes(await rig.ask(stale, version)) == [ErrorCode.ILLEGAL_GENERATION]
        plain = commit_of((0, 1))
        assert commit_codes(await rig.ask(plain, 2)) == [0]

    run(test)


def test_partitions_that_do_not_exist_are_refused_one_by_one() -> None:
    async def test(rig: TransactionRig) -> None:
        gone = TxnOffsetCommitRequestTopic(
            name="gone", partitions=(TxnOffsetCommitRequestPartition(partition_index=0),)
        )
        request = commit_of((0, 1), (7, 2), (1, 3))
        for version in VERSIONS:
            mixed = commit_of((0, 1), topics=(gone, *request.topics))
            assert commit_codes(await rig.ask(mixed, version)) == [UNKNOWN, 0, UNKNOWN, 0]
        rig.verified.clear()
        assert commit_codes(await rig.ask(commit_of((0, 1), topics=(gone,)))) == [UNKNOWN]
        assert commit_codes(await rig.ask(commit_of(topics=()))) == []
        assert rig.verified == []

    run(test)


def test_a_topic_that_is_deleted_while_the_transaction_is_confirmed_gets_no_offsets() -> None:
    async def test(rig: TransactionRig) -> None:
        topic_id = rig.replicas.image.topics["t"].topic_id

        async def delete() -> None:
            await rig.replicas.change(TopicDeleted(topic="t", topic_id=topic_id))

        rig.verdict = delete
        assert commit_codes(await rig.ask(commit_of((0, 1)))) == [UNKNOWN]
        assert written(rig) == []

    run(test)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": ELSEWHERE}, ErrorCode.NOT_COORDINATOR),
        ({"producer_id": NO_PRODUCER_ID}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": COORDINATOR_PRODUCER_ID_BASE}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_impossible_commits_are_refused_before_the_coordinator_is_asked(
    fields: dict[str, object], code: ErrorCode
) -> None:
    async def test(rig: TransactionRig) -> None:
        for version in VERSIONS:
            answer = await rig.ask(commit_of((0, 1), (1, 1), **fields), version)
            assert commit_codes(answer) == [code, code]
        assert (rig.verified, written(rig)) == ([], [])

    run(test)


def test_a_coordinator_that_moves_while_the_transaction_is_confirmed_writes_nothing() -> None:
    async def test(rig: TransactionRig) -> None:
        async def move() -> None:
            follows = led(2, leader=OTHER, isr=(NODE, OTHER))
            await rig.replicas.set_state(CONSUMER_OFFSETS, 0, follows)

        rig.verdict = move
        answer = await rig.ask(commit_of((0, 1), (1, 1)))
        assert commit_codes(answer) == [ErrorCode.NOT_COORDINATOR] * 2
        assert rig.replicas.partition(CONSUMER_OFFSETS).log.log_end_offset == 0

    run(test)


def test_a_loading_coordinator_is_named_as_the_client_knows_it() -> None:
    async def test(rig: TransactionRig) -> None:
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.ask(commit_of((0, 1)))
            await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(2))
            await until(lambda: gate.waiting == 1)
            found = [await rig.ask(commit_of((0, 1)), version) for version in VERSIONS]
            early, late = ErrorCode.COORDINATOR_NOT_AVAILABLE, LOADING
            assert [commit_codes(each) for each in found] == [[early]] * 2 + [[late]] * 4
            gate.opened.set()
            await until(lambda: rig.runtime.as_json()["active_shards"] == 1)

    run(test)


@pytest.mark.parametrize("version", [4, 5])
def test_a_commit_of_many_partitions_is_written_in_parts(version: int) -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.replicas.create("wide", *(led(leader=OTHER, isr=(OTHER,)) for _ in range(600)))
        offsets = tuple((number, number + 1) for number in range(600))
        answer = await rig.ask(commit_of(*offsets, topic="wide"), version)
        assert commit_codes(answer) == [0] * 600
        assert [batch.record_count for batch in written(rig)] == [250, 250, 100]
        assert len(rig.verified) == 1
        await end(rig)
        await until(lambda: rig.replicas.partition(CONSUMER_OFFSETS).last_stable_offset == 601)

    run(test)


@pytest.mark.parametrize("version", [3, 4])
def test_a_commit_that_was_delayed_on_an_old_connection_undoes_no_later_one(version: int) -> None:
    """The client has sent it again on its next connection, and has gone on to later offsets."""

    async def test(rig: TransactionRig) -> None:
        given_up, connection = await rig.connect(), await rig.connect()

        async def commit(offset: int, client: ClientConnection, **fields: Any) -> list[int]:
            return commit_codes(await rig.ask(commit_of((0, offset), **fields), version, client))

        assert await commit(10, connection) == [0]
        await end(rig)
        assert await commit(20, connection) == [0]
        assert await commit(10, given_up) == [LOADING]
        await end(rig)
        assert await commit(10, given_up) == [LOADING]
        assert await rig.offsets(0) == [(20, 0)]
        # The next producer may have the older connection; and a live one opens another.
        assert await commit(30, given_up, producer_epoch=EPOCH + 1) == [0]
        assert await commit(31, await rig.connect(), producer_epoch=EPOCH + 1) == [0]

    run(test)


def test_a_delayed_commit_that_waits_for_the_coordinator_meanwhile() -> None:
    async def test(rig: TransactionRig) -> None:
        answered = asyncio.Event()

        async def slow() -> None:
            rig.verdict = confirm
            await answered.wait()

        rig.verdict = slow
        given_up, connection = await rig.connect(), await rig.connect()
        delayed = asyncio.create_task(rig.ask(commit_of((0, 10)), 4, given_up))
        await until(lambda: rig.verified)
        assert commit_codes(await rig.ask(commit_of((0, 20)), 4, connection)) == [0]
        answered.set()
        assert commit_codes(await delayed) == [LOADING]
        await end(rig)
        assert await rig.offsets(0) == [(20, 0)]

    run(test)


def test_connections_of_new_clients_need_no_order() -> None:
    """Their epochs tell transactions apart."""

    async def test(rig: TransactionRig) -> None:
        first, second = await rig.connect(), await rig.connect()
        for offset, client in enumerate((second, first, second)):
            answer = await rig.ask(commit_of((0, offset)), 5, client)
            assert commit_codes(answer) == [0]

    run(test)


@pytest.mark.parametrize("version", [4, 5])
def test_a_commit_whose_client_goes_while_it_is_confirmed_is_not_written(version: int) -> None:
    async def test(rig: TransactionRig) -> None:
        answered = asyncio.Event()

        async def slow() -> None:
            await answered.wait()

        rig.verdict = slow
        client = await rig.connect()
        late = asyncio.create_task(rig.ask(commit_of((0, 10)), version, client))
        await until(lambda: rig.verified)
        before = len(rig.server.connections)
        client.close()
        await asyncio.wait([late])
        late.exception()
        await rig.connect()  # the server has seen the end of the other connection by then
        answered.set()
        await until(lambda: len(rig.server.connections) == before)
        assert written(rig) == []

    run(test)


def test_a_transactional_id_that_is_too_long_is_not_passed_on() -> None:
    async def test(rig: TransactionRig) -> None:
        size = TRANSACTIONAL_ID_BYTES_MAX
        fits, long = commit_of((0, 1), transactional_id="x" * size), "é" * (size // 2 + 1)
        assert commit_codes(await rig.ask(fits, 5)) == [0]
        refused = await rig.ask(commit_of((0, 1), transactional_id=long), 5)
        assert commit_codes(refused) == [ErrorCode.INVALID_REQUEST]
        assert len(rig.verified) == 1

    run(test)


def test_producers_that_were_not_heard_of_for_long_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latest_connections, "PRODUCERS_MAX", 2)
    latest = LatestConnections()
    producers = [TransactionalProducer(number, EPOCH) for number in range(3)]
    assert [latest.take(producer, 7) for producer in producers[:2]] == [False, False]
    assert latest.take(producers[0], 6)
    assert not latest.take(producers[2], 7)  # producer 1 is forgotten
    assert [latest.take(producer, 6) for producer in producers[:2]] == [True, False]
