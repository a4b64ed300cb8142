"""The offsets at which a read of several partitions ends, so that it tears no transaction.

Owns: what the option ``consistentCut`` means: how long a cut is waited for, and what follows when
there is none.  Must not know plans.
"""

import logging
from collections.abc import Sequence
from typing import Final

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.consistent_cut_api import consistent_cut
from sparklog.client.deadline import Deadline, retry
from sparklog.dataframe.options import ConsistentCut
from sparklog.errors import ConnectError, KafkaError
from sparklog.types import TopicPartition

#: How long node 0 may hold transactions back for one cut, in milliseconds.
CUT_WAIT_MS: Final = 2_000
#: Time for connecting to node 0 in addition, in seconds.
_CONNECT_S: Final = 1.0

log = logging.getLogger(__name__)


async def cut_offsets(
    cluster: ClusterClient,
    partitions: Sequence[TopicPartition],
    choice: ConsistentCut,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    """Last stable offsets that tear no transaction; empty if the read goes on without a cut.

    Kafka's clusters have no cuts, so their reads go on without one.

    Raises:
        KafkaError, ConnectError: there was no cut until the deadline, and the option requires one.
    """
    if choice is ConsistentCut.REQUIRE:
        return await _required(cluster, partitions, deadline)
    if choice is ConsistentCut.PREFER:
        try:
            return await _attempt(cluster, partitions, deadline)
        except (KafkaError, ConnectError) as error:
            log.warning(
                "this read may show a transaction in one partition and hide it in another, because "
                "there was no consistent cut: %s; option consistentCut=require waits for one",
                error,
            )
    return {}


async def _required(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    async def attempt() -> dict[TopicPartition, int]:
        return await _attempt(cluster, partitions, deadline)

    async def look_again() -> None:
        await cluster.refresh((), deadline)

    try:
        return await retry(attempt, deadline, look_again)
    except KafkaError as error:
        raise KafkaError(error.code, _without(error.message)) from error
    except ConnectError as error:
        raise ConnectError(_without(str(error))) from error


async def _attempt(
    cluster: ClusterClient, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    max_wait_ms = max(min(CUT_WAIT_MS, deadline.left_ms), 1)
    connecting = deadline.capped(max_wait_ms / 1000 + _CONNECT_S)
    offsets = await consistent_cut(
        cluster, partitions, max_wait_ms=max_wait_ms, deadline=connecting
    )
    return offsets or {}


def _without(reason: str | None) -> str:
    return (
        f"there was no consistent cut of the partitions to read: {reason}; "
        "option consistentCut=prefer reads without one"
    )
