"""The states of a transaction and the transitions between them, as data.

Owns: the table, Kafka's names and numbers of the states, and the diagram of the table.  Must not
know what causes a transition.  Kafka: ``TransactionState``.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id.  The numbers are stored in ``__transaction_state``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's APIs and tools show, such as ``PrepareCommit``."""
        return _LABELS[self]


_LABELS: Final[Mapping[TransactionState, str]] = {
    each: "".join(word.capitalize() for word in each.name.split("_")) for each in TransactionState
}
STATE_BY_LABEL: Final[Mapping[str, TransactionState]] = {
    label: state for state, label in _LABELS.items()
}

#: The states that a transition may lead to, by the state that it leaves.
TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE,
        }
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_ABORT,
            TransactionState.DEAD,
        }
    ),
    TransactionState.DEAD: frozenset(),
}

#: A transaction in one of these states has been decided, and its markers are being written.
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
#: No transaction is open in these states; the next one may begin.
AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", "    [*] --> Empty"]
    lines += [
        f"    {left.label} --> {entered.label}"
        for left, targets in TRANSITIONS.items()
        for entered in sorted(targets)
    ]
    lines.append(f"    {TransactionState.DEAD.label} --> [*]")
    return "\n".join(lines)
