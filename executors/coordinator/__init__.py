"""The coordinator runtime: state machines whose records lie in a partition of an internal topic.

Owns: the contract of a coordinator's state machine, and the runtime that loads state machines,
hands them requests, the ends of transactions and the passing of time, and appends their records.
Must not know groups, the states of transactions, or request schemas.
"""

from sparklog.executors.coordinator.delayed_responses import ResponseFuture
from sparklog.executors.coordinator.runtime import CoordinatorRuntime
from sparklog.executors.coordinator.state_machine import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    CoordinatorResponse,
    CoordinatorStateMachine,
    Decision,
    DeletedTopic,
    Now,
    StoredTopic,
    TransactionalProducer,
)

__all__ = [
    "Completion",
    "CoordinatorRecord",
    "CoordinatorRequest",
    "CoordinatorResponse",
    "CoordinatorRuntime",
    "CoordinatorStateMachine",
    "Decision",
    "DeletedTopic",
    "Now",
    "ResponseFuture",
    "StoredTopic",
    "TransactionalProducer",
]
