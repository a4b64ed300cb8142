"""Transactions of a producer: all of its records and offsets become visible, or none of them.

Owns: the state machine of a transactional producer (``transaction_manager``, pure), and its
requests to the transaction coordinator and to the coordinators of groups.  Must not know batches,
nor how records are sent.
"""

from sparklog.client.transactions.producer_transaction import ProducerTransaction
from sparklog.client.transactions.transaction_errors import aborted_error, unfinished_error
from sparklog.client.transactions.transaction_requests import INIT_PRODUCER_ID_VERSION_MAX

__all__ = [
    "INIT_PRODUCER_ID_VERSION_MAX",
    "ProducerTransaction",
    "aborted_error",
    "unfinished_error",
]
