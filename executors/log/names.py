"""File names inside a partition directory.

Owns: Kafka's naming (``LogFileUtils``): twenty digits of the base offset and a suffix.  Must not
know what the files hold.
"""

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
#: Ours, not Kafka's.
STATS_SUFFIX: Final = ".stats"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
#: A cleaned log file that replaces segments; a start finishes what a crash has interrupted.
SWAP_SUFFIX: Final = ".swap"
#: A file on its way to replacing the one that its name begins with.
NEW_SUFFIX: Final = ".new"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
#: Ours, not Kafka's: the log may have gaps.
COMPACTED_MARKER: Final = "compacted"
#: Ours too: the offset below which the log has been compacted.
CLEAN_OFFSET: Final = "clean-offset"
#: Ours too: the log is being dropped as a whole.
FULL_TRUNCATION: Final = "full-truncation"

#: Everything that belongs to one segment and goes with it.
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    STATS_SUFFIX,
)

_DIGITS: Final = 20


def file_name(base_offset: int, suffix: str) -> str:
    """``00000000000000000042.log``"""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Base offset and suffix, or None for a name of another kind."""
    digits, dot, rest = name.partition(".")
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()) or not dot:
        return None
    return int(digits), dot + rest


def offsets_with(names: list[str], suffix: str) -> list[int]:
    """Base offsets of the files that end in exactly ``suffix``, ascending."""
    parsed = (parse_file_name(name) for name in names)
    return sorted(found[0] for found in parsed if found is not None and found[1] == suffix)
