"""Segments and manifests for tests."""

from collections.abc import Iterable

from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest, Records
from sparklog.remote_log.manifest_records import SegmentAdded
from sparklog.remote_log.remote_segment import EpochStart, Part, PartName, RemoteSegment

#: Bytes of the indexes object of each segment.
INDEXES_SIZE = 30


def segment_id(base: int, copy: int = 0, copied_ms: int = 0, copied_in: int = 0) -> str:
    return names.segment_id(base, copied_in, copied_ms, copy.to_bytes(8, "big"))


def segment(
    base: int,
    end: int,
    *,
    copy: int = 0,
    epochs: Iterable[tuple[int, int]] = (),
    size: int = 100,
    time: int = 0,
    copied_ms: int = 0,
    copied_in: int = 0,
) -> RemoteSegment:
    """A segment with [base, end); without ``epochs`` all of epoch 1."""
    return RemoteSegment(
        segment_id=segment_id(base, copy, copied_ms, copied_in),
        base_offset=base,
        next_offset=end,
        log_size=size,
        max_timestamp=time,
        leader_epochs=tuple(EpochStart(*each) for each in epochs or [(1, base)]),
        parts={PartName.OFFSET_INDEX: Part(0, INDEXES_SIZE, 7)},
    )


def commit(manifest: Manifest, records: Records) -> None:
    manifest.replay_commit(manifest.version + 1, records)
    manifest.check_invariants()


def manifest_of(*segments: RemoteSegment, log_start: int | None = None) -> Manifest:
    manifest = Manifest()
    commit(manifest, tuple(SegmentAdded(segment=each) for each in segments))
    if log_start is not None:
        commit(manifest, manifest.move_log_start(log_start, 0))
    return manifest


def ids(segments: Iterable[RemoteSegment]) -> list[str]:
    return [each.segment_id for each in segments]
