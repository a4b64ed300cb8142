"""The admin client asks the coordinators of brokers about groups."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.group_admin import GroupListing, GroupOffset
from sparklog.client.groups import AsyncConsumer, OffsetAndMetadata
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.executors.broker.broker_rig import Rig, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"offsets_topic_num_partitions": "3"}


async def refusal(call: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await call
    return caught.value


@asynccontextmanager
async def group_rig(rig: Rig, brokers: int = 1) -> AsyncIterator[tuple[Admin, ClusterClient]]:
    """Brokers, a topic ``t`` with two partitions and five records in partition 0, and an admin."""
    for broker_id in range(1, brokers + 1):
        await rig.start_broker(broker_id)
    async with ClusterClient(f"127.0.0.1:{rig.control.port}") as cluster:
        admin = Admin(cluster, timeout_s=20)
        await admin.create_topic("t", 2)
        await admin.await_serving("t")
        batch = encode_batch([Record(value=b"v%d" % n) for n in range(5)])
        await DataClient(cluster).produce(T0, [batch])
        yield admin, cluster


def run_groups(test: Callable[[Admin, ClusterClient], Awaitable[None]], brokers: int = 1) -> None:
    async def within(rig: Rig) -> None:
        async with group_rig(rig, brokers) as (admin, cluster):
            await test(admin, cluster)

    run(within, **SETTINGS)


@asynccontextmanager
async def member(cluster: ClusterClient, group_id: str = "g") -> AsyncIterator[AsyncConsumer]:
    """A member that has read and committed what there is in ``t``."""
    async with AsyncConsumer(
        cluster, group_id=group_id, auto_offset_reset="earliest", heartbeat_interval_ms=100
    ) as consumer:
        consumer.subscribe(["t"])
        read = 0
        while read < 5:
            read += len(await consumer.poll(0.2))
        await consumer.commit()
        yield consumer


def test_a_group_with_a_member_is_listed_and_described() -> None:
    async def test(admin: Admin, cluster: ClusterClient) -> None:
        assert await admin.list_groups() == {}
        async with member(cluster):
            (listing,) = (await admin.list_groups()).values()
            assert listing == GroupListing(
                group_id="g",
                state="Stable",
                type="classic",
                protocol_type="consumer",
                coordinator=listing.coordinator,
            )
            group = (await admin.describe_groups(["g"]))["g"]
            (found,) = group.members
            assert (group.state, group.assignor, found.assignment) == ("Stable", "range", {T0, T1})
            assert (group.coordinator, found.client_id) == (listing.coordinator, "sparklog")
            assert group.owners == {T0: found, T1: found}
            offsets = await admin.group_offsets("g")
            assert offsets == {
                T0: GroupOffset(committed=5, log_end=5),
                T1: GroupOffset(committed=0, log_end=0),
            }
        assert await admin.list_groups(states=["Stable"]) == {}
        assert list(await admin.list_groups(states=["empty"], types=["classic"])) == ["g"]
        assert await admin.list_groups(types=["consumer"]) == {}

    run_groups(test)


def test_offsets_are_altered_and_the_lag_is_told() -> None:
    async def test(admin: Admin, _cluster: ClusterClient) -> None:
        await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(offset=2, metadata="two")})
        offsets = await admin.group_offsets("g", [T1])
        assert offsets == {
            T0: GroupOffset(committed=2, log_end=5, metadata="two"),
            T1: GroupOffset(committed=None, log_end=0),
        }
        assert {tp: each.lag for tp, each in offsets.items()} == {T0: 3, T1: None}
        assert await admin.group_offsets("unknown") == {}

    run_groups(test)


def test_several_groups_have_coordinators_on_several_brokers() -> None:
    async def test(admin: Admin, _cluster: ClusterClient) -> None:
        names = [f"g{number}" for number in range(12)]
        for number, name in enumerate(names):
            await admin.alter_group_offsets(name, {T0: number % 5})
        listed = await admin.list_groups()
        assert list(listed) == sorted(names)
        assert {each.coordinator for each in listed.values()} == {1, 2}
        described = await admin.describe_groups(names)
        assert [(each.group_id, each.state) for each in described.values()] == [
            (name, "Empty") for name in names
        ]
        offsets = await admin.offsets_of_groups(dict.fromkeys(names, ()))
        assert [each[T0].committed for each in offsets.values()] == [n % 5 for n in range(12)]
        await admin.delete_groups(names[:11])
        assert list(await admin.list_groups()) == [names[11]]

    run_groups(test, brokers=2)


def test_refusals_name_the_group_and_the_reason() -> None:
    async def test(admin: Admin, cluster: ClusterClient) -> None:
        gone = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "there is no group 'x'")
        for call in (
            admin.describe_groups(["x"]),
            admin.delete_groups(["x"]),
            admin.delete_group_offsets("x", [T0]),
        ):
            assert str(await refusal(call)) == str(gone)
        assert await admin.describe_groups(["x"], skip_unknown=True) == {}
        unknown = await refusal(admin.alter_group_offsets("x", {TopicPartition("none", 0): 1}))
        assert unknown.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.message == "the group 'x' did not take the offset of none-0"
        async with member(cluster):
            busy = "the group 'g' has members; stop them first"
            altered = await refusal(admin.alter_group_offsets("g", {T0: 1}))
            assert (altered.code, altered.message) == (ErrorCode.UNKNOWN_MEMBER_ID, busy)
            deleted = await refusal(admin.delete_groups(["g"]))
            assert (deleted.code, deleted.message) == (ErrorCode.NON_EMPTY_GROUP, busy)
            forgotten = await refusal(admin.delete_group_offsets("g", [T0]))
            assert forgotten.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            assert (await admin.group_offsets("g"))[T0].committed == 5

    run_groups(test)


def test_offsets_and_groups_are_deleted() -> None:
    async def test(admin: Admin, cluster: ClusterClient) -> None:
        async with member(cluster):
            pass
        await admin.delete_group_offsets("g", [T1])
        assert list(await admin.group_offsets("g")) == [T0]
        await admin.delete_groups(["g"])
        assert (await admin.list_groups(), await admin.group_offsets("g")) == ({}, {})

    run_groups(test)
