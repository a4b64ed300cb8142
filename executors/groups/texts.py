"""The size of texts that go into records.

Owns: the comparison with a limit.  Must not know what a text is for.  Strings of the flexible
versions of requests can be longer than the strings of records.
"""

from sparklog.executors.groups.config import TEXT_BYTES_MAX

_CHARACTER_BYTES_MAX = 4


def fits_record(text: str, bytes_max: int = TEXT_BYTES_MAX) -> bool:
    """Whether a text has at most ``bytes_max`` bytes in UTF-8."""
    if _CHARACTER_BYTES_MAX * len(text) <= bytes_max:
        return True
    return len(text) <= bytes_max and len(text.encode()) <= bytes_max
