"""What a broker knows of the remote log of a partition that it leads, in one leader epoch.

Owns: the value, and the name of a partition's remote log.  Must not know what is done with them.
"""

import asyncio
from dataclasses import dataclass, field

from sparklog.executors.partition import Partition
from sparklog.executors.tiering.copy_retry import CopyRetry
from sparklog.remote_log.service import RemoteLogState, RemotePartition


@dataclass(slots=True, eq=False)
class Leadership:
    """``state`` is None until the manifest is taken over.  ``is_deposed``: a newer leader has.

    ``sweep_at_ms``: when orphans are looked for, on a clock that never goes back.
    ``refusal_logged_ms``: when a refused deletion was logged last, on that clock.  ``changing`` is
    held from a call that changes the manifest until ``state`` has its answer.
    """

    partition: Partition
    leader_epoch: int
    sweep_at_ms: int
    state: RemoteLogState | None = None
    is_deposed: bool = False
    refusal_logged_ms: int | None = None
    copy_retry: CopyRetry = field(default_factory=CopyRetry)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


def remote_partition(partition: Partition) -> RemotePartition:
    return RemotePartition(partition.topic_id, partition.topic_partition.partition)
