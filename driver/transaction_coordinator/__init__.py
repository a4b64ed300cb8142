"""The transaction coordinator in the control plane: the shell around ``driver.transactions``.

Owns: the partitions of ``__transaction_state`` (their fence, their loading and their appends), the
clocks and timers of transactions, and the markers that are sent to partition leaders.  Must not
know the journal, the controller's decisions, or request schemas of clients.
"""

from sparklog.driver.transaction_coordinator.partition_coordinator import TransactionResult
from sparklog.driver.transaction_coordinator.transaction_coordinator import TransactionCoordinator

__all__ = ["TransactionCoordinator", "TransactionResult"]
