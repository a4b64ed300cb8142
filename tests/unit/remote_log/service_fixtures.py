"""What the tests of the service share: a service whose locks are strict, and logs of leaders.

Owns: the partition, the values of leaders, and objects without contents.  Must not know what is
tested.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from uuid import UUID

from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.manifest_log import ManifestLog
from sparklog.remote_log.remote_segment import EpochStart, RemoteSegment
from sparklog.remote_log.service import LeaderLog, RemoteLogService, RemotePartition
from sparklog.storage_backends.base import FileHalf, StorageBackend
from tests.unit.executors.log.log_fixtures import Desk
from tests.unit.remote_log.remote_fixtures import RichLog, fill
from tests.unit.remote_log.segments import segment

PARTITION = RemotePartition(UUID(int=5), 0)
SEGMENTS = names.segments_folder(*PARTITION)
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS


class StrictLock:
    """A lock for one thread, which fails where a real one would wait for ever."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        assert not self._held, "the lock is held"
        self._held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False


def service_of(
    store: StorageBackend, local: FileHalf | None = None, **options: Any
) -> RemoteLogService:
    def open_local(url: str) -> FileHalf:
        assert local is not None
        assert url == local.url
        return local

    return RemoteLogService(store, open_local, new_lock=StrictLock, **options)


def epochs(*starts: tuple[int, int]) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(*each) for each in starts)


def leader_log(
    end: int, *starts: tuple[int, int], start: int = 0, local: int | None = None
) -> LeaderLog:
    """The log [start, end) of a leader, whose files begin at ``local``."""
    return LeaderLog(
        log_start_offset=start,
        local_log_start_offset=start if local is None else local,
        log_end_offset=end,
        leader_epochs=epochs(*starts or [(1, start)]),
    )


def leading(
    store: StorageBackend, segments: Sequence[RemoteSegment] = (), epoch: int = 1, now_ms: int = 0
) -> RemoteLogService:
    """The service of a leader from offset 0 on that has added the segments."""
    service = service_of(store)
    service.begin_leadership(PARTITION, epoch, f"leader-{epoch}", leader_log(0, (epoch, 0)), now_ms)
    for each in segments:
        service.add_segment(PARTITION, each, now_ms)
    return service


def copied(base: int, end: int, *, by: int = 1, **options: Any) -> RemoteSegment:
    """A segment that the leader of epoch ``by`` has copied, with records of that epoch."""
    options.setdefault("epochs", [(by, base)])
    return segment(base, end, copied_in=by, **options)


def put_objects(store: StorageBackend, *segments: RemoteSegment) -> None:
    for each in segments:
        for path in names.objects(SEGMENTS, each.segment_id):
            store.put(path, b"x")


def object_names(*segments: RemoteSegment) -> list[str]:
    """The names of the objects of the segments, as a listing has them."""
    return sorted(
        path.rpartition("/")[2]
        for each in segments
        for path in names.objects(SEGMENTS, each.segment_id)
    )


def stored(store: StorageBackend) -> Manifest:
    """The manifest that a new reader finds."""
    manifest = ManifestLog(store, *PARTITION).load()
    manifest.check_invariants()
    return manifest


@dataclass
class TieredLog:
    """A real log whose sealed segments are copied to the store."""

    store: StorageBackend
    desk: Desk
    rich: RichLog = field(init=False)
    service: RemoteLogService = field(init=False)
    segments: list[RemoteSegment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rich = RichLog(desk=self.desk)
        self.service = service_of(self.store, self.desk.half)

    @property
    def leader_epochs(self) -> tuple[EpochStart, ...]:
        entries = self.rich.log.leader_epochs.entries
        return tuple(EpochStart(each.epoch, each.start_offset) for each in entries)

    @property
    def end(self) -> int:
        return self.segments[-1].next_offset

    def leader_log(self, **changes: Any) -> LeaderLog:
        log = self.rich.log
        values: dict[str, Any] = {
            "log_start_offset": log.log_start_offset,
            "local_log_start_offset": log.local_log_start_offset,
            "log_end_offset": log.log_end_offset,
            "leader_epochs": self.leader_epochs,
        }
        return LeaderLog(**(values | changes))

    def copy_all(self, epoch: int = 9) -> None:
        """Lead in this epoch, and copy every sealed segment that was not copied yet."""
        log = self.leader_log()
        state = self.service.begin_leadership(PARTITION, epoch, "n", log, 0)
        for number, each in enumerate(self.rich.seal()):
            if each.base_offset >= state.end_offset:
                nonce = number.to_bytes(8, "big")
                job = self.rich.job(
                    each,
                    folder=SEGMENTS,
                    segment_id=names.segment_id(each.base_offset, epoch, 0, nonce),
                )
                copy = self.service.copy(job)
                self.segments.append(copy)
                self.service.add_segment(PARTITION, copy, 0)


def tiered_log(store: StorageBackend, desk: Desk) -> TieredLog:
    """The log of ``fill``, which is copied."""
    found = TieredLog(store, desk)
    fill(found.rich)
    found.copy_all()
    return found
