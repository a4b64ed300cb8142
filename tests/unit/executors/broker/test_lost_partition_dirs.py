"""A partition directory vanishes, or its files change, while a broker owns them."""

import logging
from collections.abc import Callable

import pytest

from sparklog.errors import ErrorCode, StorageError
from sparklog.executors.log_dirs.log_watch import IDLE_MAX
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_nodes import FileNode
from sparklog.types import ResourceType, TopicPartition
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run
from tests.unit.executors.broker.test_log_dirs import Disks, start, with_disks
from tests.unit.executors.broker.test_replication import IDS, TP, in_sync, replica, same_logs, three

CHECK_MS = 20
PARTITION_DIR = "broker-%d/t-0"
LOG = "00000000000000000000.log"

Damage = Callable[[MemoryBackend, str], None]


def directory_deleted(disk: MemoryBackend, partition_dir: str) -> None:
    disk.remove_folder(partition_dir)


def directory_moved(disk: MemoryBackend, partition_dir: str) -> None:
    disk.rename_folder(partition_dir, "elsewhere")


def directory_emptied(disk: MemoryBackend, partition_dir: str) -> None:
    for name in disk.list(partition_dir):
        disk.delete(f"{partition_dir}/{name}")


def file_deleted(disk: MemoryBackend, partition_dir: str) -> None:
    for name in disk.list(partition_dir):
        if name.endswith(".log"):
            disk.delete(f"{partition_dir}/{name}")


