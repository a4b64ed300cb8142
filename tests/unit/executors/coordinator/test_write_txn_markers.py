"""WriteTxnMarkers: where markers are appended, what they decide, and what is refused."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparklog.client.connection import Connection
from sparklog.errors import ErrorCode
from sparklog.metadata import ConfigChanged
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.storage_backends import blocking
from sparklog.types import COORDINATOR_PRODUCER_ID_BASE, Endpoint, Isolation, ResourceType
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.control import ControlType, EndTxnMarker, read_marker
from tests.support.waiting import until
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led
from tests.unit.executors.coordinator.runtime_rig import Gate
from tests.unit.executors.coordinator.transaction_rig import (
    CONTROLLER_EPOCH,
    EPOCH,
    PRODUCER_ID,
    SECRET,
    TransactionRig,
    codes_of,
    commit_codes,
    commit_of,
    marker,
    run,
)

REPLICATED = led(isr=(NODE, OTHER))
ALL_VERSIONS = (1, 2)


def markers_in(rig: TransactionRig, topic: str, number: int = 0) -> list[tuple[int, EndTxnMarker]]:
    """Producer epoch and contents of each marker in the log."""
    partition = rig.replicas.partition(topic, number)
    read = partition.read(0, 1 << 20, replica_id=NODE, isolation=Isolation.READ_UNCOMMITTED)
    if read.records is None:
        return []
    data = read.records.read()
    found = [
        (header.producer_epoch, read_marker(data, start, header))
        for header, start in iter_batches(data)
        if header.is_control
    ]
    return [(epoch, each) for epoch, each in found if each is not None]


@pytest.mark.parametrize("version", ALL_VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_the_transaction_in_each_partition(version: int, commit: bool) -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce(0)
        rig.produce(1)
        request = WriteTxnMarkersRequest(markers=(marker({"t": (1, 0)}, commit=commit),))
        assert await rig.as_member(request, at_most=version) == WriteTxnMarkersResponse(
            markers=(
                WritableTxnMarkerResult(
                    producer_id=PRODUCER_ID,
                    topics=(
                        WritableTxnMarkerTopicResult(
                            name="t",
                            partitions=(
                                WritableTxnMarkerPartitionResult(partition_index=1),
                                WritableTxnMarkerPartitionResult(partition_index=0),
                            ),
                        ),
                    ),
                ),
            )
        )
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        written = EndTxnMarker(control_type=kind, coordinator_epoch=CONTROLLER_EPOCH)
        for number in (0, 1):
            assert markers_in(rig, "t", number) == [(EPOCH, written)]
            partition = rig.replicas.partition("t", number)
            assert partition.last_stable_offset == 2
        assert rig.replicas.replica_manager.counters.markers_written == 2

    run(test)


def test_a_repeated_marker_is_harmless_and_a_partition_gets_a_marker_once() -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        one = marker({"t": (0,)})
        again = WritableTxnMarkerTopic(name="t", partition_indexes=(0, 0))
        twice = replace(one, topics=(*one.topics, again))
        assert await rig.end(twice) == [[("t", 0, 0)]]
        assert len(markers_in(rig, "t")) == 1
        assert await rig.end(one, one) == [[("t", 0, 0)], [("t", 0, 0)]]
        assert len(markers_in(rig, "t")) == 3
        rig.produce()
        assert rig.replicas.partition("t").last_stable_offset == 4

    run(test)


def test_each_partition_has_its_own_error() -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        await rig.replicas.create("away", led(leader=OTHER, isr=(NODE, OTHER)))
        answered = await rig.end(marker({"t": (0, 9), "away": (0,), "gone": (0,)}))
        assert answered == [
            [
                ("t", 0, 0),
                ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("away", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                ("gone", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
        ]
        assert await rig.end() == []

    run(test)


def test_an_older_coordinator_is_refused_everywhere() -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        assert commit_codes(await rig.ask(commit_of((0, 9)))) == [0]
        stale = marker({"t": (0,), CONSUMER_OFFSETS: (0,)}, coordinator_epoch=CONTROLLER_EPOCH - 1)
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await rig.end(stale, marker({"t": (1,)})) == [
            [("t", 0, fenced), (CONSUMER_OFFSETS, 0, fenced)],
            [("t", 1, 0)],
        ]
        assert markers_in(rig, "t") == markers_in(rig, CONSUMER_OFFSETS) == []
        later = marker({"t": (0,)}, coordinator_epoch=CONTROLLER_EPOCH + 1)
        assert await rig.end(later) == [[("t", 0, 0)]]
        assert await rig.end(marker({"t": (0,)})) == [[("t", 0, fenced)]]

    run(test)


def test_epochs_of_producers_are_judged_by_the_transaction_version() -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        old = marker({"t": (0,)}, producer_epoch=EPOCH - 1)
        invalid = [[("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]]
        assert await rig.end(old) == invalid
        same = marker({"t": (0,)}, transaction_version=2)
        assert await rig.end(same) == invalid
        bumped = replace(same, producer_epoch=EPOCH + 1)
        assert await rig.end(bumped) == await rig.end(bumped) == [[("t", 0, 0)]]
        # Version 1 of the request has no transaction version.
        rig.produce(1)
        assert await rig.end(marker({"t": (1,)}, transaction_version=2), at_most=1) == [
            [("t", 1, 0)]
        ]

    run(test)


def test_a_marker_that_was_delayed_on_an_old_connection_ends_no_later_transaction() -> None:
    """The coordinator has sent it again on its next connection."""

    async def test(rig: TransactionRig) -> None:
        endpoint = Endpoint("127.0.0.1", rig.server.port)
        given_up = await Connection.open(endpoint, secret=SECRET)
        connection = await Connection.open(endpoint, secret=SECRET)

        async def send(to: Connection, coordinator_epoch: int) -> list[Any]:
            ended = marker({"t": (0,)}, coordinator_epoch=coordinator_epoch)
            return codes_of(await to.request(WriteTxnMarkersRequest(markers=(ended,))))

        taken, late = [[("t", 0, 0)]], [[("t", 0, ErrorCode.REQUEST_TIMED_OUT)]]
        rig.produce()
        assert await send(connection, CONTROLLER_EPOCH) == taken
        rig.produce()
        assert await send(given_up, CONTROLLER_EPOCH) == late
        assert rig.replicas.partition("t").last_stable_offset == 2
        assert await send(connection, CONTROLLER_EPOCH) == taken
        # The next coordinator may have an older connection, and the one before does not matter.
        assert await send(given_up, CONTROLLER_EPOCH + 1) == taken
        fenced = [[("t", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]]
        assert await send(connection, CONTROLLER_EPOCH) == fenced
        assert await send(given_up, CONTROLLER_EPOCH + 1) == taken
        # Another member has connections of its own.
        other = await Connection.open(endpoint, secret=SECRET, client_id="other")
        assert await send(other, CONTROLLER_EPOCH + 1) == taken
        assert await send(given_up, CONTROLLER_EPOCH + 1) == taken
        for each in (given_up, connection, other):
            each.close()

    run(test)


def test_strangers_write_no_markers() -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        request = WriteTxnMarkersRequest(markers=(marker({"t": (0, 0)}), marker({"t": (1,)})))
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for version in ALL_VERSIONS:
            assert codes_of(await rig.ask(request, version)) == [
                [("t", 0, refused), ("t", 0, refused)],
                [("t", 1, refused)],
            ]
        assert markers_in(rig, "t") == []

    run(test)


async def let_tools_abort(rig: TransactionRig) -> None:
    await rig.replicas.change(
        ConfigChanged(
            resource_type=int(ResourceType.BROKER),
            resource_name="",
            name="sparklog.client.abort.markers.enable",
            value="true",
        )
    )


def abort_of(topics: dict[str, tuple[int, ...]], **fields: Any) -> WriteTxnMarkersRequest:
    """As Kafka's tool aborts: with the coordinator epoch of the last marker, or 0."""
    aborting = marker(topics, commit=False, **{"coordinator_epoch": 0, **fields})
    return WriteTxnMarkersRequest(markers=(aborting,))


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_tool_aborts_a_hanging_transaction_where_the_operator_allows_it(version: int) -> None:
    async def test(rig: TransactionRig) -> None:
        rig.produce()
        abort = abort_of({"t": (0,)})
        refused = [[("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]]
        assert codes_of(await rig.ask(abort, version)) == refused
        await let_tools_abort(rig)
        commit = WriteTxnMarkersRequest(markers=(*abort.markers, marker({"t": (0,)})))
        assert codes_of(await rig.ask(commit, version)) == refused * 2
        assert markers_in(rig, "t") == []
        assert codes_of(await rig.ask(abort, version)) == [[("t", 0, 0)]]
        written = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=0)
        assert markers_in(rig, "t") == [(EPOCH, written)]
        assert rig.replicas.partition("t").last_stable_offset == 2
        assert await rig.end(marker({"t": (0,)})) == [[("t", 0, 0)]]

    run(test)


def test_the_refusal_of_a_tool_names_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.ask(abort_of({"t": (0,)}))
        assert "unless sparklog.client.abort.markers.enable is set" in caplog.text

    run(test)


def test_the_producer_judges_the_epochs_of_a_tool() -> None:
    async def test(rig: TransactionRig) -> None:
        await let_tools_abort(rig)
        rig.produce()
        old = abort_of({"t": (0,)}, producer_epoch=EPOCH - 1)
        assert codes_of(await rig.ask(old)) == [[("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]]
        assert await rig.end(marker({"t": (0,)})) == [[("t", 0, 0)]]
        rig.produce()
        fenced = [[("t", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]]
        early = abort_of({"t": (0,)}, coordinator_epoch=CONTROLLER_EPOCH - 1)
        assert codes_of(await rig.ask(early)) == fenced
        exact = abort_of({"t": (0,)}, coordinator_epoch=CONTROLLER_EPOCH)
        assert codes_of(await rig.ask(exact)) == [[("t", 0, 0)]]

    run(test)


def test_a_tool_fences_no_coordinator() -> None:
    async def test(rig: TransactionRig) -> None:
        await let_tools_abort(rig)
        rig.produce()
        invalid = [[("t", 0, ErrorCode.INVALID_REQUEST)]]
        later = abort_of({"t": (0,)}, coordinator_epoch=CONTROLLER_EPOCH + 1)
        assert codes_of(await rig.ask(later)) == invalid
        for producer_id in (-1, COORDINATOR_PRODUCER_ID_BASE):
            reserved = abort_of({"t": (0,)}, producer_id=producer_id, producer_epoch=32_767)
            assert codes_of(await rig.ask(reserved)) == invalid
        assert markers_in(rig, "t") == []
        assert await rig.end(marker({"t": (0,)})) == [[("t", 0, 0)]]

    run(test)


def test_the_response_waits_until_every_marker_is_replicated() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.replicas.create("r", REPLICATED, led())
        answer = asyncio.create_task(rig.end(marker({"r": (0, 1)}), marker({"r": (0,)})))
        partition = rig.replicas.partition("r")
        await until(lambda: partition.log.log_end_offset == 2)
        assert not answer.done()
        rig.replicas.replicate("r")
        assert await answer == [[("r", 0, 0), ("r", 1, 0)], [("r", 0, 0)]]

    run(test)


def test_a_leader_that_is_replaced_answers_so_that_the_marker_is_sent_again() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.replicas.create("r", REPLICATED)
        answer = asyncio.create_task(rig.end(marker({"r": (0,)})))
        partition = rig.replicas.partition("r")
        await until(lambda: partition.log.log_end_offset == 1)
        await rig.replicas.set_state("r", 0, led(2, leader=OTHER, isr=(NODE, OTHER)))
        assert await answer == [[("r", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]]

    run(test)


def test_without_enough_replicas_nothing_is_appended() -> None:
    async def test(rig: TransactionRig) -> None:
        await rig.replicas.create("r", led())
        await rig.replicas.change(
            ConfigChanged(
                resource_type=int(ResourceType.TOPIC),
                resource_name="r",
                name="min.insync.replicas",
                value="2",
            )
        )
        await rig.replicas.set_state(
            "r", 0, replace(REPLICATED, isr=(NODE,), leader_epoch=2, partition_epoch=2)
        )
        assert await rig.end(marker({"r": (0,)})) == [[("r", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]]
        assert markers_in(rig, "r") == []

    run(test)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_decides_about_the_offsets_of_its_transaction(commit: bool) -> None:
    async def test(rig: TransactionRig) -> None:
        assert commit_codes(await rig.ask(commit_of((0, 9)))) == [0]
        before = await rig.end(marker({CONSUMER_OFFSETS: (0,)}, commit=commit))
        assert before == [[(CONSUMER_OFFSETS, 0, 0)]]
        assert await rig.offsets(0, stable=True) == [(9 if commit else -1, 0)]

    run(test)


def test_a_marker_of_offsets_is_sent_again_to_a_coordinator_that_loads_or_is_elsewhere() -> None:
    async def test(rig: TransactionRig) -> None:
        assert commit_codes(await rig.ask(commit_of((0, 9)))) == [0]
        ending = marker({CONSUMER_OFFSETS: (0, 1)})
        again = ErrorCode.NOT_LEADER_OR_FOLLOWER
        follows = led(2, leader=OTHER, isr=(NODE, OTHER))
        await rig.replicas.set_state(CONSUMER_OFFSETS, 0, follows)
        assert await rig.end(ending) == [
            [(CONSUMER_OFFSETS, 0, again), (CONSUMER_OFFSETS, 1, again)]
        ]
        gate = Gate()
        with blocking.replaced_runner(gate):  # type: ignore[arg-type]
            await rig.replicas.set_state(CONSUMER_OFFSETS, 0, led(3))
            await until(lambda: gate.waiting == 1)
            assert (await rig.end(ending))[0][0] == (CONSUMER_OFFSETS, 0, again)
            gate.opened.set()
            await until(lambda: rig.runtime.as_json()["active_shards"] == 1)
        assert await rig.offsets(0, stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
        assert (await rig.end(ending))[0][0] == (CONSUMER_OFFSETS, 0, 0)
        assert await rig.offsets(0, stable=True) == [(9, 0)]

    run(test)


def test_a_request_of_many_markers_is_answered_in_their_order() -> None:
    async def test(rig: TransactionRig) -> None:
        markers = [
            marker({"t": (number % 2,)}, producer_id=number, commit=bool(number % 3))
            for number in range(700)
        ]
        assert await rig.end(*markers) == [[("t", number % 2, 0)] for number in range(700)]
        assert rig.replicas.partition("t").log.log_end_offset == 350

    run(test)
