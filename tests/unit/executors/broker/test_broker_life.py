"""A broker's start, stop, crash and absence of the control plane."""

import asyncio
import threading
from uuid import UUID, uuid4

import pytest

from sparklog.errors import ErrorCode, LockedError
from sparklog.executors import broker_stop
from sparklog.executors.broker import Broker
from sparklog.executors.broker_options import BrokerOptions
from sparklog.executors.log_dirs.broker_dir import BrokerStartError, MetaProperties
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from sparklog.wire.protocol.private import RegisterBrokerRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run


def other_process(rig: Rig, directory_id: UUID) -> RegisterBrokerRequest:
    """Another process, with the same directory, takes over broker id 1."""
    return RegisterBrokerRequest(
        cluster_id=rig.control.image.cluster_id,
        broker_id=1,
        directory_id=directory_id,
        incarnation=uuid4(),
        host="127.0.0.1",
        port=1,
    )


def test_a_clean_stop_leaves_the_marker_and_the_next_start_recovers_nothing() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", 2)
        await rig.leads(2)
        assert (await client.produce("t", batch(b"a", b"b"))).error_code == 0
        await rig.stop_broker()
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")
        assert rig.disk.read("broker-1/recovery-point-offset-checkpoint") == b"0\n2\nt 0 2\nt 1 0\n"
        assert rig.control.image.brokers[1].fenced
        await rig.start_broker(new=False)
        assert not rig.disk.exists("broker-1/.kafka_cleanshutdown")
        status = await rig.status()
        assert (status["clean_start"], status["segments_recovered"], status["bytes_scanned"]) == (
            True,
            0,
            0,
        )
        assert rig.control.unclean_recoveries == 0
        client = await rig.client()
        assert await client.fetch("t") == (0, [b"a", b"b"])

    run(test)


def test_a_crash_is_recovered_from_what_the_files_hold() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        epoch = rig.control.image.topics["t"].partitions[0].leader_epoch
        assert (await client.produce("t", batch(b"a", b"b"))).error_code == 0
        await rig.crash_broker()
        await rig.start_broker(new=False)
        status = await rig.status()
        assert status["clean_start"] is False
        assert status["segments_recovered"] == 1
        assert rig.control.image.topics["t"].partitions[0].leader_epoch > epoch
        client = await rig.client()
        assert await client.fetch("t") == (0, [b"a", b"b"])

    run(test)


def test_the_broker_serves_on_while_the_control_plane_is_away() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        await rig.stop_control()
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        assert await client.fetch("t") == (0, [b"a"])
        refused = await client.ask(
            CreateTopicsRequest(topics=(CreatableTopic(name="u", num_partitions=1),))
        )
        assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        incarnation = broker.incarnation
        await rig.start_control()
        version = rig.control.image.version
        await until(lambda: broker.replica_manager.image.version >= version)
        await client.create_topic("u")
        await rig.leads(2)
        assert rig.control.image.brokers[1].incarnation == incarnation
        assert (await client.produce("t", batch(b"b"))).base_offset == 1

    run(test)


def test_a_broker_that_was_fenced_leads_again_without_a_restart() -> None:
    async def test(rig: Rig) -> None:
        from sparklog.wire.protocol.private import LostBroker, ReportLossRequest

        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        before = rig.control.image.topics["t"].partitions[0]
        outcome = rig.control.decide(ReportLossRequest(brokers=(LostBroker(broker_id=1),)))
        assert isinstance(outcome, asyncio.Future)
        await outcome
        (partition,) = broker.replica_manager
        await until(lambda: partition.leader_epoch > before.leader_epoch and partition.is_leader)
        assert (await client.produce("t", batch(b"a"))).error_code == 0

    run(test)


def test_directories_of_topics_that_were_deleted_meanwhile_are_set_aside() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("gone")
        await client.create_topic("kept")
        await client.create_topic("again")
        await rig.leads(3)
        await client.produce("again", batch(b"old"))
        await rig.stop_broker()
        for name in ("gone", "again"):
            outcome = rig.control.decide(
                DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), topic_names=(name,))
            )
            assert isinstance(outcome, asyncio.Future)
            await outcome
        rig.disk.make_folder("broker-1/00000000000000000000000000000007.0-delete")
        await rig.start_broker(new=False)
        client = await rig.client()
        await client.create_topic("again")
        await rig.leads(2)
        directories = [n for n in rig.disk.list("broker-1") if rig.disk.is_folder(f"broker-1/{n}")]
        assert directories == ["again-0", "again-0.1-stray", "gone-0.1-stray", "kept-0"]
        assert await client.fetch("again", max_wait_ms=0) == (0, [])

    run(test)


