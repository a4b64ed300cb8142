"""Counts in messages: ``1 partition``, ``3 partitions``, ``a, b and 5 more``.

Owns: the plural of regular English nouns, and how many names are shown.  Must not know what is
counted.
"""

from collections.abc import Iterable


def counted(count: int, noun: str) -> str:
    """The count with thousands separators, and the noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(things: Iterable[object], shown_max: int) -> str:
    """The first things as one text, such as ``a-0, a-1 and 5 more``."""
    texts = [str(thing) for thing in things]
    shown = ", ".join(texts[:shown_max])
    return f"{shown} and {len(texts) - shown_max} more" if len(texts) > shown_max else shown
