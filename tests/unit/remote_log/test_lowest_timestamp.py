"""The lowest timestamp of a copied segment: no record is below it, however the batches look.

A segment that it rules out wrongly loses rows, and nothing tells of that.
"""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.remote_log.manifest import Manifest
from sparklog.remote_log.manifest_records import record_from_json
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteReader
from sparklog.remote_log.remote_segment import PartName, RemoteSegment, TimeBounds
from sparklog.segment_files.stats_file import decode_stats, encode_stats
from sparklog.types import MAX_INT64, NO_TIMESTAMP, Compression, TimestampType
from sparklog.wire.records.batch import iter_batches, pack_attributes, pack_batch
from sparklog.wire.records.columns import decode_columns
from tests.unit.remote_log.remote_fixtures import FOLDER, RichLog, fill, log_path
from tests.unit.remote_log.segments import commit, manifest_of


def row_times(rich: RichLog, copied: RemoteSegment) -> list[int]:
    """The timestamps of all rows that a DataFrame may have of a segment, in milliseconds."""
    return [
        micros // 1000
        for batch in decode_columns(
            rich.bucket.read(log_path(copied)),
            start_offset=0,
            end_offset=MAX_INT64,
            columns=frozenset(("timestamp",)),
        )
        for micros in batch.column("timestamp").cast(pa.int64()).to_pylist()
    ]


def put_raw(rich: RichLog, records: bytes, count: int, *, timestamp: int = 1) -> None:
    """Append a batch with this record section, whatever it has."""
    data = pack_batch(
        records,
        attributes=pack_attributes(Compression.NONE),
        record_count=count,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        base_offset=rich.log.log_end_offset,
        leader_epoch=rich.leader_epoch,
    )
    ((header, _),) = iter_batches(data)
    rich.log.append([data], [header], 0, None)


def test_it_is_that_of_the_records_and_not_of_the_headers() -> None:
    rich = RichLog()
    rich.put(100, 90, 105)
    rich.put(95, 110)
    (copied,) = rich.copy_all()
    headers = [header for header, _ in iter_batches(rich.bucket.read(log_path(copied)))]
    assert [header.base_timestamp for header in headers] == [100, 95]
    assert copied.min_timestamp == 90


def test_control_batches_count() -> None:
    rich = RichLog()
    rich.put(100, producer_id=7)
    rich.end(7)
    assert [each.min_timestamp for each in rich.copy_all()] == [50]


def test_no_row_of_a_rich_log_is_ruled_out() -> None:
    rich = RichLog()
    fill(rich)
    copies = rich.copy_all()
    assert sum(each.min_timestamp > 0 for each in copies) > 3
    assert any(each.min_timestamp == NO_TIMESTAMP for each in copies)
    for copied in copies:
        rows = row_times(rich, copied)
        for highest in range(-3, 720):
            if not copied.may_hold(TimeBounds(highest_ms=highest)):
                assert min(rows, default=highest + 1) > highest


@given(
    batches=st.lists(
        st.tuples(
            st.lists(st.integers(-2, 9), min_size=1, max_size=4),
            st.sampled_from(Compression),
            st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
            st.sampled_from([20, 500]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_no_row_of_any_log_is_ruled_out(
    batches: list[tuple[list[int], Compression, TimestampType, int]],
) -> None:
    rich = RichLog()
    for times, codec, kind, size in batches:
        rich.put(*times, compression=codec, timestamp_type=kind, size=size)
    for copied in rich.copy_all():
        rows = row_times(rich, copied)
        assert copied.min_timestamp == max(min(rows), NO_TIMESTAMP)
        for highest in range(-4, 12):
            is_known_and_above = min(rows) >= 0 and min(rows) > highest
            assert copied.may_hold(TimeBounds(highest_ms=highest)) is not is_known_and_above


@pytest.mark.parametrize("times", [(5, -1), (-7, 5), (-1,)])
def test_a_record_without_a_timestamp_rules_nothing_out(times: tuple[int, ...]) -> None:
    rich = RichLog()
    rich.put(*times)
    assert [each.min_timestamp for each in rich.copy_all()] == [NO_TIMESTAMP]


def test_records_that_cannot_be_read_rule_nothing_out() -> None:
    rich = RichLog()
    rich.put(5)
    put_raw(rich, b"no records", 1)
    assert [each.min_timestamp for each in rich.copy_all()] == [NO_TIMESTAMP]


def test_batches_that_compaction_has_emptied_do_not_count() -> None:
    rich = RichLog()
    put_raw(rich, b"", 0)
    assert [each.min_timestamp for each in rich.copy_all()] == [NO_TIMESTAMP]
    rich = RichLog()
    put_raw(rich, b"", 0)
    rich.put(6, 7)
    put_raw(rich, b"", 0)
    assert [each.min_timestamp for each in rich.copy_all()] == [6]


def test_statistics_that_are_not_sound_rule_nothing_out() -> None:
    rich = RichLog()
    fill(rich)
    first, second = rich.seal()[:2]
    path, other = (
        job.path(job.part_files[PartName.STATS]) for job in (rich.job(first), rich.job(second))
    )
    assert rich.copy(first).min_timestamp == 50
    stats = rich.desk.half.read(path)
    not_measured = replace(decode_stats(stats, 0), ranges=None)
    for wrong in (
        b"",
        stats[:-1],
        stats[:-1] + b"?",
        rich.desk.half.read(other),
        encode_stats(not_measured, 0),
    ):
        rich.desk.half.put(path, wrong)
        assert rich.copy(first).min_timestamp == NO_TIMESTAMP
    job = rich.job(first)
    files = {name: file for name, file in job.part_files.items() if name is not PartName.STATS}
    assert rich.copy(first, part_files=files).min_timestamp == NO_TIMESTAMP


def test_the_beginning_of_a_segment_keeps_the_bound_of_the_whole() -> None:
    rich = RichLog()
    rich.put(9, 8)
    rich.put(5)
    (whole,) = rich.copy_all()
    beginning = RemoteReader(rich.bucket.read, FOLDER, PartCache()).beginning(whole, 2)
    assert beginning is not None
    assert beginning.min_timestamp == whole.min_timestamp == 5


def test_manifests_keep_it() -> None:
    rich = RichLog()
    fill(rich)
    copies = rich.copy_all()
    manifest = manifest_of(*copies)
    kept = [each.min_timestamp for each in copies]
    assert [each.min_timestamp for each in manifest.segments()] == kept
    again = Manifest()
    commit(again, tuple(map(record_from_json, json.loads(manifest.encoded_snapshot()))))
    assert [each.min_timestamp for each in again.segments()] == kept