def test_a_topic_that_is_deleted_and_created_again_starts_empty() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        first = await client.create_topic("t")
        await rig.leads(1)
        await client.produce("t", batch(b"a"))
        waiting = asyncio.create_task((await rig.client()).fetch("t", 1, max_wait_ms=20_000))
        await until(lambda: len(broker.replica_manager.delayed_operations.consumer_fetches) == 1)
        deleted = await client.ask(
            DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        )
        assert deleted.responses[0].error_code == 0
        code, _ = await waiting
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        second = await client.create_topic("t")
        assert first != second
        await until(lambda: [p.topic_id for p in broker.replica_manager if p.is_leader] == [second])
        assert await client.fetch("t", max_wait_ms=0) == (0, [])

    run(test)


def test_metadata_creates_a_missing_topic() -> None:
    async def test(rig: Rig) -> None:
        from sparklog.wire.protocol.messages.metadata import MetadataRequestTopic

        await rig.start_broker()
        client = await rig.client()
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name="auto"),), allow_auto_topic_creation=True
        )
        await client.ask(request)
        await rig.leads(1)
        (topic,) = (await client.ask(request)).topics
        assert (topic.error_code, topic.partitions[0].leader_id) == (0, 1)

    run(test)


def test_a_second_broker_on_the_log_directory_is_locked_out() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        with pytest.raises(LockedError):
            await Broker(rig.options()).start()

    run(test)


def test_a_log_directory_that_is_not_here_is_not_made() -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(BrokerStartError) as caught:
            await Broker(rig.options(new=False)).start()
        assert caught.value.kind == "not_here"
        assert rig.disk.list("") == []

    run(test)


def test_a_log_directory_of_another_cluster_is_refused() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.stop_broker()
        with pytest.raises(BrokerStartError) as caught:
            await Broker(rig.options(cluster_id="other")).start()
        assert caught.value.kind == "foreign_cluster"
        # The lock is free and the marker is still there.
        await rig.start_broker(new=False)
        assert (await rig.status())["clean_start"]

    run(test)


def test_a_secret_of_another_cluster_is_refused() -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(BrokerStartError) as caught:
            await Broker(rig.options(secret="00" * 32)).start()
        assert caught.value.kind == "config"

    run(test)


@pytest.mark.parametrize(
    "changes",
    [{"settings": {"num.partitons": "3"}}, {"controller": "nowhere"}, {"secret": "xyz"}],
)
def test_wrong_options_are_named(changes: dict[str, object]) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(BrokerStartError) as caught:
            Broker(rig.options(**changes))
        assert caught.value.kind == "config"

    run(test)


def test_damage_below_the_recovery_point_takes_one_partition_offline() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("bad")
        await client.create_topic("good")
        await rig.leads(2)
        for topic in ("bad", "good"):
            await client.produce(topic, batch(b"a"))
        await rig.stop_broker()
        rig.disk.delete("broker-1/bad-0/partition.metadata")
        rig.disk.put("broker-1/bad-0/partition.metadata", b"version: 0\ntopic_id: ??\n")
        await rig.start_broker(new=False)
        client = await rig.client()
        code, _ = await client.fetch("bad")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.fetch("good") == (0, [b"a"])
        assert list((await rig.status())["offline"]) == ["bad-0"]
        await rig.stop_broker()
        assert not rig.disk.exists("broker-1/.kafka_cleanshutdown")

    run(test)


def test_a_broker_is_not_heard_of_any_more_when_closing_its_logs_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_stop, "STALLED_S", 0.2)

    async def test(rig: Rig) -> None:
        await rig.with_topic()
        closing, go_on = threading.Event(), threading.Event()

        def hold(operation: str, path: str) -> None:
            if path.endswith(".log"):
                closing.set()
                go_on.wait(30)

        rig.disk.faults.slow = hold
        stopping = asyncio.create_task(rig.stop_broker())
        await until(closing.is_set)
        await until(lambda: not rig.control.image.is_alive(1))
        go_on.set()
        await stopping
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")

    run(test, broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="50")


def test_a_start_can_be_given_up() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.stop_broker()
        await rig.stop_control()
        broker = Broker(rig.options(new=False))
        starting = asyncio.create_task(broker.start())
        await until(lambda: not rig.disk.exists("broker-1/.kafka_cleanshutdown"))
        broker.ask_to_stop("test")
        with pytest.raises(BrokerStartError) as caught:
            await starting
        assert caught.value.kind == "stopped"
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")

    run(test)


