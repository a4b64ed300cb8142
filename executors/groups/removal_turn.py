"""One turn of removing offsets: how much is done before other requests are decided.

Owns: the count.  Must not know what is removed, or why.
"""

from sparklog.executors.groups.config import REMOVED_AT_ONCE
from sparklog.executors.groups.draft import DecisionDraft

#: Looks at offsets or groups that take as long as one record takes to be written and replayed.
LOOKS_PER_RECORD = 10


class RemovalTurn:
    """The turn that is under way; ``draft`` is the decision that it adds to."""

    __slots__ = ("_looks", "draft")

    draft: DecisionDraft

    def __init__(self) -> None:
        self._looks = 0

    def begin(self, draft: DecisionDraft) -> None:
        self.draft = draft
        self._looks = REMOVED_AT_ONCE * LOOKS_PER_RECORD

    @property
    def is_over(self) -> bool:
        return self._looks <= 0

    def spend_look(self) -> bool:
        """An offset or a group was looked at; return whether the turn is over."""
        self._looks -= 1
        return self._looks <= 0

    def spend_record(self) -> bool:
        """A record was written; return whether the turn is over."""
        self._looks -= LOOKS_PER_RECORD
        return self._looks <= 0
