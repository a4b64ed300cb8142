"""The log of one partition on disk, in Kafka's own file formats.

Owns: segments, indexes, checkpoints, recovery, retention and flush decisions.  Must not know
partitions' roles, clients or clocks (``now_ms`` comes in), and reaches files only through the file
half of a storage backend.
"""

from sparklog.executors.log.checkpoint import EpochEntry, decode_offsets, encode_offsets
from sparklog.executors.log.cleaned_segments import (
    CLEANED_SUFFIX,
    CLEANED_SUFFIXES,
    CleanedGroup,
    CleanedSegment,
)
from sparklog.executors.log.cleaned_writer import CleanedWriter, read_aborted, remove_cleaned
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.dump import (
    Damage,
    FileKind,
    dump_records,
    dump_segment,
    identify,
    marker_of,
)
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.flush import PostponedFlushError
from sparklog.executors.log.log import Log, LogRead
from sparklog.executors.log.log_damage import Suspicion
from sparklog.executors.log.names import LOG_SUFFIX, PARTITION_METADATA
from sparklog.executors.log.partition_metadata import decode_partition_metadata
from sparklog.executors.log.presence import Loss, PresenceCheck
from sparklog.executors.log.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.executors.log.range_repair import (
    DamagedSourceError,
    RangeRepair,
    UnfitBatchError,
    write_pieces,
)
from sparklog.executors.log.recovery import RecoveryReport
from sparklog.executors.log.segment import Segment
from sparklog.executors.log.segment_list import aborted_overlapping
from sparklog.executors.log.segment_scrub import SegmentScrub
from sparklog.executors.log.segment_stats import Measuring
from sparklog.executors.log.steps import LongPart, Steps, run_through
from sparklog.executors.log.truncation import TieredStart
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.wire.records.record_search import SEARCH_BYTES_MAX

__all__ = [
    "CLEANED_SUFFIX",
    "CLEANED_SUFFIXES",
    "LOG_SUFFIX",
    "PARTITION_METADATA",
    "SEARCH_BYTES_MAX",
    "AbortedTxn",
    "CleanedGroup",
    "CleanedSegment",
    "CleanedWriter",
    "Damage",
    "DamagedRange",
    "DamagedSourceError",
    "EpochEntry",
    "FileCache",
    "FileKind",
    "Log",
    "LogRead",
    "LongPart",
    "Loss",
    "Measuring",
    "PostponedFlushError",
    "PresenceCheck",
    "ProducerSnapshotEntry",
    "RangeRepair",
    "RecoveryReport",
    "Segment",
    "SegmentScrub",
    "Steps",
    "Suspicion",
    "TieredStart",
    "UnfitBatchError",
    "aborted_overlapping",
    "decode_offsets",
    "decode_partition_metadata",
    "decode_snapshot",
    "dump_records",
    "dump_segment",
    "encode_offsets",
    "encode_snapshot",
    "identify",
    "marker_of",
    "read_aborted",
    "remove_cleaned",
    "run_through",
    "write_pieces",
]
