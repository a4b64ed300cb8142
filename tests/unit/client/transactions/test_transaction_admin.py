"""Administration of transactions asks the right nodes, again if it must, and names what failed."""

import pytest

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.client.transaction_admin import TransactionDescription, TransactionListing
from sparklog.errors import ErrorCode, KafkaError
from tests.unit.client.small_cluster import run_cluster
from tests.unit.client.transactions.transaction_cluster import (
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TransactionCluster,
)


def test_nodes_that_list_no_transactions_are_left_out() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        cluster.refuse(LIST_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        listed = await Admin(client, timeout_s=20).list_transactions(states=["Ongoing"])
        assert listed == {
            "x": TransactionListing(
                transactional_id="x", producer_id=77, state="Ongoing", coordinator=1
            )
        }
        assert cluster.asked(LIST_TRANSACTIONS) == [1, 1]

    run_cluster(test, kind=TransactionCluster)


def test_a_filter_that_the_node_would_ignore_is_refused() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        admin = Admin(client, timeout_s=20)
        with pytest.raises(KafkaError, match="v1") as caught:
            await admin.list_transactions(longer_than_ms=0)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match="v2"):
            await admin.list_transactions(pattern="x")
        assert cluster.asked(LIST_TRANSACTIONS) == []

    run_cluster(test, kind=TransactionCluster, max_versions={LIST_TRANSACTIONS: 0})


def test_a_cluster_that_lists_no_transactions_says_so() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        with pytest.raises(KafkaError, match="no node of the cluster lists transactions"):
            await Admin(client, timeout_s=20).list_transactions()

    class WithoutLists(TransactionCluster):
        def _lists(self, node_id: int) -> list[object]:  # type: ignore[override]
            return []

    run_cluster(test, kind=WithoutLists)


def test_an_abort_describes_and_then_fences() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        cluster.refuse(DESCRIBE_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
        cluster.refuse(INIT_PRODUCER_ID, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 3)
        admin = Admin(client, timeout_s=20)
        assert await admin.abort_transaction("x") == TransactionDescription(
            transactional_id="x",
            coordinator=1,
            state="Ongoing",
            producer_id=77,
            producer_epoch=-1,
            timeout_ms=1000,
            start_ms=None,
            partitions=frozenset(),
        )
        assert len(cluster.asked(INIT_PRODUCER_ID)) == 4
        assert cluster.epoch == 0
        cluster.state = "CompleteAbort"
        with pytest.raises(KafkaError, match="is CompleteAbort and has no open transaction"):
            await admin.abort_transaction("x")
        assert cluster.epoch == 0

    run_cluster(test, kind=TransactionCluster)


def test_fences_tell_the_new_epochs_and_refusals_name_the_id() -> None:
    async def test(cluster: TransactionCluster, client: ClusterClient) -> None:
        admin = Admin(client, timeout_s=20)
        fenced = await admin.fence_producers(["x", "y"])
        assert fenced == {
            "x": ProducerIdentity(producer_id=77, producer_epoch=0),
            "y": ProducerIdentity(producer_id=77, producer_epoch=1),
        }
        cluster.refuse(INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="'x' was not fenced"):
            await admin.fence_producers(["x"])
        assert await admin.describe_transactions(["z"], skip_unknown=True) == {}
        with pytest.raises(KafkaError, match="no transactional id 'z'"):
            await admin.describe_transactions(["x", "z"])

    run_cluster(test, kind=TransactionCluster)
