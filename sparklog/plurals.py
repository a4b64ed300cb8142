"""Counts in messages: ``1 partition``, ``3 partitions``.

Owns: the plural of regular English nouns.  Must not know what is counted.
"""


def counted(count: int, noun: str) -> str:
    """The count with thousands separators, and the noun, in the plural unless the count is 1."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