def test_a_start_that_is_given_up_after_the_registration_is_a_clean_stop() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.stop_broker()
        await until(lambda: not rig.control.image.is_alive(1))
        broker = Broker(rig.options(new=False))

        async def take_long(_image: object) -> None:
            await asyncio.Event().wait()

        broker._apply = take_long  # type: ignore[method-assign]
        starting = asyncio.create_task(broker.start())
        await until(lambda: rig.control.image.is_alive(1))
        broker.ask_to_stop("test")
        with pytest.raises(BrokerStartError):
            await starting
        assert rig.disk.exists("broker-1/.kafka_cleanshutdown")
        await until(lambda: not rig.control.image.is_alive(1))

    run(test)


def test_a_start_that_is_given_up_while_it_takes_the_directory_leaves_it_clean() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.stop_broker()
        taking, go_on = threading.Event(), threading.Event()

        def hold(operation: str, path: str) -> None:
            if operation == "delete" and path.endswith(".kafka_cleanshutdown"):
                taking.set()
                go_on.wait(10)

        rig.disk.faults.slow = hold
        broker = Broker(rig.options(new=False))
        starting = asyncio.create_task(broker.start())
        await until(taking.is_set)
        broker.ask_to_stop("test")
        for _ in range(10):  # let the stop be noticed
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(BrokerStartError):
            await starting
        rig.disk.faults.clear()
        await rig.start_broker(new=False)
        assert (await rig.status())["clean_start"]

    run(test)


def test_a_log_directory_that_the_cluster_does_not_know_is_not_the_brokers() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        known = broker.directory_id
        await rig.stop_broker()
        # As on a host where an earlier start was given up before the broker could register.
        other = MetaProperties(
            cluster_id=rig.control.image.cluster_id, node_id=1, directory_id=UUID(int=7)
        )
        mine = rig.disk.read("broker-1/meta.properties")
        rig.disk.put("broker-1/meta.properties", other.encode())
        with pytest.raises(BrokerStartError) as caught:
            await Broker(rig.options(new=False)).start()
        assert (caught.value.kind, str(caught.value)) == (
            "not_here",
            f"log directory broker-1 has directory id {other.directory_id}, and the cluster knows "
            f"broker 1 by {known}",
        )
        rig.disk.put("broker-1/meta.properties", mine)
        await rig.start_broker(new=False)
        await rig.leads(1)

    run(test)


def test_an_unclean_stop_is_not_forgotten_by_a_start_that_failed() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        await rig.crash_broker()
        await rig.stop_control()
        broker = Broker(rig.options(new=False))
        starting = asyncio.create_task(broker.start())
        await until(lambda: broker._log_dirs is not None)
        broker.ask_to_stop("test")
        with pytest.raises(BrokerStartError):
            await starting
        assert not rig.disk.exists("broker-1/.kafka_cleanshutdown")

    run(test)


def test_a_broker_whose_id_is_taken_while_it_starts_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparklog.executors.controller_link.lifecycle.FIND_CONTROLLER_S", 0.3)

    async def test(rig: Rig) -> None:
        broker = Broker(rig.options())
        registration = broker._lifecycle
        register_once = registration._register_once

        async def lose_the_id() -> None:
            await register_once()
            outcome = rig.control.decide(other_process(rig, broker.directory_id))
            assert isinstance(outcome, asyncio.Future)
            await outcome

        registration._register_once = lose_the_id  # type: ignore[method-assign]
        with pytest.raises(BrokerStartError, match="another process has registered as broker 1"):
            await broker.start()

    run(test)


def test_secrets_are_not_shown() -> None:
    options = BrokerOptions(
        cluster_id="c",
        broker_id=1,
        data_dir="d",
        controller="h:1",
        secret="abcdef",
        remote_options={"secret": "uvwxyz"},
    )
    assert not any(secret in repr(options) for secret in ("abcdef", "uvwxyz"))


def test_a_broker_whose_id_went_to_another_process_serves_nothing() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        outcome = rig.control.decide(other_process(rig, broker.directory_id))
        assert isinstance(outcome, asyncio.Future)
        await outcome
        await until(lambda: not any(partition.is_leader for partition in broker.replica_manager))
        refused = await client.produce("t", batch(b"a"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test, broker_heartbeat_interval_ms="60000")
