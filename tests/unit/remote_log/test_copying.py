"""Copies of sealed segments: what lands in the bucket, and what must not."""

import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from sparklog.errors import CorruptLogError, DecodeError, StorageError
from sparklog.executors.log import Segment
from sparklog.remote_log import copying, names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn, decode_aborted
from sparklog.remote_log.copying import copy_segment
from sparklog.remote_log.leader_epochs import decode_epochs
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import EpochStart, Part, PartName, RemoteSegment
from sparklog.storage_backends.base import Buffer, MissingPathError
from sparklog.wire.records.batch import BatchHeader, read_header
from tests.unit.executors.log.cleaned_logs import compact
from tests.unit.executors.log.log_fixtures import PARTITION_DIR
from tests.unit.remote_log.remote_fixtures import (
    FOLDER,
    Bucket,
    RichLog,
    fill,
    indexes_path,
    log_path,
)


@pytest.fixture
def rich() -> RichLog:
    found = RichLog()
    fill(found)
    return found


def test_both_objects_have_the_bytes_of_the_files(rich: RichLog) -> None:
    sealed = rich.seal()
    half = rich.desk.half
    assert len(sealed) > 4
    for local in sealed:
        job, remote = rich.job(local), rich.copy(local)
        assert rich.bucket.read(log_path(remote)) == half.read(local.log_path)
        indexes = rich.bucket.read(indexes_path(remote))
        found = {
            name: indexes[part.offset : part.offset + part.size]
            for name, part in remote.parts.items()
        }
        assert b"".join(found.values()) == indexes
        assert {name: part.crc for name, part in remote.parts.items()} == {
            name: crc32c(data) for name, data in found.items()
        }
        assert decode_epochs(found.pop(PartName.LEADER_EPOCHS)) == job.leader_epochs
        assert decode_aborted(found.pop(PartName.ABORTED_TXNS, b"")) == job.aborted
        assert found == {
            name: half.read(f"{PARTITION_DIR}/{file}") for name, file in job.part_files.items()
        }
        assert len(found) == 4


def test_the_description_is_that_of_the_segment(rich: RichLog) -> None:
    sealed = rich.seal()
    copies = [rich.copy(segment) for segment in sealed]
    assert [replace(each, segment_id="x", parts={}) for each in copies] == [
        RemoteSegment(
            segment_id="x",
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            log_size=segment.size,
            max_timestamp=segment.largest.timestamp,
            min_timestamp=each.min_timestamp,
            leader_epochs=each.leader_epochs,
            parts={},
        )
        for segment, each in zip(sealed, copies, strict=True)
    ]
    known = rich.log.leader_epochs
    for each in copies:
        offsets = range(each.base_offset, each.next_offset)
        starts = [
            o for o in offsets if o == offsets[0] or known.epoch_at(o - 1) != known.epoch_at(o)
        ]
        assert each.leader_epochs == tuple(EpochStart(known.epoch_at(o), o) for o in starts)
    assert [RemoteSegment.from_json(each.to_json()) for each in copies] == copies


def test_files_that_a_segment_lacks_are_left_out(rich: RichLog) -> None:
    segment = rich.seal()[0]
    remote = rich.copy(segment, part_files={}, aborted=())
    assert remote.parts == {PartName.LEADER_EPOCHS: Part(0, 12, remote.parts["epochs"].crc)}


def test_a_job_survives_the_way_to_another_process(rich: RichLog) -> None:
    for segment in rich.seal():
        job = rich.job(segment, bytes_per_second=1e6, gaps=True)
        assert pickle.loads(pickle.dumps(job)) == job
    assert pickle.loads(pickle.dumps(rich.job(segment))) == rich.job(segment)


@pytest.mark.parametrize(
    "change",
    [
        {"aborted": (RemoteAbortedTxn(1, 5, 5),)},
        {"leader_epochs": (EpochStart(1, 0), EpochStart(0, 1))},
    ],
)
def test_a_job_that_cannot_be_true_is_refused(rich: RichLog, change: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        rich.job(rich.seal()[0], **change)


def test_chunks_count_as_moved(rich: RichLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 500)
    segment = rich.seal()[0]
    moved: list[int] = []
    remote = copy_segment(rich.job(segment), rich.desk.half, rich.bucket, moved.append)
    whole, rest = divmod(remote.log_size, 500)
    assert whole > 1
    assert moved == [500] * whole + [rest, remote.size - remote.log_size]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 60, 61, 62, 333])
