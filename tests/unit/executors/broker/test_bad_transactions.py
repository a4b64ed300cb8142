"""Bad input of transactional producers over the wire: Kafka's codes, nothing half committed, and no
last stable offset that stands still."""

import asyncio
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.service.transactional_ids import TRANSACTIONAL_ID_BYTES_MAX
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, produce_request, run
from tests.unit.executors.broker.transactional_producer import (
    NEW,
    NEW_END,
    OLD,
    OLD_END,
    SETTINGS,
    Producer,
    answers_of,
    client_of_node_0,
)

OK = ErrorCode.NONE
INVALID = ErrorCode.INVALID_REQUEST
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
INVALID_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
#: One byte too long in two-byte characters, and as long as a frame may be.
TOO_LONG = ["é" * (TRANSACTIONAL_ID_BYTES_MAX // 2) + "xx", "x" * 3_000_000]


async def ends_at(producer: Producer, offset: int, partition: int = 0) -> None:
    """Wait until the log ends there, its last marker included, and no transaction is open."""
    found = producer.partition(partition)
    await until(lambda: found.last_stable_offset == found.log.log_end_offset == offset)


@pytest.mark.parametrize("transactional_id", ["", *TOO_LONG])
def test_ids_that_are_empty_or_too_long(transactional_id: str) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        await producer.add(0)
        known, producer.transactional_id = producer.transactional_id, transactional_id
        assert await producer.try_initialize() == INVALID
        assert await producer.try_initialize() == INVALID  # no transition is left behind
        assert await producer.try_end(NEW_END) == INVALID
        asked = producer.asked
        first = producer.batch(b"a")
        assert await producer.send(first, NEW) == (INVALID, -1)
        if transactional_id:
            assert producer.asked == asked
        producer.transactional_id = known
        assert await producer.send(first, OLD) == (OK, 0)
        await producer.end(OLD_END)
        await ends_at(producer, 2)

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [8, 12])
def test_a_request_that_is_refused_for_its_id_is_refused_again(version: int) -> None:
    """Also when it repeats the refused one but for its batch, and the connection lives on."""

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        stray = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        for records in (batch(b"a"), stray, batch(b"b")):
            request = produce_request("t", records, 0, -1, transactional_id="")
            (topic,) = (await client.ask_produce(request, version)).responses
            assert [part.error_code for part in topic.partition_responses] == [INVALID]
        assert (await client.produce("t", batch(b"c"))).base_offset == 0

    run(test)


def test_an_id_of_the_greatest_length() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        transactional_id = "é" * (TRANSACTIONAL_ID_BYTES_MAX // 2) + "x"
        producer = await Producer.another(rig, transactional_id)
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        await producer.end(NEW_END)
        assert await producer.committed() == [b"a"]

    run(test, **SETTINGS)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 900_001, 2**31 - 1])