def file_cut(disk: MemoryBackend, partition_dir: str) -> None:
    node_of(disk, partition_dir).cut(disk.size(f"{partition_dir}/{LOG}") // 2)


def file_replaced(disk: MemoryBackend, partition_dir: str) -> None:
    disk.put(f"{partition_dir}/{LOG}", bytes(disk.size(f"{partition_dir}/{LOG}") * 2))


DAMAGES: list[Damage] = [
    directory_deleted,
    directory_moved,
    directory_emptied,
    file_deleted,
    file_cut,
    file_replaced,
]


def remains(disk: MemoryBackend, broker_id: int) -> list[str]:
    return [name for name in disk.list(f"broker-{broker_id}") if name.endswith("-lost")]


def node_of(disk: MemoryBackend, partition_dir: str) -> FileNode:
    return dict(disk.files())[f"{partition_dir}/{LOG}"]


def name_of(damage: Damage) -> str:
    return damage.__name__


@pytest.mark.parametrize("damage", DAMAGES, ids=name_of)
@pytest.mark.parametrize("of_leader", [True, False], ids=["leader", "follower"])
def test_a_replica_whose_files_go_is_led_by_others_and_copied_anew(
    damage: Damage, of_leader: bool
) -> None:
    async def test(rig: Rig) -> None:
        await three(rig, min_insync_replicas="2")
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        for number in range(10):
            assert (await client.produce("t", batch(b"%d" % number))).error_code == 0
        victim = leader if of_leader else next(i for i in IDS if i != leader)
        before = replica(rig, victim)
        damage(rig.disk_of(victim), PARTITION_DIR % victim)
        # Nobody writes or reads: the broker itself finds out.
        await until(lambda: rig.brokers[victim].replica_manager.get(TP) not in (before, None))
        leads_now = await in_sync(rig, IDS)
        assert (leads_now != victim) == of_leader or not of_leader
        client = await rig.client(leads_now)
        assert (await client.produce("t", batch(b"after"))).error_code == 0
        code, values = await client.fetch("t")
        assert (code, len(values)) == (0, 11)
        await same_logs(rig, IDS)
        assert rig.brokers[victim].replica_manager.offline == {}
        await until(lambda: not remains(rig.disk_of(victim), victim))

    run(test, log_dir_check_interval_ms=str(CHECK_MS))


def test_no_produce_is_acknowledged_by_a_file_that_became_shorter() -> None:
    """The check would come an hour later; the append itself notices."""

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for number in range(10):
            await client.produce("t", batch(b"%d" % number))
        file_cut(rig.disk, PARTITION_DIR % 1)
        refused = await client.produce("t", batch(b"behind the end"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "something else cut it" in (refused.error_message or "")
        await until(lambda: TP in rig.brokers[1].replica_manager.failed)

    run(test, log_dir_check_interval_ms="3600000")


def test_a_flush_that_was_promised_is_not_made_of_a_file_that_is_gone() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", flush_messages="1")
        await rig.leads(1)
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        rig.disk.remove_folder(PARTITION_DIR % 1)
        refused = await client.produce("t", batch(b"b"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert TP in rig.brokers[1].replica_manager.failed

    run(test, log_dir_check_interval_ms="3600000")


def test_a_flush_that_fails_with_the_directory_gone_is_a_loss() -> None:
    """The flush meets the directory that is gone, before anybody looked at the log's files."""

    async def test(rig: Rig) -> None:
        await three(rig, min_insync_replicas="2", flush_messages="2")
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        for number in range(2):
            assert (await client.produce("t", batch(b"%d" % number))).error_code == 0
        follower = next(i for i in IDS if i != leader)
        # Names are flushed after a start, and no leader epoch is, which would make it again.
        await rig.stop_broker(follower)
        await rig.start_broker(follower, new=False)
        await in_sync(rig, IDS)
        assert (await client.produce("t", batch(b"keeps the file open"))).error_code == 0
        before = replica(rig, follower)
        rig.disk_of(follower).remove_folder(PARTITION_DIR % follower)
        assert (await client.produce("t", batch(b"makes a flush due"))).error_code == 0
        await until(lambda: rig.brokers[follower].replica_manager.get(TP) not in (before, None))
        await in_sync(rig, IDS)
        await same_logs(rig, IDS)

    run(test, log_dir_check_interval_ms="3600000")


def test_a_new_topic_has_no_lost_log_when_an_earlier_one_of_its_name_lost_its_directory() -> None:
    """The broker was away meanwhile; its checkpoint still named the partition."""

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        await client.produce("t", batch(b"of the former"))
        await rig.stop_broker()
        rig.disk.remove_folder(PARTITION_DIR % 1)
        await rig.start_broker(2)
        former = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=5000)
        await (await rig.client(2)).ask(former)
        await rig.start_broker(new=False)
        await rig.stop_broker(2)
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        assert rig.brokers[1].replica_manager.offline == {}

    run(test)


def test_the_log_after_an_accepted_loss_lies_in_the_same_data_directory() -> None:
    """That one knows which offsets were used, and which loss was accepted."""

    async def test(rig: Rig, further: Disks) -> None:
        client = await start(rig, further)
        await client.create_topic("u")
        await rig.leads(1)
        await client.create_topic("t", 3)
        await rig.leads(4)
        former = DeleteTopicsRequest(topics=(DeleteTopicState(name="u"),), timeout_ms=5000)
        await client.ask(former)
        await rig.leads(3)
        replica_manager = rig.brokers[1].replica_manager
        homes = {
            tp: replica_manager.log_dirs.find(tp) for tp in replica_manager.image.partitions_of(1)
        }
        # One of two in the second directory; beside one in the first, where a new one would go.
        second = replica_manager.log_dirs.working[1]
        tp, _ = (tp for tp, home in homes.items() if home is second)
        for number in range(7):
            await client.produce("t", batch(b"%d" % number), partition=tp.partition)
        for accepted in ("", str(tp)):
            await client.alter(ResourceType.BROKER, "1", lost_logs_accept=accepted)
        await lose(rig, further, tp)
        await until(
            lambda: replica_manager.failed.get(tp) is None and replica_manager.get(tp) is not None
        )
        assert replica_manager.log_dirs.find(tp) is homes[tp]
        await rig.leads(3)
        answer = await client.produce("t", batch(b"new"), partition=tp.partition)
        assert (answer.error_code, answer.base_offset) == (0, 7)
        await lose(rig, further, tp)
        await until(lambda: replica_manager.failed.is_lost(tp))
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept=f"other-0,{tp}")
        await until(lambda: "other" in replica_manager.broker_config.lost_logs_accept)
        assert replica_manager.failed.is_lost(tp)

    with_disks(test)


async def lose(rig: Rig, further: Disks, tp: TopicPartition) -> None:
    """Delete a partition directory, on whichever disk, and have the broker look."""
    for disk in (rig.disk, further.backend()):
        disk.remove_folder(f"broker-1/{tp}")
    rig.brokers[1].replica_manager.failures.log_watch.suspect(tp)


@pytest.mark.parametrize(
    "damage", [directory_deleted, directory_emptied, file_deleted], ids=name_of
)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_the_only_replica_stays_offline_until_its_loss_is_accepted(
    damage: Damage, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(partitions=2)
        for number in range(304):
            await client.produce("t", batch(b"%d" % number))
        await client.produce("t", batch(b"of the other"), partition=1)
        if clean:
            await rig.stop_broker()
        else:
            await rig.crash_broker()
        damage(rig.disk, PARTITION_DIR % 1)
        for _ in range(2):
            await rig.start_broker(new=False)
            client = await rig.client()
            await rig.leads(2 - 1)
            assert (await client.fetch("t", max_wait_ms=0))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            refused = await client.produce("t", batch(b"x"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.fetch("t", partition=1) == (0, [b"of the other"])
            assert "t-0" in (await rig.status())["offline"]
            assert await described(client) == [((1,), (1,)), ((1,), ())]
            await rig.stop_broker()
        said = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        assert any("t-0 is offline" in text and "lost.logs.accept" in text for text in said)

        settings = {**rig.settings, "lost.logs.accept": "t-0"}
        await rig.start_broker(new=False, settings=settings)
        await rig.leads(2)
        client = await rig.client()
        answer = await client.produce("t", batch(b"new"))
        assert (answer.error_code, answer.base_offset) == (0, 304 if clean else 0)
        assert await client.fetch("t", answer.base_offset) == (0, [b"new"])

        # The name in the setting accepts no second loss.
        await rig.stop_broker()
        damage(rig.disk, PARTITION_DIR % 1)
        await rig.start_broker(new=False, settings=settings)
        client = await rig.client()
        assert (await client.fetch("t", max_wait_ms=0))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        # A start without the name, then one with it again: that is another decision.
        await rig.stop_broker()
        await rig.start_broker(new=False)
        await rig.stop_broker()
        await rig.start_broker(new=False, settings=settings)
        await rig.leads(2)

    run(test)


async def described(client: Client) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """ISR and offline replicas of each partition of t."""
    response = await client.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),)))
    return [(p.isr_nodes, p.offline_replicas) for p in response.topics[0].partitions]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_a_directory_that_vanished_while_the_broker_was_away_is_copied_from_the_others(
    clean: bool,
) -> None:
    async def test(rig: Rig) -> None:
        await three(rig, min_insync_replicas="2")
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        for number in range(10):
            assert (await client.produce("t", batch(b"%d" % number))).error_code == 0
        await (rig.stop_broker if clean else rig.crash_broker)(leader)
        if not clean:
            await rig.report_broker_death(leader)
        others = [i for i in IDS if i != leader]
        leads_now = await in_sync(rig, others)
        rig.disk_of(leader).remove_folder(PARTITION_DIR % leader)
        broker = await rig.start_broker(leader, new=False)
        registered = rig.control.image.partition(TP)
        assert registered is not None
        assert await in_sync(rig, IDS) == leads_now
        assert len(await same_logs(rig, IDS)) > 0
        assert replica(rig, leader).log.log_end_offset == 10
        assert broker.replica_manager.offline == {}

    run(test)


def test_a_loss_is_accepted_while_the_broker_runs_and_offsets_are_not_used_again() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        for number in range(7):
            await client.produce("t", batch(b"%d" % number))
        rig.disk.remove_folder(PARTITION_DIR % 1)
        replica_manager = rig.brokers[1].replica_manager
        await until(lambda: replica_manager.failed.is_lost(TP))
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept="other-0,t-0")
        await until(
            lambda: replica_manager.failed.get(TP) is None and replica_manager.get(TP) is not None
        )
        await rig.leads(1)
        assert (await client.produce("t", batch(b"new"))).base_offset == 7
        assert await client.fetch("t", 7) == (0, [b"new"])
        rig.disk.remove_folder(PARTITION_DIR % 1)
        await until(lambda: replica_manager.failed.is_lost(TP))
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept="t-0")
        await until(lambda: replica_manager.broker_config.lost_logs_accept == "t-0")
        assert replica_manager.failed.is_lost(TP)
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept="")
        await until(lambda: replica_manager.broker_config.lost_logs_accept == "")
        await client.alter(ResourceType.BROKER, "1", lost_logs_accept="t-0")
        await until(
            lambda: replica_manager.failed.get(TP) is None and replica_manager.get(TP) is not None
        )

    run(test, log_dir_check_interval_ms=str(CHECK_MS))