def test_batches_are_checked_across_chunks(
    rich: RichLog, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    segment = rich.seal()[1]
    expected = rich.copy(segment)
    monkeypatch.setattr(copying, "CHUNK_BYTES", chunk_bytes)
    assert rich.copy(segment) == expected
    rich.desk.half.open(segment.log_path).overwrite(segment.size - 1, b"?")
    with pytest.raises(CorruptLogError, match="CRC is"):
        rich.copy(segment)


# damage


def one_segment() -> tuple[RichLog, Segment]:
    """A segment in which each index has entries."""
    rich = RichLog()
    rich.put(100, producer_id=7)
    rich.leader_epoch = 2
    rich.put(90, 130, size=130)
    rich.put(120, size=130)
    rich.put(125, 140)
    rich.end(7)
    (segment,) = rich.seal()
    return rich, segment


def test_no_flipped_bit_of_the_log_gets_into_the_bucket() -> None:
    rich, segment = one_segment()
    handle = rich.desk.half.open(segment.log_path)
    data = handle.read(0, segment.size)
    job = rich.job(segment)
    for position in range(segment.size):
        for bit in range(8):
            handle.overwrite(position, bytes([data[position] ^ 1 << bit]))
            with pytest.raises(CorruptLogError) as caught:
                copy_segment(job, rich.desk.half, rich.bucket, lambda _: None)
            assert caught.value.path == segment.log_path
            assert caught.value.position <= position
        handle.overwrite(position, data[position : position + 1])
    assert rich.bucket.files() == []
    copy_segment(job, rich.desk.half, rich.bucket, lambda _: None)


@pytest.mark.parametrize("name", [PartName.OFFSET_INDEX, PartName.TIME_INDEX])
def test_no_flipped_bit_of_an_index_gets_into_the_bucket(name: PartName) -> None:
    rich, segment = one_segment()
    job = rich.job(segment)
    path = job.path(job.part_files[name])
    data = rich.desk.half.read(path)
    assert len(data) >= 16
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            rich.desk.half.put(path, changed)
            with pytest.raises(CorruptLogError) as caught:
                copy_segment(job, rich.desk.half, rich.bucket, lambda _: None)
            assert caught.value.path == path
    assert rich.bucket.files() == []


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (PartName.OFFSET_INDEX, lambda data: data[:-1], "an entry has 8 bytes"),
        (PartName.TIME_INDEX, lambda data: data + b"\0", "an entry has 12 bytes"),
        (PartName.TIME_INDEX, lambda data: data[12:], "is missing"),
        (PartName.TIME_INDEX, lambda data: data[:-12], "is missing"),
        (PartName.TIME_INDEX, lambda _: b"", "is missing"),
        (PartName.TIME_INDEX, lambda data: data + struct.pack(">qi", 999, 3), "fits no batch"),
        (PartName.OFFSET_INDEX, lambda data: data + struct.pack(">ii", 9, 9999), "behind the log"),
    ],
)
def test_an_index_of_another_length_is_refused(
    name: PartName, change: Callable[[bytes], bytes], reason: str
) -> None:
    rich, segment = one_segment()
    job = rich.job(segment)
    path = job.path(job.part_files[name])
    rich.desk.half.put(path, change(rich.desk.half.read(path)))
    with pytest.raises(CorruptLogError, match=reason):
        copy_segment(job, rich.desk.half, rich.bucket, lambda _: None)
    assert rich.bucket.files() == []


@pytest.mark.parametrize("by", [-1, 1, -200])
def test_a_file_of_another_size_is_refused(by: int) -> None:
    rich, segment = one_segment()
    data = rich.desk.half.read(segment.log_path)
    rich.desk.half.put(segment.log_path, (data + b"?")[: len(data) + by])
    with pytest.raises(CorruptLogError, match=f"{len(data)} were sealed"):
        rich.copy(segment)
    assert rich.bucket.files() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: {"next_offset": s.next_offset + 1}, "the last offset is 6 where 7 is due"),
        (lambda s: {"next_offset": s.next_offset - 1}, "where the segment ends at 5"),
        (lambda s: {"leader_epochs": (EpochStart(0, 0),)}, "leader epoch is 2 where 0 wrote"),
    ],
)
def test_a_segment_other_than_announced_is_refused(
    change: Callable[[Segment], dict[str, Any]], reason: str
) -> None:
    rich, segment = one_segment()
    with pytest.raises(CorruptLogError, match=reason):
        rich.copy(segment, **change(segment))
    assert rich.bucket.files() == []


