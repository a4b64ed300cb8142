"""The settings of compaction: of topics, and of the broker's log cleaner.

Owns: their rows in the tables of settings.  Must not know where a setting is used.
"""

import sys

from sparklog.config.setting import DAY_MS, Setting, Synonym
from sparklog.types import MAX_INT32, MAX_INT64

COMPACTION_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="delete.retention.ms",
        kind="LONG",
        default=DAY_MS,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.cleaner.delete.retention.ms"),),
        doc="How long a compacted topic keeps a tombstone, or the marker of an empty transaction, "
        "after the cleaning that first met it.",
    ),
    Setting(
        name="max.compaction.lag.ms",
        kind="LONG",
        default=MAX_INT64,
        minimum=1,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.cleaner.max.compaction.lag.ms"),),
        doc="Age of an uncompacted record after which its log is cleaned whatever its dirty ratio.",
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        kind="DOUBLE",
        default=0.5,
        minimum=0,
        maximum=1,
        synonyms=(Synonym(name="log.cleaner.min.cleanable.ratio"),),
        doc="Share of a log's bytes that must be uncompacted before the log is cleaned.",
    ),
    Setting(
        name="min.compaction.lag.ms",
        kind="LONG",
        default=0,
        minimum=0,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.cleaner.min.compaction.lag.ms"),),
        doc="How long a record stays uncompacted at least.",
    ),
)

LOG_CLEANER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="log.cleaner.enable",
        kind="BOOLEAN",
        default=True,
        dynamic=False,
        doc="Whether compacted topics are cleaned.",
    ),
    Setting(
        name="log.cleaner.threads",
        kind="INT",
        default=1,
        minimum=0,
        maximum=MAX_INT32,
        doc="0 stops the cleaning. A broker cleans one log at a time, in a child process, so more "
        "than 1 makes no difference.",
    ),
    Setting(
        name="log.cleaner.dedupe.buffer.size",
        kind="LONG",
        default=128 * 1024 * 1024,
        minimum=1024 * 1024,
        maximum=MAX_INT64,
        doc="Memory for the latest offset of every key, which bounds how much of a log is cleaned "
        "at once. The keys are kept whole (hashes in Kafka). The cleaner's process takes up to "
        "200 MB besides.",
    ),
    Setting(
        name="log.cleaner.io.buffer.size",
        kind="INT",
        default=512 * 1024,
        minimum=0,
        maximum=MAX_INT32,
        doc="Bytes of a log that the cleaner reads at a time; at least 65536 are.",
    ),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        kind="DOUBLE",
        default=sys.float_info.max,
        minimum=1024,
        maximum=sys.float_info.max,
        doc="Bytes a second that the cleaner reads and writes, together and on average.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        kind="LONG",
        default=15_000,
        minimum=0,
        maximum=MAX_INT64,
        doc="Time between two looks for logs to clean when there was none.",
    ),
)
