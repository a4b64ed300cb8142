"""One replica of one partition, as a pure state machine.

Owns: the replica's role, the order of an append, batch validation, the ISR, the progress of
followers, producer state and open transactions.  Must not know asyncio, clocks, files other than
through its log, or where its effects are carried out.
"""

from sparklog.executors.log import TieredStart
from sparklog.executors.partition.batch_validation import read_client_batch
from sparklog.executors.partition.effects import (
    CompleteDelayedDeleteRecords,
    CompleteDelayedFetches,
    CompleteDelayedFollowerFetches,
    CompleteDelayedProduces,
    Effect,
    FlushLog,
    ResumeFetching,
    SubmitAlterPartition,
    WriteStatistics,
)
from sparklog.executors.partition.partition import Partition
from sparklog.executors.partition.producer_entry import ProducerEntry
from sparklog.executors.partition.producer_state import ProducerStateManager, TransactionEnd
from sparklog.executors.partition.replicated_batches import sound_until
from sparklog.executors.partition.results import (
    ACKS_ALL,
    ACKS_NONE,
    Appended,
    EpochEnd,
    FetchPosition,
    IsrProposal,
    PartitionRead,
    RequiredOffset,
    SentBatch,
    TieredState,
    Truncated,
    UnverifiedTransactionError,
)

__all__ = [
    "ACKS_ALL",
    "ACKS_NONE",
    "Appended",
    "CompleteDelayedDeleteRecords",
    "CompleteDelayedFetches",
    "CompleteDelayedFollowerFetches",
    "CompleteDelayedProduces",
    "Effect",
    "EpochEnd",
    "FetchPosition",
    "FlushLog",
    "IsrProposal",
    "Partition",
    "PartitionRead",
    "ProducerEntry",
    "ProducerStateManager",
    "RequiredOffset",
    "ResumeFetching",
    "SentBatch",
    "SubmitAlterPartition",
    "TieredStart",
    "TieredState",
    "TransactionEnd",
    "Truncated",
    "UnverifiedTransactionError",
    "WriteStatistics",
    "read_client_batch",
    "sound_until",
]
