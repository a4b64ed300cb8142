"""The metrics of a broker's tiering since its start, for NodeStatus.

Owns: the counters and their JSON shape.  Must not know which code counts.
"""

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class TieringMetrics:
    """Counters that only grow.

    ``failures`` counts looks at a partition that failed; ``reads_from_replicas`` those of the
    ``read_failures`` that another replica has answered; ``reads_throttled`` the reads that have
    waited for the limit of the rate, and ``read_throttle_ms`` how long.
    """

    segments_copied: int = 0
    bytes_copied: int = 0
    segments_deleted: int = 0
    orphans_deleted: int = 0
    failures: int = 0
    reads: int = 0
    bytes_read: int = 0
    read_failures: int = 0
    reads_from_replicas: int = 0
    reads_throttled: int = 0
    read_throttle_ms: int = 0

    def count_copy(self, size: int) -> None:
        self.segments_copied += 1
        self.bytes_copied += size

    def count_throttled(self, waited_ms: int) -> None:
        self.reads_throttled += 1
        self.read_throttle_ms += waited_ms

    def as_json(self) -> dict[str, int]:
        return {f"remote_{name}": value for name, value in asdict(self).items()}