def test_timeouts_out_of_range(timeout_ms: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        identity = (producer.producer_id, producer.epoch)
        refused = await producer.try_initialize(timeout_ms)
        assert refused == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        await producer.end(NEW_END)
        assert (producer.producer_id, producer.epoch) == (identity[0], identity[1] + 1)

    run(test, **SETTINGS)


def test_an_end_without_a_beginning() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        for committed in (True, False):
            assert await producer.try_end(OLD_END, committed=committed) == INVALID_STATE
        assert await producer.try_end(NEW_END) == INVALID_STATE
        await producer.end(NEW_END, committed=False)  # a new client may abort at any time
        assert await producer.produce(b"a", version=NEW) == (OK, 0)
        await producer.end(NEW_END)
        await ends_at(producer, 2)

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_epochs_from_the_future(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        future = Producer(rig, producer.client, producer.node_0, producer.transactional_id)
        future.producer_id, future.epoch = producer.producer_id, producer.epoch + 1
        fenced = ErrorCode.PRODUCER_FENCED
        goes_on = InitProducerIdRequest(
            transactional_id=producer.transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=future.producer_id,
            producer_epoch=future.epoch + 3,
        )
        assert (await producer.node_0.ask(goes_on, 4)).error_code == fenced
        await producer.add(0, 1)
        assert await producer.produce(b"a", version=version) == (OK, 0)
        for partition in (0, 1):  # with the transaction open, and without
            refused = await future.produce(b"x", version=version, partition=partition)
            assert refused == (INVALID_EPOCH, -1)
        assert await future.try_add(1) == [fenced]
        assert await future.try_end(OLD_END) == fenced
        assert await producer.produce(b"b", version=version) == (OK, 1)
        await producer.end(OLD_END)
        assert await producer.committed() == [b"a", b"b"]
        await ends_at(producer, 1, partition=1)  # the marker

    run(test, **SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_producer_id_of_somebody_else(version: int) -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        other = await Producer.another(rig, "other")
        await producer.add(0)
        stranger = Producer(rig, other.client, other.node_0, producer.transactional_id)
        stranger.producer_id, stranger.epoch = other.producer_id, other.epoch
        mapping = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        assert await stranger.produce(b"x", version=version) == mapping
        unknown = Producer(rig, other.client, other.node_0, "nobody's")
        unknown.producer_id, unknown.epoch = producer.producer_id, producer.epoch
        assert await unknown.produce(b"x", version=version) == mapping
        await producer.end(OLD_END)
        await ends_at(producer, 1)

    run(test, **SETTINGS)


def test_two_live_producers_with_one_id() -> None:
    async def test(rig: Rig) -> None:
        first = await Producer.open(rig)
        await first.add(0)
        assert await first.produce(b"first", version=OLD) == (OK, 0)
        second = await Producer.another(rig)
        await ends_at(first, 2)
        assert await first.produce(b"again", version=OLD) == (INVALID_EPOCH, -1)
        assert await first.try_end(OLD_END) == ErrorCode.PRODUCER_FENCED
        await second.add(0)
        assert await second.produce(b"second", version=OLD) == (OK, 2)
        await second.end(OLD_END)
        assert await second.committed() == [b"second"]

    run(test, **SETTINGS)


def test_batches_of_several_producers_in_one_request() -> None:
    """Kafka refuses such a request; here the coordinator's word about each producer counts."""

    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig, partitions=2)
        other = await Producer.another(rig, "other")
        await producer.add(0)
        await other.add(1)
        mixed = {0: producer.batch(b"a"), 1: other.batch(b"x", partition=1)}
        assert answers_of(await producer.ask(mixed, OLD)) == [
            (OK, 0),
            (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1),
        ]
        await producer.end(OLD_END)
        await other.end(OLD_END)
        assert await producer.committed() == [b"a"]
        assert await producer.committed(1) == []

    run(test, **SETTINGS)


def test_an_end_that_comes_late_on_an_older_connection() -> None:
    """It is the first request there, so only the age of the connection tells."""

    async def test(rig: Rig) -> None:
        await rig.with_topic()
        given_up = await client_of_node_0(rig)
        producer = await Producer.another(rig)
        await producer.add(0)
        assert await producer.produce(b"a", version=OLD) == (OK, 0)
        await producer.end(OLD_END)
        while (await producer.try_add(0)) == [CONCURRENT]:
            await asyncio.sleep(0.01)
        delayed = Producer(rig, producer.client, given_up, producer.transactional_id)
        delayed.producer_id, delayed.epoch = producer.producer_id, producer.epoch
        assert await delayed.try_end(OLD_END) == CONCURRENT
        assert await delayed.try_end(OLD_END, committed=False) == CONCURRENT
        assert await producer.produce(b"b", version=OLD) == (OK, 2)
        await producer.end(OLD_END)
        assert await producer.committed() == [b"a", b"b"]

    run(test, **SETTINGS)


def test_a_request_that_names_a_partition_twice_is_refused_there() -> None:
    async def test(rig: Rig) -> None:
        producer = await Producer.open(rig)
        request = producer.request({0: producer.batch(b"a")})
        (topic,) = request.topic_data
        twice = replace(topic, partition_data=topic.partition_data * 2)
        response = await producer.client.ask_produce(replace(request, topic_data=(twice,)), NEW)
        assert answers_of(response) == [(INVALID, -1)]
        assert (producer.asked, producer.partition().log.log_end_offset) == (0, 0)

    run(test, **SETTINGS)
