"""Requests of the admin client find coordinators that move, load or are gone."""

import pytest

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from tests.unit.client.groups.group_cluster import FIND_COORDINATOR, OFFSET_COMMIT, GroupCluster
from tests.unit.client.small_cluster import run_cluster

T0 = TopicPartition("t", 0)


def test_a_coordinator_that_loads_and_then_moves_is_found() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.refuse(FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        cluster.refuse(
            OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
        )
        await Admin(client, timeout_s=20).alter_group_offsets("g", {T0: 7})
        assert cluster.committed == {T0: 7}
        assert len(cluster.asked(FIND_COORDINATOR)) == 4
        cluster.coordinator_id = 2
        await Admin(client, timeout_s=20).alter_group_offsets("g", {T0: 8})
        assert (cluster.committed, cluster.asked(OFFSET_COMMIT)) == ({T0: 8}, [1, 1, 1, 2])

    run_cluster(test, kind=GroupCluster)


def test_an_old_broker_names_one_coordinator_at_a_time() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        await Admin(client, timeout_s=20).alter_group_offsets("g", {T0: 7})
        assert cluster.committed == {T0: 7}

    run_cluster(test, kind=GroupCluster, max_versions={FIND_COORDINATOR: 3})


def test_the_deadline_ends_the_search_with_the_last_reason() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.refuse(OFFSET_COMMIT, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
        with pytest.raises(KafkaError) as caught:
            await Admin(client, timeout_s=0.3).alter_group_offsets("g", {T0: 7})
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert 2 <= len(cluster.asked(OFFSET_COMMIT)) < 10

    run_cluster(test, kind=GroupCluster)


def test_a_refusal_is_not_retried() -> None:
    async def test(cluster: GroupCluster, client: ClusterClient) -> None:
        cluster.refuse(OFFSET_COMMIT, ErrorCode.INVALID_GROUP_ID)
        with pytest.raises(KafkaError) as caught:
            await Admin(client, timeout_s=20).alter_group_offsets("g", {T0: 7})
        assert caught.value.code is ErrorCode.INVALID_GROUP_ID
        assert cluster.asked(OFFSET_COMMIT) == [1]

    run_cluster(test, kind=GroupCluster)
