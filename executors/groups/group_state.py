"""The states of a group and the transitions between them.

Owns: the table of transitions, which the group asserts.  Must not know what causes a transition.
Kafka: ``ClassicGroupState``.
"""

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """The values are Kafka's names, as tools show them.

    - Empty: no members, perhaps committed offsets.
    - PreparingRebalance: JoinGroup requests of members wait for those of the others.
    - CompletingRebalance: the generation has begun; SyncGroup requests wait for the leader's.
    - Stable: every member can have its assignment.
    - Dead: the group is gone.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: The states that a state can follow.
PREVIOUS_STATES: Final = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
