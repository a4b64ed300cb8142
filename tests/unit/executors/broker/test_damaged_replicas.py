"""Damage on a broker's disk: found by a scrub, a follower or a reader, repaired from a replica."""

import asyncio
import threading

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.range_repair import UnfitBatchError
from sparklog.executors.log.segment_scrub import SegmentScrub
from sparklog.executors.replica_manager.log_maintenance import apply_retention
from sparklog.executors.replication import log_scrubber
from sparklog.executors.replication.range_repairer import RangeRepairer
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition
from sparklog.wire.protocol.private import ReportDamageRequest, ReportDamageResponse
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.broker.test_replication import IDS, TP, in_sync, replica, three

SMALL = {"segment_bytes": "2000", "index_interval_bytes": "400"}
COUNT = 40
#: Soon enough for a test, and never unless a test asks for it.
SCRUB = {"log_scrub_interval_ms": "50"}
NEVER = {"log_scrub_interval_ms": "-1"}


async def filled(rig: Rig, *, factor: int = 3) -> tuple[int, Client]:
    """Topic ``t`` with several sealed segments; its leader, and a client of that."""
    leader = 1
    if factor == 3:
        await three(rig, **SMALL)
        leader = await in_sync(rig, IDS)
    else:
        await rig.with_topic(**SMALL)
    client = await rig.client(leader)
    for number in range(COUNT):
        result = await client.produce("t", batch(b"%04d" % number, b"x" * 200))
        assert result.error_code == 0
    ids = IDS if factor == 3 else (1,)
    await until(lambda: all(replica(rig, i).high_watermark == 2 * COUNT for i in ids))
    await until(lambda: all(len(replica(rig, i).log.segments) > 3 for i in ids))
    return leader, client


def files(rig: Rig, broker_id: int) -> dict[str, bytes]:
    """The log files of a replica, by their names."""
    found = rig.disk_of(broker_id).files(".log")
    return {path.rpartition("/")[2]: bytes(node.data) for path, node in found}


def damage(rig: Rig, broker_id: int, *, segment: int = 1, at: int = 300, size: int = 256) -> str:
    """Overwrite bytes of a segment on a broker's disk; the name of the file."""
    path, node = sorted(rig.disk_of(broker_id).files(".log"))[segment]
    for position in range(at, min(at + size, len(node.data))):
        node.damage(position, 0xA5)
    return path.rpartition("/")[2]


async def whole_again(rig: Rig, before: dict[str, bytes], broker_id: int) -> None:
    await until(lambda: before.items() <= files(rig, broker_id).items())


