"""The partitions of a group member, and the callbacks that tell the application of changes.

Owns: the member's partitions, its last assignment, and the outstanding callbacks.  Must not
know when a member joins, nor how a callback is carried out.
"""

from collections.abc import Set

from sparklog.client.groups.consumer_protocol import NO_GENERATION
from sparklog.client.groups.member_events import CallbackKind, RunCallback
from sparklog.types import TopicPartition


class MemberPartitions:
    """The partitions of one member; methods return the callbacks that follow from a change."""

    def __init__(self) -> None:
        #: The partitions of this member, including those of callbacks that are outstanding.
        self.owned: frozenset[TopicPartition] = frozenset()
        #: The last assignment and its generation, for the user data of sticky assignors.
        self.previous: tuple[frozenset[TopicPartition], int] = (frozenset(), NO_GENERATION)
        #: The number of callbacks that are outstanding.
        self.callbacks = 0

    def assign(self, wanted: frozenset[TopicPartition], generation: int) -> list[RunCallback]:
        """Take the partitions of an assignment; partitions that it lacks are revoked first."""
        self.previous = (wanted, generation)
        revoked, added = self.owned - wanted, wanted - self.owned
        self.owned = wanted
        callbacks = [self._call_back(CallbackKind.REVOKED, revoked)] if revoked else []
        return [*callbacks, self._call_back(CallbackKind.ASSIGNED, added)]

    def give_up(self, kind: CallbackKind, gone: frozenset[TopicPartition]) -> list[RunCallback]:
        """Give up these partitions; without partitions there is no callback."""
        self.owned -= gone
        return [self._call_back(kind, gone)] if gone else []

    def give_up_before_join(self, *, is_member: bool, kept: Set[str] | None) -> list[RunCallback]:
        """Give up the partitions that the member must not keep during a join, or after leaving.

        Args:
            is_member: False if the group has removed this member, so that all partitions are lost.
            kept: the topics whose partitions a cooperative member keeps; None revokes all.
        """
        if not is_member:
            return self.give_up(CallbackKind.LOST, self.owned)
        gone = frozenset(tp for tp in self.owned if kept is None or tp.topic not in kept)
        return self.give_up(CallbackKind.REVOKED, gone)

    def finish_callback(self) -> None:
        """Remove the first outstanding callback, which was carried out."""
        self.callbacks -= 1

    def _call_back(self, kind: CallbackKind, partitions: frozenset[TopicPartition]) -> RunCallback:
        self.callbacks += 1
        return RunCallback(kind=kind, partitions=partitions)
