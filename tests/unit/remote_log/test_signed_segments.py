"""Segments with URLs: which stores have them, and their bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import DecodeError
from sparklog.remote_log.manifest import FoundSegments
from sparklog.remote_log.remote_segment import (
    EpochStart,
    Part,
    PartName,
    RemoteSegment,
    TimeBounds,
)
from sparklog.remote_log.service import RemoteLogService, RemotePartition
from sparklog.remote_log.signed_segments import SignedPage, SignedSegment, sign_segments
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.registry import open_file_half


def segment(base_offset: int) -> RemoteSegment:
    return RemoteSegment(
        segment_id=f"{base_offset:020d}-{0:010d}-{1:012x}-{0:016x}",
        base_offset=base_offset,
        next_offset=base_offset + 10,
        log_size=100,
        max_timestamp=5,
        leader_epochs=(EpochStart(0, base_offset),),
        parts={PartName.OFFSET_INDEX: Part(0, 8, 77)},
    )


class SigningStore(MemoryBackend):
    """Signs as a bucket does."""

    def presign(self, path: str, seconds: int) -> str:
        return f"https://bucket/{path}?seconds={seconds}"


SEGMENTS = [segment(0), segment(10)]


def signed(store: StorageBackend, seconds: int = 60) -> Sequence[SignedSegment]:
    return sign_segments(store, "t/0/segments", SEGMENTS, seconds)


def test_a_bucket_signs_both_objects() -> None:
    ids = [each.segment_id for each in SEGMENTS]
    assert signed(SigningStore()) == [
        SignedSegment(
            segment=each,
            log_url=f"https://bucket/t/0/segments/{name}.log?seconds=60",
            indexes_url=f"https://bucket/t/0/segments/{name}.indexes?seconds=60",
        )
        for each, name in zip(SEGMENTS, ids, strict=True)
    ]


def test_a_folder_has_file_urls(tmp_path: Path) -> None:
    found = signed(LocalBackend(tmp_path / "a folder"))
    path = tmp_path / "a folder" / "t/0/segments" / f"{SEGMENTS[0].segment_id}.log"
    assert found[0].log_url == path.as_uri()


def test_other_stores_have_none() -> None:
    assert signed(MemoryBackend()) == []


def test_a_segment_comes_back_as_it_was_and_shows_no_url() -> None:
    for each in signed(SigningStore()):
        assert SignedSegment.decode(each.encode()) == each
        assert "bucket" not in repr(each)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"segment":1,"log":"a","indexes":"b"}', b"x"]
)
def test_other_bytes_are_no_segment(data: bytes) -> None:
    with pytest.raises(DecodeError):
        SignedSegment.decode(data)
    whole = signed(SigningStore())[0].encode()
    with pytest.raises(DecodeError):
        SignedSegment.decode(whole.replace(b'"log":"https', b'"log":7,"x":"https'))


@pytest.mark.parametrize("end", [b"", b"\xff", b"7}"])
def test_an_error_about_damaged_bytes_shows_no_url(end: bytes) -> None:
    whole = signed(SigningStore())[0].encode()
    with pytest.raises(DecodeError) as caught:
        SignedSegment.decode(whole[:-1] + end)
    assert "seconds=60" not in str(caught.value)


def test_the_service_signs_the_first_segments_of_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    service = RemoteLogService(SigningStore(), open_file_half)
    partition = RemotePartition(UUID(int=5), 0)
    asked: list[tuple[Any, ...]] = []

    class Manifest:
        def search(self, *wanted: Any) -> FoundSegments:
            asked.append(wanted)
            return FoundSegments(SEGMENTS, 15, 99)

    monkeypatch.setattr(service._manifests, "look", lambda _, look, **how: look(Manifest()))
    assert service.signed_segments(partition, 3, 15, seconds=9, count_max=2) == SignedPage()
    monkeypatch.setattr(service._manifests, "leads", lambda *_: True)
    times = TimeBounds(4, 6)
    found = service.signed_segments(partition, 3, 15, seconds=9, count_max=2, times=times)
    signed = sign_segments(SigningStore(), f"{UUID(int=5)}/0/segments", SEGMENTS, 9)
    assert found == SignedPage(signed, 15, 99)
    assert asked == [(3, 15, times, 2)]