async def read_from(client: Client, offset: int) -> int:
    """The error code of a fetch."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    response = await client.fetch_all("t", (part,))
    ((data,),) = [topic.partitions for topic in response.responses]
    return int(data.error_code)


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_scrub_finds_damage_and_repairs_it_with_the_bytes_of_another_replica(victim: str) -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        broker_id = leader if victim == "leader" else next(i for i in IDS if i != leader)
        before = files(rig, broker_id)
        isr = replica(rig, leader).state
        damage(rig, broker_id)
        assert files(rig, broker_id) != before
        await whole_again(rig, before, broker_id)
        replica_manager = rig.brokers[broker_id].replica_manager
        await until(lambda: replica_manager.counters.damaged_ranges_mended == 1)
        status = await rig.status(broker_id)
        assert (status["damaged_ranges_found"], status["damaged_ranges"]) == (1, {})
        assert 256 <= status["damaged_bytes_mended"] < 2000
        assert (await client.fetch("t", 0))[0] == 0
        # Nobody took that for a follower that lags, or a leader that fails.
        assert replica(rig, leader).state == isr
        assert replica_manager.offline == {}

    run(test, **SCRUB)


def test_several_ranges_on_every_replica_in_turn() -> None:
    async def test(rig: Rig) -> None:
        await filled(rig)
        for broker_id in IDS:
            before = files(rig, broker_id)
            damage(rig, broker_id, segment=0, at=0, size=70)
            damage(rig, broker_id, segment=1, at=900, size=600)
            damage(rig, broker_id, segment=2, at=1200, size=3)
            await whole_again(rig, before, broker_id)
        (one, *others) = [files(rig, broker_id) for broker_id in IDS]
        assert [one] * 2 == others

    run(test, **SCRUB)


def test_what_is_damaged_everywhere_is_refused_until_a_replica_has_it_again() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        others = [i for i in IDS if i != leader]
        sound = files(rig, leader)
        for broker_id in IDS:
            name = damage(rig, broker_id, at=300, size=256)
        tables = [rig.brokers[i].replica_manager for i in IDS]
        await until(
            lambda: all(replica_manager.counters.damaged_ranges_found for replica_manager in tables)
        )
        first = replica(rig, leader).log.damage.ranges[0][1].first_offset
        await until(lambda: bool(replica(rig, leader).log.damage.unrepairable))
        assert await read_from(client, first) == ErrorCode.CORRUPT_MESSAGE
        assert await read_from(client, first - 1) == 0
        assert {i: files(rig, i)[name] != sound[name] for i in IDS} == dict.fromkeys(IDS, True)
        # Somebody brings one of the files back.
        ((_, node),) = rig.disk_of(others[0]).files(name)
        node.data[:] = sound[name]
        node.flushed[:] = sound[name]
        await whole_again(rig, sound, leader)
        await until(lambda: not replica(rig, leader).log.damage.ranges)
        assert await read_from(client, first) == 0

    run(test, **SCRUB)


def test_a_follower_tells_its_leader_of_damage_and_goes_on() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        behind = next(i for i in IDS if i != leader)
        before = files(rig, leader)
        await rig.stop_broker(behind)
        rig.disk_of(behind).remove_folder(f"broker-{behind}/t-0")
        damage(rig, leader)
        await rig.start_broker(behind, new=False)
        await whole_again(rig, before, leader)
        await in_sync(rig, IDS)
        await until(lambda: replica(rig, behind).log.log_end_offset == 2 * COUNT)
        assert b"".join(files(rig, behind).values()) == b"".join(before.values())
        status = await rig.status(leader)
        assert (status["damaged_ranges_found"], status["damaged_ranges_mended"]) == (1, 1)
        assert (await client.produce("t", batch(b"more"))).error_code == 0

    run(test, **NEVER)


def test_damage_in_the_active_segment_is_repaired_too() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        before = files(rig, leader)
        active = len(before) - 1
        damage(rig, leader, segment=active, at=0, size=40)
        base = replica(rig, leader).log.segments[-1].base_offset
        assert await read_from(client, base) == ErrorCode.KAFKA_STORAGE_ERROR
        # Whoever sees it, the log goes on: its active segment takes no harm.
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        await until(lambda: rig.brokers[leader].replica_manager.counters.damaged_ranges_mended == 1)
        assert all(files(rig, leader)[name].startswith(data) for name, data in before.items())
        assert await read_from(client, base) == 0
        assert replica(rig, leader).log.offline is None

    run(test, **NEVER)


def test_a_reader_that_asks_again_and_again_has_the_leader_look() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        before = files(rig, leader)
        name = damage(rig, leader, at=370, size=100)  # in the records of a batch: it is served
        offset = int(name.removesuffix(".log"))
        for _ in range(3):
            assert await read_from(client, offset + 1) == 0
        await whole_again(rig, before, leader)

    run(test, **NEVER)


def test_readers_cannot_have_a_segment_checked_all_the_time() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        counters = rig.brokers[leader].replica_manager.counters
        for _ in range(3):
            await read_from(client, 3)
        await until(lambda: counters.scrub_bytes > 0)
        checked = counters.scrub_bytes
        for _ in range(60):
            await read_from(client, 3)
        assert counters.scrub_bytes == checked
        assert (await rig.status(leader))["segments_suspected"] == 1

    run(test, **NEVER)


def test_a_single_replica_serves_what_is_sound_and_names_what_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(rig: Rig) -> None:
        _, client = await filled(rig, factor=1)
        name = damage(rig, 1)
        replica_manager = rig.brokers[1].replica_manager
        await until(lambda: replica_manager.counters.damaged_ranges_found == 1)
        ((_, damaged),) = replica(rig, 1).log.damage.ranges
        await until(lambda: damaged in replica(rig, 1).log.damage.unrepairable)
        offsets = range(damaged.first_offset, damaged.end_offset)
        codes = {offset: await read_from(client, offset) for offset in range(2 * COUNT)}
        bad = [offset for offset, code in codes.items() if code]
        assert bad == list(offsets)
        assert {codes[offset] for offset in bad} == {ErrorCode.CORRUPT_MESSAGE}
        assert 0 < len(bad) <= 6
        assert (await client.produce("t", batch(b"more"))).error_code == 0
        code, values = await client.fetch("t", 2 * COUNT)
        assert (code, values) == (0, [b"more"])
        assert replica_manager.offline == {}
        (said,) = (await rig.status(1))["damaged_ranges"]["t-0"]
        for text in (said, caplog.text):
            assert name in text
            assert f"offsets {bad[0]} to {bad[-1]}" in text

    run(test, **SCRUB)


def test_a_scrub_reads_no_faster_than_it_may() -> None:
    async def test(rig: Rig) -> None:
        await filled(rig, factor=1)
        counters = rig.brokers[1].replica_manager.counters
        loop = asyncio.get_running_loop()
        await until(lambda: counters.scrub_bytes > 0)
        began_s, began = loop.time(), counters.scrub_bytes
        await until(lambda: counters.scrub_bytes >= began + 12_000)
        # The bytes of the step at the end are paid for after it.
        assert loop.time() - began_s >= (12_000 - 2_000) / 20_000 * 0.9

    run(test, log_scrub_interval_ms="1", log_scrub_io_max_bytes_per_second="20000")


def test_an_index_that_rots_is_made_anew() -> None:
    async def test(rig: Rig) -> None:
        await filled(rig, factor=1)
        log = replica(rig, 1).log
        await until(lambda: not log.statistics.pending)
        path, node = sorted(rig.disk.files(".timeindex"))[0]
        before = bytes(node.data)
        assert before
        node.damage(len(before) - 1, 0x10)
        await until(lambda: bytes(dict(rig.disk.files(".timeindex"))[path].data) == before)

    run(test, **SCRUB)


def test_a_disk_that_refuses_the_repaired_bytes_takes_the_replica_offline_and_others_lead() -> None:
    async def test(rig: Rig) -> None:
        leader, _ = await filled(rig)
        rig.disk_of(leader).faults.fail_next(100, "overwrite")
        damage(rig, leader)
        others = [i for i in IDS if i != leader]
        assert await in_sync(rig, others) in others
        assert TP in rig.brokers[leader].replica_manager.offline
        rig.disk_of(leader).faults.clear()

    run(test, **SCRUB)


def test_a_replica_whose_layout_is_another_is_given_up_and_copied_anew() -> None:
    """What belongs there does not fit between the batches that seem to be sound here."""

    async def test(rig: Rig) -> None:
        leader, _ = await filled(rig)
        log = replica(rig, leader).log
        segment = log.segments[1]
        first = segment.locate(segment.base_offset)
        assert first is not None
        wrong = DamagedRange(
            position=0,
            end=first.end + 10,
            first_offset=segment.base_offset,
            end_offset=first.last_offset + 1,
            reason="a test says so",
        )
        damage(rig, leader, at=0, size=40)
        assert log.damage.add(segment, wrong)
        epoch = replica(rig, leader).leader_epoch
        log.damage.suspect(segment.base_offset)
        await until(lambda: rig.control.image.partition(TP).leader_epoch > epoch)  # type: ignore[union-attr]
        sound = await in_sync(rig, IDS)
        # The directory of the lost log is removed only after its copy is in sync.
        await until(
            lambda: b"".join(files(rig, leader).values()) == b"".join(files(rig, sound).values())
        )

    run(test, **NEVER)


def test_retention_may_take_a_segment_while_it_is_repaired() -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        partition = replica(rig, leader)
        loop, path = asyncio.get_running_loop(), sorted(files(rig, leader))[0]
        deleted = asyncio.Event()

        def delete(operation: str, where: str) -> None:
            """Between the last look at the segment and the opening of its file."""
            if operation == "open" and path in where and partition.log.segments[0].damaged:
                replica_manager = rig.brokers[leader].replica_manager
                loop.call_soon_threadsafe(apply_retention, replica_manager)
                loop.call_soon_threadsafe(deleted.set)
                until_gone.wait(10)

        until_gone = threading.Event()
        await client.alter(2, "t", retention_bytes="1")
        await until(lambda: partition.log.config.retention_bytes == 1)
        rig.disk_of(leader).faults.slow = delete
        damage(rig, leader, segment=0, at=0, size=40)
        partition.log.damage.suspect(0)
        await deleted.wait()
        await until(lambda: path not in files(rig, leader))
        until_gone.set()
        rig.disk_of(leader).faults.slow = None
        await rig.brokers[leader].replica_manager.log_workers.end_work(TP)
        assert (partition.log.damage.ranges, partition.log.offline) == ([], None)
        assert (await client.produce("t", batch(b"more"))).error_code == 0

    run(test, **NEVER)


def test_a_damaged_batch_that_holds_the_log_start_is_repaired() -> None:
    """Other replicas give nothing below the log start, but the whole batch that holds it."""

    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        result = await client.produce("t", batch(*[b"%d" % n for n in range(10)]))
        assert result.error_code == 0
        start = 2 * COUNT + 4
        before = files(rig, leader)
        segment = replica(rig, leader).log.segments[-1]
        found = segment.locate(start)
        assert found is not None
        assert found.base_offset < start <= found.last_offset
        wanted = DeleteRecordsPartition(partition_index=0, offset=start)
        topic = DeleteRecordsTopic(name="t", partitions=(wanted,))
        await client.ask(DeleteRecordsRequest(topics=(topic,), timeout_ms=5000))
        log = replica(rig, leader).log
        await until(lambda: all(replica(rig, i).log.log_start_offset == start for i in IDS))
        index = list(before).index(segment.log_path.rpartition("/")[2])
        damage(rig, leader, segment=index, at=found.position + 8, size=60)
        assert await read_from(client, start) == ErrorCode.KAFKA_STORAGE_ERROR
        counters = rig.brokers[leader].replica_manager.counters
        await until(lambda: counters.damaged_ranges_found == 1)
        await until(lambda: counters.damaged_ranges_mended == 1)
        assert await read_from(client, start) == 0
        assert log.offline is None

    run(test, **NEVER)


def test_batches_of_a_replica_that_is_not_in_sync_which_do_not_fit_leave_the_damage_final(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        partition = replica(rig, leader)
        others, asked = [i for i in IDS if i != leader], list[int]()

        async def refuse(_repairer: RangeRepairer, broker_id: int, *_: object) -> None:
            asked.append(broker_id)
            raise UnfitBatchError("a test says so")

        for broker_id in others:
            await rig.stop_broker(broker_id)
        monkeypatch.setattr(RangeRepairer, "_repair_from", refuse)
        await until(lambda: partition.state is not None and partition.state.isr == (leader,))
        monkeypatch.setattr(
            type(rig.brokers[leader].replica_manager.image), "is_alive", lambda *_: True
        )
        damage(rig, leader)
        log = partition.log
        log.damage.suspect(log.segments[1].base_offset)
        await until(lambda: bool(log.damage.unrepairable))
        ((_, damaged),) = log.damage.ranges
        assert await read_from(client, damaged.first_offset) == ErrorCode.CORRUPT_MESSAGE
        assert sorted(asked) == others
        assert log.offline is None

    run(test, **NEVER)


def test_an_error_that_nobody_expected_does_not_end_the_scrub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        leader, client = await filled(rig)
        #: More than one for each broker: a scrub that ends at an error cannot use them up.
        failures: list[Exception] = [ValueError("a test"), KeyError("a test")] * 2
        sound = SegmentScrub.check_more

        def check_more(scrub: SegmentScrub) -> int:
            if failures:
                raise failures.pop()
            return sound(scrub)

        monkeypatch.setattr(log_scrubber, "FAILED_REST_S", 0.01)
        monkeypatch.setattr(SegmentScrub, "check_more", check_more)
        await until(lambda: not failures)
        before = files(rig, leader)
        damage(rig, leader)
        await whole_again(rig, before, leader)
        assert (await client.produce("t", batch(b"more"))).error_code == 0

    run(test, **SCRUB)


def test_suspicions_that_never_end_do_not_keep_a_scrub_from_its_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(rig: Rig) -> None:
        await filled(rig, factor=1)
        log, counters = replica(rig, 1).log, rig.brokers[1].replica_manager.counters
        sound = SegmentScrub.check_more

        def check_more(scrub: SegmentScrub) -> int:
            loop.call_soon_threadsafe(log.damage.suspect, 0)
            loop.call_soon_threadsafe(log.damage.suspect, log.segments[1].base_offset)
            return sound(scrub)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(log_scrubber, "CHECK_AGAIN_S", 0.0)
        monkeypatch.setattr(SegmentScrub, "check_more", check_more)
        log.damage.suspect(0)
        passes = counters.scrub_passes
        await until(lambda: counters.scrub_passes > passes + 1)

    run(test, **SCRUB)


async def _report(rig: Rig, to: int, offset: int, partition: int = 0) -> ReportDamageResponse:
    topic = rig.control.image.topic("t")
    assert topic is not None
    endpoint = Endpoint("127.0.0.1", rig.brokers[to].port)
    link = ControllerConnection(endpoint, rig.control.secret, client_id="t")
    try:
        request = ReportDamageRequest(topic_id=topic.topic_id, partition=partition, offset=offset)
        answer = await link.call(request, ReportDamageResponse, 20)
    finally:
        link.close()
    assert isinstance(answer, ReportDamageResponse)
    return answer


def test_only_members_may_report_damage_and_only_of_what_is_there() -> None:
    async def test(rig: Rig) -> None:
        _, client = await filled(rig, factor=1)
        refused = await client.ask(ReportDamageRequest(), 0)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert (await _report(rig, 1, 3)).error_code == 0
        codes: list[int] = []
        for offset, partition in ((2 * COUNT, 0), (-1, 0), (0, 7)):
            try:
                codes.append((await _report(rig, 1, offset, partition)).error_code)
            except KafkaError as error:
                codes.append(error.code)
        assert codes == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert rig.brokers[1].replica_manager.counters.damaged_ranges_found == 0

    run(test, **NEVER)
