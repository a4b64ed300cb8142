"""Topic names that metrics cannot tell apart.

Owns: Kafka's rule that '.' and '_' are one character in metric names.  Must not know any topic.
"""

from collections.abc import Iterable


class TakenNames:
    """The names that are taken, while one request is decided."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        #: By what metrics make of them; unknown until somebody has to know.
        self._by_metric: dict[str, str] | None = None
        self._added: list[str] = []

    def add(self, name: str) -> None:
        if self._by_metric is None:
            self._added.append(name)
        else:
            self._by_metric[_metric(name)] = name

    def find_collision(self, name: str) -> str | None:
        """The other name that differs from this one only in '.' and '_'."""
        if "." not in name and "_" not in name:
            return None
        if self._by_metric is None:
            self._by_metric = {_metric(other): other for other in (*self._names, *self._added)}
        other = self._by_metric.get(_metric(name))
        return None if other == name else other


def _metric(name: str) -> str:
    return name.replace(".", "_")
