"""The transaction coordinator: which transactions are open, and how each one ends.

Owns: the states of transactions and their transitions, and the records of ``__transaction_state``.
Must not know the controller, sockets, logs, clocks or asyncio.

A ``TransactionShard`` is the state machine of one partition of ``__transaction_state``.  It is
pure: it gets requests, outcomes of appends and the passing of time, and returns records to append,
responses, and markers to write.
"""

from sparklog.driver.transactions.config import TransactionConfig
from sparklog.driver.transactions.consistent_cuts import (
    CUT_WAIT_MS_MAX,
    ConsistentCuts,
    CutProgress,
)
from sparklog.driver.transactions.decision import (
    AddPartitions,
    Append,
    Completion,
    Decision,
    EndTransaction,
    InitProducerId,
    Now,
    ProducerIdentity,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from sparklog.driver.transactions.records import (
    TransactionRecord,
    read_transaction_record,
    transaction_record,
)
from sparklog.driver.transactions.transaction import EPOCH_BUMP_VERSION, Transaction
from sparklog.driver.transactions.transaction_shard import TransactionShard
from sparklog.driver.transactions.transaction_state import (
    PREPARED,
    STATE_BY_LABEL,
    TransactionState,
    diagram,
)

__all__ = [
    "CUT_WAIT_MS_MAX",
    "EPOCH_BUMP_VERSION",
    "PREPARED",
    "STATE_BY_LABEL",
    "AddPartitions",
    "Append",
    "Completion",
    "ConsistentCuts",
    "CutProgress",
    "Decision",
    "EndTransaction",
    "InitProducerId",
    "Now",
    "ProducerIdentity",
    "Transaction",
    "TransactionConfig",
    "TransactionRecord",
    "TransactionRequest",
    "TransactionShard",
    "TransactionState",
    "VerifyPartitions",
    "WriteMarkers",
    "diagram",
    "read_transaction_record",
    "transaction_record",
]
