"""File names inside a partition directory.

Owns: Kafka's naming (``LogFileUtils``): twenty digits of the base offset and a suffix.  Must not
know the content of files.
"""

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
#: Statistics of a sealed segment; Kafka has no such file.
STATS_SUFFIX: Final = ".stats"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
#: A cleaned log file that replaces segments; a start finishes an interrupted swap.
SWAP_SUFFIX: Final = ".swap"
#: The new contents of the file of the same name without this suffix, before the rename.
NEW_SUFFIX: Final = ".new"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
#: The log may have gaps; Kafka has no such file, nor the next two.
COMPACTED_MARKER: Final = "compacted"
#: The offset below which the log has been compacted.
CLEAN_OFFSET: Final = "clean-offset"
#: The log is being dropped as a whole.
FULL_TRUNCATION: Final = "full-truncation"

#: The suffixes of all files of one segment, which are deleted together.
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    STATS_SUFFIX,
)

_DIGITS: Final = 20


def file_name(base_offset: int, suffix: str) -> str:
    """The name of a file, for example ``00000000000000000042.log``."""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """The base offset and the suffix of a name; None for a name of another kind."""
    digits, dot, rest = name.partition(".")
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()) or not dot:
        return None
    return int(digits), dot + rest


def offsets_with(names: list[str], suffix: str) -> list[int]:
    """The base offsets of the files with exactly this suffix, ascending."""
    parsed = (parse_file_name(name) for name in names)
    return sorted(found[0] for found in parsed if found is not None and found[1] == suffix)
