"""The metrics of a broker since its start, for NodeStatus.

Owns: the counters and their JSON shape.  Must not know which code counts, or how the numbers are
used.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sparklog.executors.log import RecoveryReport


class BrokerMetrics:
    """Counters that only grow.  Sizes are bytes of record batches as clients send them."""

    def __init__(self) -> None:
        self.bytes_in: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.batches_in: Counter[str] = Counter()
        self.duplicates = 0
        self.refused_appends = 0
        self.markers_written = 0
        self.transaction_verifications = 0
        self.partitions_opened = 0
        self.partitions_closed = 0
        self.segments_recovered = 0
        self.bytes_scanned = 0
        self.bytes_truncated = 0
        self.segments_deleted = 0
        self.registrations = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.truncations = 0
        self.offsets_truncated = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.damaged_ranges_found = 0
        self.damaged_ranges_mended = 0
        self.damaged_bytes_mended = 0
        self.scrub_bytes = 0
        self.scrub_passes = 0
        self.logs_cleaned = 0
        self.cleanings_failed = 0
        self.cleaner_bytes_read = 0
        self.cleaner_bytes_written = 0

    def count_appends(self, topic: str, batches: int, size: int) -> None:
        self.bytes_in[topic] += size
        self.batches_in[topic] += batches

    def count_recovery(self, report: RecoveryReport) -> None:
        self.partitions_opened += 1
        self.segments_recovered += report.segments_recovered
        self.bytes_scanned += report.bytes_scanned
        self.bytes_truncated += report.bytes_truncated

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic."""
        for counter in (self.bytes_in, self.bytes_out, self.batches_in):
            counter.pop(topic, None)

    def as_json(self) -> dict[str, Any]:
        by_topic: Mapping[str, Counter[str]] = {
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "batches_in": self.batches_in,
        }
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return {
            **{name: dict(counter) for name, counter in by_topic.items()},
            **numbers,
        }