def test_a_segment_that_ends_inside_a_batch_is_refused() -> None:
    rich, segment = one_segment()
    data = rich.desk.half.read(segment.log_path)
    rich.desk.half.put(segment.log_path, data[: segment.size] + data[:30])
    with pytest.raises(CorruptLogError, match=f"at byte {segment.size}: .* a batch is cut off"):
        rich.copy(segment, log_size=segment.size + 30)
    assert rich.bucket.files() == []


def test_a_log_that_shrinks_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rich, segment = one_segment()
    monkeypatch.setattr(copying, "CHUNK_BYTES", 100)

    def cut(_: int) -> None:
        rich.desk.half.truncate(segment.log_path, 150)

    with pytest.raises(CorruptLogError, match="at byte 150: the file ends before"):
        copy_segment(rich.job(segment), rich.desk.half, rich.bucket, cut)
    assert rich.bucket.files() == []


def test_a_file_that_has_gone_is_missing() -> None:
    rich, segment = one_segment()
    job = rich.job(segment)
    rich.desk.half.delete(job.path(job.part_files[PartName.STATS]))
    with pytest.raises(MissingPathError, match="stats"):
        copy_segment(job, rich.desk.half, rich.bucket, lambda _: None)
    rich.desk.half.delete(job.log_path)
    with pytest.raises(MissingPathError):
        copy_segment(replace(job, part_files={}), rich.desk.half, rich.bucket, lambda _: None)


def test_a_store_that_takes_less_is_an_error() -> None:
    class Careless(Bucket):
        def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
            return super().upload(path, chunks) - 1

    rich, segment = one_segment()
    rich.bucket = Careless()
    with pytest.raises(StorageError, match="was uploaded with"):
        rich.copy(segment)


def test_gaps_are_damage_unless_the_log_was_compacted(rich: RichLog) -> None:
    rich.seal()
    rich.log.flush(0)
    compact(rich.log, rich.desk.half, lambda record: record.offset % 5 != 1, count=2)
    rich.log.statistics.measure_pending()
    first, second, *_ = rich.log.segments
    with pytest.raises(CorruptLogError, match="must follow"):
        rich.copy(first)
    assert rich.copy(first, gaps=True).gaps
    assert not rich.copy(second, gaps=True).gaps
    assert FOLDER in rich.bucket.files()[0][0]


def test_a_copy_may_begin_inside_the_file_of_a_segment(rich: RichLog) -> None:
    """Replicas roll at different places: a new leader copies the rest of its segment."""
    for local in rich.seal():
        whole = rich.copy(local)
        positions = {
            header.base_offset: position
            for header, position in iter_positions(rich.desk.half.read(local.log_path))
        }
        for offset, position in list(positions.items())[1:]:
            snapshot = PartName.PRODUCER_SNAPSHOT
            files = {n: f for n, f in rich.job(local).part_files.items() if n is snapshot}
            remote = rich.copy(
                local,
                base_offset=offset,
                start_position=position,
                log_size=local.size - position,
                part_files=files,
                index_interval_bytes=200,
                segment_id=names.segment_id(offset, 9, 1, bytes(8)),
            )
            assert rich.bucket.read(log_path(remote)) == rich.desk.half.read(
                local.log_path, position
            )
            reader = RemoteReader(rich.bucket.read, FOLDER, PartCache())
            for wanted in range(offset, local.next_offset):
                ours = reader.read_batches(remote, wanted, 400, end_offset=local.next_offset)
                theirs = rich.log.read(wanted, 400, end_offset=local.next_offset)
                assert theirs.region is not None
                assert (ours.data, ours.first_offset) == (theirs.region.read(), theirs.first_offset)
            for timestamp in (0, 150, 305, 505, 595, 601):
                found = reader.find_timestamp(remote, timestamp)
                assert found == reader.find_timestamp(whole, timestamp, start_offset=offset)


def iter_positions(data: bytes) -> list[tuple[BatchHeader, int]]:
    found, position = [], 0
    while position < len(data):
        header = read_header(data[position:])
        found.append((header, position))
        position += header.size
    return found
