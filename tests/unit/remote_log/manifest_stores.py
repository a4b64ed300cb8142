"""A store for manifests whose writes fail as a script says, and leaders that write to it."""

from collections import deque
from typing import Literal
from uuid import UUID

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import MemoryDisk
from tests.unit.remote_log.segments import segment

TOPIC = UUID(int=5)
FOLDER = names.manifest_folder(TOPIC, 0)

#: What happens to a write: it fails before it takes effect, or after it, or it takes effect later.
Failure = Literal["before", "after", "late"]


class ScriptedStore(MemoryBackend):
    """Every put-if-absent takes the next item of ``script``; without one it works."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.script: deque[Failure] = deque()
        self.late: list[tuple[str, bytes]] = []
        self.puts = 0

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        self.puts += 1
        failure = self.script.popleft() if self.script else None
        if failure is None:
            return super().put_if_absent(path, data)
        if failure == "after":
            super().put_if_absent(path, data)
        elif failure == "late":
            self.late.append((path, bytes(data)))
        raise StorageError(f"cannot create {path}: the store did not answer")

    def fail(self, *failures: Failure) -> None:
        """Let the next writes fail.  A commit is written twice before it counts as failed."""
        self.script.extend(failures)

    def land(self) -> list[bool]:
        """The late writes arrive.  Return which of them have created a file."""
        landed = [super(ScriptedStore, self).put_if_absent(*each) for each in self.late]
        self.late.clear()
        return landed


def leader(store: MemoryBackend, epoch: int, nonce: str = "", **options: int) -> ManifestLog:
    """A leader that has begun."""
    log = ManifestLog(store, TOPIC, 0, **options)
    log.begin_leadership(epoch, nonce or f"leader-{epoch}", 0)
    return log


def next_segment(log: ManifestLog, copy: int = 0, epoch: int | None = None) -> RemoteSegment:
    """A segment of ten records for the end of the manifest, by default of its leader's epoch."""
    end = log.manifest.end_offset or 0
    epoch = log.manifest.leader_epoch if epoch is None else epoch
    return segment(end, end + 10, copy=copy, epochs=[(epoch, end)])


def add(log: ManifestLog, added: RemoteSegment | None = None, now_ms: int = 0) -> str:
    """Commit a segment, and return its id."""
    added = added or next_segment(log)
    log.commit(log.manifest.add_segment(added), now_ms)
    return added.segment_id
