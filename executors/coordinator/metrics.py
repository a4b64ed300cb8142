"""The metrics of a coordinator since the start of its broker.

Owns: the counters and their JSON shape.  Must not know which code counts.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class CoordinatorMetrics:
    """Counters that only grow."""

    loads: int = 0
    load_failures: int = 0
    records_written: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "loads": self.loads,
            "load_failures": self.load_failures,
            "records_written": self.records_written,
        }
