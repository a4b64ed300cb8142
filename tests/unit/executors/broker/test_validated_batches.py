"""``sparklog.validate.batches=records``: what cannot be decoded is refused, in order of arrival."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ConnectError, ErrorCode, KafkaError
from sparklog.executors.partition import Appended
from sparklog.executors.replica_manager import record_validation as batch_validation
from sparklog.types import Compression, TopicPartition
from sparklog.wire.protocol.codec import decode_response
from sparklog.wire.protocol.messages.produce import ProduceResponse
from sparklog.wire.protocol.produce import encode_produce_request
from sparklog.wire.records.batch import BATCH_OVERHEAD, pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.compression import compress
from sparklog.wire.records.few_records import RECORDS_MAX
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, produce_request, run

RECORDS = {"sparklog_validate_batches": "records"}
TOPIC_KIND = 2


def around(section: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    return pack_batch(
        section, attributes=int(codec), record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip


def section(*offsets: int) -> bytes:
    records = [Record(value=b"v", offset=offset) for offset in offsets]
    return encode_batch(records)[BATCH_OVERHEAD:]


ZSTD = Compression.ZSTD
POISON = {
    "garbage": around(b"\xee" * 700, 2),
    "broken zstd": around(b"\x28\xb5\x2f\xfd" + b"\x55" * 90, 2, ZSTD),
    "a count that is too large": around(compress(ZSTD, section(0, 1)), 3, ZSTD),
    "a count that is too small": around(compress(ZSTD, section(0, 1)), 1, ZSTD),
    "offsets that are none": around(section(0, 7), 2),
    "offsets below the batch": around(section(-3, -2), 2),
}


@pytest.mark.parametrize("name", POISON)
@pytest.mark.parametrize("acks", [1, -1])
def test_poison_is_refused_and_changes_nothing(name: str, acks: int) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**RECORDS)
        assert (await client.produce("t", batch(b"a"), acks=acks)).base_offset == 0
        refused = await client.produce("t", POISON[name], acks=acks)
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert "cannot be decoded" in str(refused.error_message)
        assert (await client.produce("t", batch(b"b"), acks=acks)).base_offset == 1
        assert await client.fetch("t") == (0, [b"a", b"b"])
        assert (await rig.status())["refused_appends"] == 1

    run(test)


COMPACT = {"cleanup_policy": "compact"}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("keyless", [0, 699])
def test_a_compacted_topic_refuses_a_record_without_a_key(keyless: int, codec: Compression) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        keys = [b"k%d" % n for n in range(700)]
        records = [Record(key=key, value=b"v" * 9) for key in keys]
        records[keyless] = Record(value=b"v" * 9)
        refused = await client.produce("t", encode_batch(records, compression=codec))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert refused.error_message == (
            f"record {keyless} of the batch has no key, which a compacted topic needs"
        )
        records[keyless] = Record(key=b"", value=None)
        taken = await client.produce("t", encode_batch(records, compression=codec))
        assert (taken.error_code, taken.base_offset) == (0, 0)

    run(test)


@pytest.mark.parametrize("name", POISON)
def test_a_compacted_topic_refuses_what_could_not_be_compacted(name: str) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**COMPACT)
        refused = await client.produce("t", POISON[name])
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert "cannot be decoded" in str(refused.error_message)

    run(test)


def test_few_keys_are_checked_at_once_unless_batches_wait() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(**COMPACT)
        replica_manager = rig.brokers[1].replica_manager
        partition = replica_manager.get(TopicPartition("t", 0))
        assert partition is not None
        few, many = ([Record(key=b"k")] * count for count in (1, RECORDS_MAX + 1))

        def submit(*records: Record) -> "asyncio.Future[Appended | KafkaError]":
            return replica_manager.validations.submit(partition, encode_batch(records), 1)

        def base_offset(outcome: Appended | KafkaError) -> int:
            assert isinstance(outcome, Appended), outcome
            return outcome.base_offset

        assert base_offset(submit(*few).result()) == 0
        refusal = submit(*few, Record(value=b"v")).result()
        assert isinstance(refusal, KafkaError)
        assert "record 1 of the batch has no key" in refusal.message
        waiting = [submit(*many), submit(*few)]
        assert not any(each.done() for each in waiting)
        assert [base_offset(each) for each in await asyncio.gather(*waiting)] == [1, len(many) + 1]
        assert base_offset(submit(*few).result()) == len(many) + 2

    run(test)


@pytest.mark.parametrize("codec", list(Compression))
def test_sound_batches_of_every_codec_are_appended(codec: Compression) -> None:
    async def test(rig: Rig) -> None:
        client, topic_id = await rig.with_topic(**RECORDS)
        records = [Record(value=b"%d" % n, key=b"k", headers=(("h", b"x"),)) for n in range(600)]
        topics: list[str | UUID] = ["t", topic_id]
        for topic, version in zip(topics, (11, 13), strict=True):
            sent = encode_batch(records, compression=codec)
            answer = await client.produce(topic, sent, version=version)
            assert answer.error_code == 0
        found = await client.fetch("t", partition_max_bytes=1 << 25)
        assert found == (0, [record.value for record in records] * 2)

    run(test)


def test_pipelined_batches_keep_their_order_and_each_its_answer() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**RECORDS)
        sent = [batch(b"%d" % n) if n % 5 else POISON["garbage"] for n in range(40)]
        answers = await asyncio.gather(*(client.produce("t", each, acks=1) for each in sent))
        codes = [answer.error_code for answer in answers]
        assert codes == [0 if n % 5 else ErrorCode.INVALID_RECORD for n in range(40)]
        assert await client.fetch("t") == (0, [b"%d" % n for n in range(40) if n % 5])

    run(test)


def test_the_setting_may_change_while_requests_repeat_each_other() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for n in range(3):  # the third is handled as a repetition of the others
            await client.produce("t", batch(b"%d" % n), acks=1)
        assert (await client.produce("t", POISON["garbage"], acks=1)).error_code == 0
        await set_validation(rig, client, "records")
        answer = await client.produce("t", POISON["garbage"], acks=1)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        await set_validation(rig, client, "header")
        assert (await client.produce("t", POISON["garbage"], acks=1)).error_code == 0

    run(test)


async def set_validation(rig: Rig, client: Client, value: str) -> None:
    await client.alter(TOPIC_KIND, "t", sparklog_validate_batches=value)
    partition = rig.brokers[1].replica_manager.get(TopicPartition("t", 0))
    assert partition is not None
    await until(lambda: partition.config.sparklog_validate_batches == value)


def test_acks_0_is_validated_too_and_poison_ends_the_connection() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**RECORDS)
        for data in (batch(b"a"), batch(b"b")):
            silent = produce_request("t", data, 0, 0)
            await client.connection.send(encode_produce_request(9, 1, "t", silent))
        assert (await client.produce("t", batch(b"c"))).base_offset == 2
        lost = produce_request("t", POISON["garbage"], 0, 0)
        await client.connection.send(encode_produce_request(9, 1, "t", lost))
        with pytest.raises(ConnectError):
            await fetch_for_ever(client)

    run(test)


async def fetch_for_ever(client: Client) -> None:
    while True:
        await client.fetch("t")


@pytest.mark.parametrize("partitions", [1, 70])  # the latter's request is handled in slices
def test_what_is_acknowledged_during_a_validation_is_answered(partitions: int) -> None:
    """High watermarks move before the records for the last partition of a request are decoded."""

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(partitions, flush_messages="1")
        await client.create_topic("compacted", **COMPACT)
        await rig.leads(partitions + 1)
        replica_manager = rig.brokers[1].replica_manager
        numbers = range(partitions)
        plain = [replica_manager.find("t", number) for number in numbers]
        requests = [produce_request("t", batch(b"a"), number, -1) for number in numbers]
        keyed = encode_batch([Record(key=b"k")] * (RECORDS_MAX + 1))
        requests.append(produce_request("compacted", keyed, 0, -1))
        topics = tuple(topic for request in requests for topic in request.topic_data)
        sent = encode_produce_request(9, 6, "t", replace(requests[0], topic_data=topics))
        async with AsyncExitStack() as held:  # no worker decodes records
            for _ in range(batch_validation.VALIDATIONS_AT_ONCE):
                await held.enter_async_context(replica_manager.validations._gate)
            answer = asyncio.ensure_future(client.connection.request(sent))
            await until(lambda: all(partition.high_watermark == 1 for partition in plain))
        _, response = decode_response(ProduceResponse, 9, await answer)
        results = [part for topic in response.responses for part in topic.partition_responses]
        assert [(part.error_code, part.base_offset) for part in results] == [(0, 0)] * len(topics)

    run(test)


def test_more_than_may_wait_is_refused_and_may_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_validation, "QUEUED_BYTES_MAX", 10)

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(**RECORDS)
        replica_manager = rig.brokers[1].replica_manager
        partition = replica_manager.get(TopicPartition("t", 0))
        assert partition is not None
        # The first has more than may wait too, but nothing waits before it.
        first, second = (
            replica_manager.validations.submit(partition, batch(b"a"), 1) for _ in range(2)
        )
        refusal = await second
        assert isinstance(refusal, KafkaError)
        assert refusal.code is ErrorCode.REQUEST_TIMED_OUT
        assert isinstance(await first, Appended)
        monkeypatch.setattr(batch_validation, "QUEUED_BYTES_MAX", 1000)
        for n in range(1, 30):  # what was appended does not count any more
            assert (await client.produce("t", batch(b"a"))).base_offset == n

    run(test)


@pytest.mark.parametrize("begun", [False, True])
def test_what_waits_when_a_partition_is_closed_is_answered(begun: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic(**RECORDS)
        replica_manager = rig.brokers[1].replica_manager
        partition = replica_manager.get(TopicPartition("t", 0))
        assert partition is not None
        waiting = [
            replica_manager.validations.submit(partition, batch(b"%d" % n), 1) for n in range(3)
        ]
        if begun:
            await asyncio.sleep(0)
        await replica_manager.validations.refuse_waiting(partition)
        for outcome in waiting:
            refusal = outcome.result()
            assert isinstance(refusal, KafkaError)
            assert refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The bytes are free again, and the partition's next batch is worked on.
        after = await replica_manager.validations.submit(partition, batch(b"a"), 1)
        assert isinstance(after, Appended)
        assert after.base_offset == 0

    run(test)


def test_a_batch_does_not_overtake_those_that_wait_when_the_setting_ends() -> None:
    async def test(rig: Rig) -> None:
        _, _ = await rig.with_topic(**RECORDS)
        replica_manager = rig.brokers[1].replica_manager
        partition = replica_manager.get(TopicPartition("t", 0))
        assert partition is not None
        waiting = replica_manager.validations.submit(partition, batch(b"a"), 1)
        partition.config = replace(partition.config, sparklog_validate_batches="header")
        assert replica_manager.validations.wants(partition)
        await waiting
        await until(lambda: not replica_manager.validations.wants(partition))

    run(test)
