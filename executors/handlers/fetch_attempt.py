"""One attempt to answer a fetch: the results of reading all its partitions once.

Owns: the regions of the log that the attempt holds until it is answered or given up.  Must not know
how a partition is read, or how the response looks.
"""

from dataclasses import dataclass, field

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.handlers.fetch_context import ReadResult
from sparklog.executors.handlers.fetch_response import release_records
from sparklog.storage_backends.base import Region

#: Regions in one response; each of them may hold a file descriptor until it is sent.
REGIONS_MAX = 64
#: Records up to this size are cheaper to copy than to send as a region.
_COPIED_BYTES_MAX = 4096


@dataclass(slots=True)
class FetchAttempt:
    """The results of one attempt.  ``release`` its regions unless it is answered."""

    results: list[ReadResult] = field(default_factory=list)
    size: int = 0
    urgent: bool = False
    lacks_high_watermark: bool = False
    #: Records of a partition are on their way from the bucket.
    awaits_remote: bool = False
    regions: int = 0
    #: Bytes that partitions got after their reads.
    missed: int = 0

    def add(self, result: ReadResult) -> None:
        self.results.append(result)
        self.size += result.size
        self.urgent = self.urgent or result.urgent
        self.lacks_high_watermark = self.lacks_high_watermark or result.lacks_high_watermark
        self.awaits_remote = self.awaits_remote or result.awaits_remote

    def hold(self, region: Region) -> Region | bytes:
        """The records as they go into the response: a region, or a copy of its bytes."""
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
        for result in self.results:
            release_records(result.data.records)
