"""A segment whose indexes object is damaged or gone, in a folder: what can be read all the same."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.remote_log import damaged_indexes, names
from sparklog.remote_log.damaged_object import DamagedObjectError, GoneObjectError
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import OffsetTimestamp
from sparklog.wire.records.batch import iter_batches
from tests.unit.executors.log.log_fixtures import SMALL, Desk
from tests.unit.remote_log.service_fixtures import PARTITION, SEGMENTS, TieredLog, service_of

Damage = Callable[[Path, RemoteSegment], None]

#: The lowest byte of a batch's ``lastOffsetDelta``.
LAST_OFFSET_DELTA_BYTE = 26
#: The log is the truth for these parts.
REBUILT = (PartName.OFFSET_INDEX, PartName.TIME_INDEX, PartName.STATS)


@pytest.fixture
def tiered(tmp_path: Path) -> TieredLog:
    desk = Desk(config=replace(SMALL, segment_bytes=3000, index_interval_bytes=100))
    found = TieredLog(LocalBackend(tmp_path / "remote"), desk)
    for number in range(60):
        found.rich.put(100 + 7 * number % 50, 100 + number, producer_id=7, size=40)
        if number % 10 == 9:
            found.rich.end(7)
    found.copy_all()
    assert len(found.segments) > 2
    assert set(found.segments[1].parts) == set(PartName)
    return found


def indexes_file(tiered: TieredLog) -> Path:
    store = tiered.store
    assert isinstance(store, LocalBackend)
    path = names.indexes_object(SEGMENTS, tiered.segments[1].segment_id)
    return Path(store.url.removeprefix("file://")) / path


def damage(tiered: TieredLog, *parts: PartName) -> None:
    """Change one byte of each of these parts of the second segment."""
    file = indexes_file(tiered)
    data = bytearray(file.read_bytes())
    for name in parts:
        data[tiered.segments[1].parts[name].offset] ^= 1
    file.chmod(0o600)
    file.write_bytes(data)


def records(service: RemoteLogService, end: int, *, with_aborted: bool) -> list[object]:
    """Reads from each offset on, small and larger."""
    return [
        service.read(PARTITION, offset, size, with_aborted=with_aborted)
        for size in (1, 700)
        for offset in range(end)
    ]


def lookups(service: RemoteLogService, end: int) -> list[OffsetTimestamp | None]:
    return [
        service.find_timestamp(PARTITION, timestamp, start)
        for timestamp in range(98, 165)
        for start in (0, end // 2)
    ]


@pytest.mark.parametrize("apart_bytes", [1, damaged_indexes.APART_BYTES])
@pytest.mark.parametrize("parts", [(each,) for each in REBUILT] + [REBUILT])
def test_records_and_times_are_found_without_indexes(
    tiered: TieredLog,
    parts: tuple[PartName, ...],
    apart_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damaged_indexes, "APART_BYTES", apart_bytes)
    right = service_of(tiered.store)
    expected = records(right, tiered.end, with_aborted=True), lookups(right, tiered.end)
    damage(tiered, *parts)
    service = service_of(tiered.store)
    assert lookups(service, tiered.end) == expected[1]
    assert records(service, tiered.end, with_aborted=True) == expected[0]


def test_uncommitted_records_need_the_log_object_only(tiered: TieredLog) -> None:
    right = service_of(tiered.store)
    expected = records(right, tiered.end, with_aborted=False), lookups(right, tiered.end)
    indexes_file(tiered).unlink()
    service = service_of(tiered.store)
    assert records(service, tiered.end, with_aborted=False) == expected[0]
    assert lookups(service, tiered.end) == expected[1]


def test_committed_reads_are_refused_without_the_aborted_transactions(tiered: TieredLog) -> None:
    offset = tiered.segments[1].base_offset
    damage(tiered, PartName.ABORTED_TXNS)
    service = service_of(tiered.store)
    assert service.read(PARTITION, offset, 1, with_aborted=False).data
    with pytest.raises(DamagedObjectError, match="part 'aborted' has CRC"):
        service.read(PARTITION, offset, 1, with_aborted=True)
    indexes_file(tiered).unlink()
    with pytest.raises(GoneObjectError, match="does not exist"):
        service_of(tiered.store).read(PARTITION, offset, 1, with_aborted=True)


@pytest.mark.parametrize("part", [PartName.PRODUCER_SNAPSHOT, PartName.LEADER_EPOCHS])
def test_a_follower_state_from_a_damaged_part_is_refused(tiered: TieredLog, part: PartName) -> None:
    damage(tiered, part)
    service = service_of(tiered.store)
    assert service.read(PARTITION, tiered.segments[1].base_offset, 1, with_aborted=True).data
    with pytest.raises(DamagedObjectError, match=f"part '{part.value}' has CRC"):
        service.follower_state(PARTITION, tiered.segments[1].next_offset)


def test_a_damaged_object_is_named_once(
    tiered: TieredLog, caplog: pytest.LogCaptureFixture
) -> None:
    damage(tiered, *REBUILT)
    service = service_of(tiered.store)
    with caplog.at_level(logging.WARNING):
        records(service, tiered.end, with_aborted=False)
        lookups(service, tiered.end)
    (warning,) = [each.getMessage() for each in caplog.records]
    assert names.indexes_object(SEGMENTS, tiered.segments[1].segment_id) in warning
    assert "put the object back" in warning


def test_bytes_that_are_damaged_in_a_cache_only_are_read_again(
    tiered: TieredLog, caplog: pytest.LogCaptureFixture
) -> None:
    def read(path: str, total: int, offset: int, size: int) -> bytes:
        data = bytearray(tiered.store.read(path, offset, size))
        if path.endswith(names.indexes_object("", "").lstrip("/")):
            data[0] ^= 1
        return bytes(data)

    offset = tiered.segments[1].base_offset
    expected = service_of(tiered.store).read(PARTITION, offset, 700, with_aborted=False)
    service = service_of(tiered.store, read=read)
    with caplog.at_level(logging.WARNING):
        assert service.read(PARTITION, offset, 700, with_aborted=False) == expected
    assert not caplog.records


def test_a_log_object_that_was_put_back_is_read_without_its_index(
    tiered: TieredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk remembers no offset that only a damaged batch has told."""
    monkeypatch.setattr(damaged_indexes, "APART_BYTES", 1)
    damage(tiered, PartName.OFFSET_INDEX)
    segment = tiered.segments[1]
    log_name = names.log_object(SEGMENTS, segment.segment_id).rpartition("/")[2]
    file = indexes_file(tiered).parent / log_name
    sound = file.read_bytes()
    batches = [(header, start) for header, start in iter_batches(sound)]
    header, start = batches[len(batches) // 2]
    bad = bytearray(sound)
    bad[start + LAST_OFFSET_DELTA_BYTE] ^= 1
    file.chmod(0o600)
    file.write_bytes(bad)
    service = service_of(tiered.store)
    with pytest.raises(DamagedObjectError):
        service.read(PARTITION, header.base_offset, 1, with_aborted=False)
    file.write_bytes(sound)
    for offset in range(segment.base_offset, segment.next_offset):
        assert service.read(PARTITION, offset, 1, with_aborted=False).data


def test_a_read_in_sequence_goes_on_where_the_one_before_began(
    tiered: TieredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk from the start of the object for each read would be quadratic."""
    monkeypatch.setattr(damaged_indexes, "APART_BYTES", 1)
    segment = tiered.segments[1]
    damage(tiered, PartName.OFFSET_INDEX)
    log = names.log_object(SEGMENTS, segment.segment_id)
    begins: list[int] = []

    def read(path: str, total: int, offset: int, size: int) -> bytes:
        if path == log:
            begins.append(offset)
        return bytes(tiered.store.read(path, offset, size))

    service = service_of(tiered.store, read=read)
    offset, started = segment.base_offset, []
    while offset < segment.next_offset:
        begins.clear()
        found = service.read(PARTITION, offset, 700, with_aborted=False)
        started.append(begins[0])
        offset = found.next_offset
    assert started == sorted(started)
    assert len(set(started)) >= len(started) - 1
