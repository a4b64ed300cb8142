"""The states of a transactional producer and the transitions between them, as data.

Owns: the table.  Must not know what causes a transition.  Kafka: ``TransactionManager.State``
(without the prepared transactions of KIP-939).
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class ProducerState(Enum):
    """What a transactional producer is doing."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


#: The states that a transition may lead to, by the state that it leaves.  FATAL_ERROR may follow
#: every state.
TRANSITIONS: Final[Mapping[ProducerState, frozenset[ProducerState]]] = {
    ProducerState.UNINITIALIZED: frozenset({ProducerState.INITIALIZING}),
    ProducerState.INITIALIZING: frozenset({ProducerState.READY}),
    ProducerState.READY: frozenset({ProducerState.IN_TRANSACTION}),
    ProducerState.IN_TRANSACTION: frozenset(
        {
            ProducerState.COMMITTING_TRANSACTION,
            ProducerState.ABORTING_TRANSACTION,
            ProducerState.ABORTABLE_ERROR,
        }
    ),
    ProducerState.COMMITTING_TRANSACTION: frozenset(
        {ProducerState.READY, ProducerState.ABORTABLE_ERROR}
    ),
    ProducerState.ABORTABLE_ERROR: frozenset({ProducerState.ABORTING_TRANSACTION}),
    ProducerState.ABORTING_TRANSACTION: frozenset(
        {ProducerState.READY, ProducerState.INITIALIZING}
    ),
    ProducerState.FATAL_ERROR: frozenset(),
}
