"""What one look at all partitions of a Fetch found.

Owns: the regions of the log that it holds until it is answered or given up.  Must not know how a
partition is read, nor what the answer looks like.
"""

from dataclasses import dataclass, field

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.handlers.fetch_answer import release_records
from sparklog.executors.handlers.fetch_scope import Look
from sparklog.storage_backends.base import Region

#: Regions in one answer; each may hold a file descriptor until it is sent.
REGIONS_MAX = 64
#: Cheaper to copy than to send as a region.
_COPIED_BYTES_MAX = 4096


@dataclass(slots=True)
class FetchAttempt:
    """What one look at all partitions found; regions are released unless it is answered."""

    looks: list[Look] = field(default_factory=list)
    size: int = 0
    urgent: bool = False
    stale: bool = False
    regions: int = 0
    #: Of partitions that changed after they were looked at: what came with that.
    missed: int = 0

    def add(self, look: Look) -> None:
        self.looks.append(look)
        self.size += look.size
        self.urgent = self.urgent or look.urgent
        self.stale = self.stale or look.stale

    def hold(self, region: Region) -> Region | bytes:
        """The records as they go into the answer."""
        if region.size > _COPIED_BYTES_MAX and self.regions < REGIONS_MAX:
            self.regions += 1
            return region
        try:
            return region.read()
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            region.release()

    def release(self) -> None:
        for look in self.looks:
            release_records(look.data.records)
