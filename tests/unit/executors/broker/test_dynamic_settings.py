"""Every setting that can change while brokers run really takes effect, on brokers and node 0."""

from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS
from sparklog.errors import ConnectError
from sparklog.executors.replica_manager.log_maintenance import expire_producers
from sparklog.transport import connect
from sparklog.types import Endpoint, ResourceType
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run

BROKER = ResourceType.BROKER
#: A value of each broker-wide topic default that is not the default.
TOPIC_DEFAULTS = {
    "compression.type": None,
    "log.cleaner.delete.retention.ms": "21",
    "log.cleaner.max.compaction.lag.ms": "22",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "23",
    "log.cleanup.policy": "compact",
    "log.flush.interval.messages": "7",
    "log.flush.interval.ms": "9",
    "log.index.interval.bytes": "100",
    "log.index.size.max.bytes": "800",
    "log.local.retention.bytes": "12344",
    "log.local.retention.ms": "5999",
    "log.message.timestamp.after.max.ms": "10",
    "log.message.timestamp.before.max.ms": "11",
    "log.message.timestamp.type": "LogAppendTime",
    "log.preallocate": "true",
    "log.retention.bytes": "12345",
    "log.retention.ms": "6000",
    "log.roll.jitter.ms": "3",
    "log.roll.ms": "77",
    "log.segment.bytes": "4000",
    "log.segment.delete.delay.ms": "5",
    "message.max.bytes": "999",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "true",
}
#: What the tests below, test_moving_replicas, test_lost_partition_dirs, test_log_cleaner,
#: test_transactional_produce, test_write_txn_markers and tiering/test_tiering_settings show.
OTHERS = {
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "lost.logs.accept",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "log.scrub.interval.ms",
    "log.scrub.io.max.bytes.per.second",
    "num.recovery.threads.per.data.dir",
    "producer.id.expiration.ms",
    "remote.fetch.max.wait.ms",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.task.interval.ms",
    "remote.object.delete.delay.ms",
    "remote.signed.url.lifetime.ms",
    "sparklog.client.abort.markers.enable",
    "transaction.partition.verification.enable",
}
#: What no single broker may see differently.
OF_ALL_BROKERS = {"min.insync.replicas", "unclean.leader.election.enable"}


def test_this_file_covers_every_dynamic_setting() -> None:
    dynamic = {setting.name for setting in BROKER_SETTING_BY_NAME.values() if setting.dynamic}
    assert dynamic == TOPIC_DEFAULTS.keys() | OTHERS


def test_broker_wide_topic_defaults_reach_open_partitions() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        (partition,) = rig.brokers[1].replica_manager
        wanted = {
            setting: TOPIC_DEFAULTS[setting.broker_name]
            for setting in TOPIC_SETTINGS
            if setting.broker_name is not None
        }
        for setting, text in wanted.items():
            if text is None:  # there is only one value
                continue
            assert setting.broker_name is not None
            before = getattr(partition.config, setting.field)
            for name in [""] if setting.name in OF_ALL_BROKERS else ["", "1"]:
                await client.alter(BROKER, name, **{setting.broker_name: text})
                value = setting.parse(text)
                assert value != before
                await until(lambda s=setting, v=value: getattr(partition.config, s.field) == v)  # type: ignore[misc]
                await client.alter(BROKER, name, **{setting.broker_name: None})
                await until(lambda s=setting, v=before: getattr(partition.config, s.field) == v)  # type: ignore[misc]

    run(test)


def test_producers_expire_by_the_new_time() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        assert (await client.produce("t", batch(b"a", **producer))).error_code == 0
        (partition,) = broker.replica_manager
        expire_producers(broker.replica_manager)
        assert len(partition.producers.entries) == 1
        await client.alter(BROKER, "1", producer_id_expiration_ms="1")

        def is_forgotten() -> bool:
            expire_producers(broker.replica_manager)
            return not partition.producers.entries

        await until(is_forgotten)

    run(test)


async def _is_let_in(port: int) -> bool:
    connection = await connect(Endpoint("127.0.0.1", port), 5)
    try:
        await connection.request([b"\0\x12\0\0\0\0\0\5\xff\xff"])  # ApiVersions v0
        await connection.request([b"\0\3\0\1\0\0\0\6\xff\xff\0\0\0\0"])  # Metadata v1
    except ConnectError:
        return False
    finally:
        connection.close()
    return True


def test_limits_of_connections_change_on_brokers_and_on_node_0_and_members_come_in() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        ports = {broker.port: broker._server, rig.control.port: rig.control._server}
        changes = (
            {"max_connections": "0"},
            {"max_connections_per_ip": "1"},
            {"max_connections_per_ip": "0", "max_connections_per_ip_overrides": "10.0.0.1:1"},
            {"max_connections_per_ip_overrides": "127.0.0.1:0"},
        )
        for change in changes:
            assert [await _is_let_in(port) for port in ports] == [True, True]
            await client.alter(BROKER, "", **change)
            for server in ports.values():
                assert server is not None
                await until(
                    lambda s=server: (
                        s.limits.connections_max < 1000  # type: ignore[misc]
                        or s.limits.connections_per_address_max < 1000
                        or s.limits.connections_max_by_address
                    )
                )
            assert [await _is_let_in(port) for port in ports] == [False, False]
            assert (await rig.status())["connections_refused"] > 0
            assert (await client.ask(ApiVersionsRequest(), 2)).error_code == 0
            await client.alter(BROKER, "", **dict.fromkeys(change))
            for server in ports.values():
                assert server is not None
                await until(
                    lambda s=server: (
                        s.limits.connections_max > 0  # type: ignore[misc]
                        and s.limits.connections_per_address_max > 1000
                        and not s.limits.connections_max_by_address
                    )
                )

    run(test)


def test_the_scrub_begins_and_ends_when_the_settings_say_so() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        counters = rig.brokers[1].replica_manager.counters
        assert counters.scrub_passes == 0
        await client.alter(BROKER, "1", log_scrub_interval_ms="20")
        await until(lambda: counters.scrub_passes > 2)
        await client.alter(BROKER, "1", log_scrub_interval_ms="-1")
        config = rig.brokers[1].replica_manager
        await until(lambda: config.broker_config.log_scrub_interval_ms == -1)
        await client.alter(BROKER, "1", log_scrub_io_max_bytes_per_second="4096")
        await until(lambda: config.broker_config.log_scrub_io_max_bytes_per_second == 4096)

    run(test)