def test_an_operator_lets_another_replica_lead_when_the_leaders_log_is_lost() -> None:
    """It left the ISR long ago, so nobody else may decide that its records are enough."""

    async def test(rig: Rig) -> None:
        await three(rig)
        leader = await in_sync(rig, IDS)
        client = await rig.client(leader)
        await client.produce("t", batch(b"of all"))
        others = [i for i in IDS if i != leader]
        for broker_id in others:
            await rig.crash_broker(broker_id)
            await rig.report_broker_death(broker_id)
        await in_sync(rig, [leader])
        assert (await client.produce("t", batch(b"of one"))).error_code == 0
        rig.disk_of(leader).remove_folder(PARTITION_DIR % leader)
        await until(lambda: rig.brokers[leader].replica_manager.failed.is_lost(TP))
        for broker_id in others:
            await rig.start_broker(broker_id, new=False)
        state = rig.control.image.partition(TP)
        assert state is not None
        assert (state.leader, state.isr) == (leader, (leader,))
        assert (await client.fetch("t"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        asked = ElectLeadersRequest(
            election_type=1, topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),)
        )
        answer = await client.ask(asked)
        assert answer.replica_election_results[0].partition_result[0].error_code == 0
        assert await in_sync(rig, IDS) in others
        await same_logs(rig, IDS)

    run(test, log_dir_check_interval_ms=str(CHECK_MS))


def test_a_data_directory_that_vanished_whole_is_not_made_anew() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        rig.disk.remove_folder("broker-1")
        await until(lambda: not rig.brokers[1].replica_manager.log_dirs.working)
        assert not rig.disk.exists("broker-1/t-0")

    with pytest.raises(StorageError, match="every data directory has failed"):
        run(test, log_dir_check_interval_ms=str(CHECK_MS))


def test_idle_partitions_are_looked_at_in_turn_a_few_at_a_time() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(partitions=3 * IDLE_MAX)
        looked: list[str] = []
        rig.disk.faults.slow = lambda operation, path: (
            looked.append(path) if operation == "list" else None
        )
        watch = rig.brokers[1].replica_manager.failures.log_watch
        rounds = []
        for _ in range(4):
            await watch.check_round()
            rounds.append(len(looked))
            looked.clear()
        assert sum(rounds) >= 3 * IDLE_MAX
        assert max(rounds) == IDLE_MAX
        await client.produce("t", batch(b"a"), partition=7)
        await watch.check_round()
        assert any(path.endswith("/t-7") for path in looked)

    run(test, log_dir_check_interval_ms="3600000")
