"""Topic names that metrics cannot tell apart.

Owns: Kafka's rule that '.' and '_' are one character in metric names.  Must not know any topic.
"""

from collections.abc import Iterable


def find_collision(name: str, others: Iterable[str]) -> str | None:
    """The other name that differs from this one only in '.' and '_'."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next(
        (other for other in others if other != name and other.replace(".", "_") == unified), None
    )
