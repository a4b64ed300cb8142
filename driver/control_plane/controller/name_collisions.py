"""Collisions of topic names that metrics cannot tell apart.

Owns: Kafka's rule that '.' and '_' are the same in metric names.  Must not know any topic.
"""

from collections.abc import Iterable


class TakenNames:
    """The topic names that are taken, including those taken by earlier topics of one request."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        #: The taken names by their metric name; made when it is needed first.
        self._by_metric: dict[str, str] | None = None
        self._added: list[str] = []

    def add(self, name: str) -> None:
        if self._by_metric is None:
            self._added.append(name)
        else:
            self._by_metric[_metric(name)] = name

    def find_collision(self, name: str) -> str | None:
        """A taken name that differs from this one only in '.' and '_'; None if there is none."""
        if "." not in name and "_" not in name:
            return None
        if self._by_metric is None:
            self._by_metric = {_metric(other): other for other in (*self._names, *self._added)}
        other = self._by_metric.get(_metric(name))
        return None if other == name else other


def _metric(name: str) -> str:
    return name.replace(".", "_")
