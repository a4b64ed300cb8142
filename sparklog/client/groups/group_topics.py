"""The topics that the leader of a group watches: a change of them means another rebalance.

Owns: the numbers of partitions as of the last assignment.  Must not know how partitions are
assigned, nor where metadata come from.
"""

from collections.abc import Iterable, Mapping


class GroupTopics:
    """The numbers of partitions, by topic, from which the leader has computed the assignment."""

    def __init__(self) -> None:
        self._counts: Mapping[str, int] | None = None

    def note(self, counts: Mapping[str, int]) -> None:
        """Note the numbers from which the assignment was computed; 0 stands for a missing topic."""
        self._counts = counts

    def forget(self) -> None:
        """Forget the numbers, because this member does not compute the assignment."""
        self._counts = None

    def compare(self, counts: Mapping[str, int], subscribed: Iterable[str]) -> bool:
        """Whether topics of the assignment have appeared, vanished or grown."""
        if self._counts is None:  # a static leader that joined again did not compute
            self._counts = {topic: counts.get(topic, 0) for topic in subscribed}
            return False
        known = {topic: count for topic, count in self._counts.items() if count}
        current = {topic: counts[topic] for topic in self._counts if counts.get(topic)}
        return known != current
