"""Uploads, whose bytes come in chunks: the contract of every backend."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends import object_store
from sparklog.storage_backends.base import TEMPORARY_PREFIX, Buffer, StorageBackend
from sparklog.storage_backends.parts import PART_BYTES, bounded_parts
from sparklog.storage_backends.registry import open_backend
from tests.support.s3_server import S3Server

#: The smallest part that S3 takes before the last one.
SMALL_PART_BYTES = 5 * 1024 * 1024

#: Uploads without an end, until it is killed; prints a line when some parts are written.
UPLOADER = """
import sys
from sparklog.storage_backends.registry import open_backend

def chunks():
    for number in range(1 << 20):
        if number == 3:
            print("under way", flush=True)
        yield bytes(8 << 20)

open_backend(sys.argv[1]).upload("segments/1", chunks())
"""


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", SMALL_PART_BYTES)


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# -- parts


def test_chunks_of_any_size_are_cut_into_parts_of_one_size() -> None:
    chunks: list[Buffer] = [b"ab", b"", bytearray(b"cdefghijk"), memoryview(b"l"), b"mno", b"p"]
    assert [[bytes(part) for part in bounded_parts(chunks, size)] for size in (4, 5, 99)] == [
        [b"abcd", b"efgh", b"ijkl", b"mnop"],
        [b"abcde", b"fghij", b"klmno", b"p"],
        [b"abcdefghijklmnop"],
    ]
    assert list(bounded_parts([b"", b""], 4)) == list(bounded_parts([], 4)) == []


def test_a_part_comes_as_soon_as_it_is_full() -> None:
    asked: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(4):
            asked.append(number)
            yield b"xy"

    parts = bounded_parts(chunks(), 4)
    assert (next(parts), asked) == (b"xyxy", [0, 1])


# -- the contract


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (0, 0),
        (1, 2, 0, 3),
        (SMALL_PART_BYTES - 1,),
        (SMALL_PART_BYTES,),
        (SMALL_PART_BYTES + 1,),
        (1, 2 * SMALL_PART_BYTES, 1000),
    ],
    ids=str,
)
def test_an_upload_has_the_bytes_of_its_chunks(
    backend: StorageBackend, sizes: tuple[int, ...]
) -> None:
    data = pattern(sum(sizes))

    def chunks() -> Iterator[bytes]:
        done = 0
        for size in sizes:
            yield data[done : done + size]
            done += size

    assert backend.upload("segments/1", chunks()) == len(data)
    assert backend.read("segments/1") == data
    assert (backend.list("segments"), backend.remove_leftovers("segments")) == (["1"], 0)


@pytest.mark.usefixtures("_small_parts")
def test_an_upload_is_seen_as_a_whole_or_not_at_all(backend: StorageBackend) -> None:
    seen = []

    def chunks(name: str) -> Iterator[bytes]:
        for _ in range(3):
            seen.append((backend.list("segments"), backend.read_if_there(name)))
            yield bytes(SMALL_PART_BYTES)
        seen.append((backend.list("segments"), backend.read_if_there(name)))

    backend.put("segments/0", b"before")
    assert backend.upload("segments/0", chunks("segments/0")) == 3 * SMALL_PART_BYTES
    assert backend.upload("segments/1", chunks("segments/1")) == 3 * SMALL_PART_BYTES
    assert seen == [(["0"], b"before")] * 4 + [(["0"], None)] * 4
    assert [backend.size(f"segments/{name}") for name in backend.list("segments")] == [
        3 * SMALL_PART_BYTES
    ] * 2


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("kind", [OSError, ValueError, KeyboardInterrupt])
def test_an_error_of_the_chunks_passes_through_and_leaves_nothing(
    backend: StorageBackend, parts: int, kind: type[BaseException]
) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(parts):
            yield bytes(SMALL_PART_BYTES)
        yield b"x"
        raise kind("of the chunks")

    backend.put("segments/0", b"before")
    for path in ("segments/0", "segments/1"):
        with pytest.raises(kind, match="of the chunks"):
            backend.upload(path, chunks())
    assert (backend.list("segments"), backend.read("segments/0")) == (["0"], b"before")
    assert backend.remove_leftovers("segments") == 0


@pytest.mark.usefixtures("_small_parts")
def test_the_memory_of_a_chunk_may_be_used_for_the_next(backend: StorageBackend) -> None:
    def chunks() -> Iterator[memoryview]:
        chunk = bytearray(SMALL_PART_BYTES // 2)
        for number in range(5):
            chunk[:] = bytes([number]) * len(chunk)
            yield memoryview(chunk)

    backend.upload("segments/1", chunks())
    data = backend.read("segments/1")
    assert data == b"".join(bytes([n]) * (SMALL_PART_BYTES // 2) for n in range(5))


def test_an_upload_goes_where_a_file_may_be(backend: StorageBackend) -> None:
    backend.put("file", b"x")
    backend.put("folder/file", b"x")
    for path, message in (
        ("file/below", "is a file, not a folder"),
        ("folder", "not a file"),
        ("", "the root folder, not a file"),
        ("a/../../x", "not a path below a storage root"),
    ):
        with pytest.raises(StorageError, match=message):
            backend.upload(path, [b"y"])
    assert (backend.list(""), backend.list("folder")) == (["file", "folder"], ["file"])


# -- what killed processes leave


def test_a_killed_upload_to_a_folder_leaves_nothing(tmp_path: Path) -> None:
    _kill_an_upload(str(tmp_path))
    _check_leftovers(open_backend(tmp_path))
    assert [path.name for path in (tmp_path / "segments").iterdir()] == []


@pytest.mark.s3
def test_a_killed_upload_to_a_bucket_leaves_nothing(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{s3_bucket}/remote"
    _kill_an_upload(url)
    backend = open_backend(url)
    assert (backend.remove_leftovers(""), backend.remove_leftovers("segment")) == (0, 0)
    _check_leftovers(backend)


def test_temporary_objects_of_killed_uploads_are_not_listed() -> None:
    backend = open_backend("fsspec+memory://leftovers")
    backend.put("segments/1", b"one")
    backend.put(f"segments/{TEMPORARY_PREFIX}abc", b"half")
    assert backend.list("segments") == ["1"]
    assert [backend.remove_leftovers("segments"), backend.remove_leftovers("segments")] == [1, 0]
    assert (backend.list("segments"), backend.exists(f"segments/{TEMPORARY_PREFIX}abc")) == (
        ["1"],
        False,
    )


def _kill_an_upload(location: str) -> None:
    command = [sys.executable, "-c", UPLOADER, location]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as uploader:
        try:
            assert uploader.stdout is not None
            assert uploader.stdout.readline() == "under way\n"
        finally:
            uploader.kill()


def _check_leftovers(backend: StorageBackend) -> None:
    assert (backend.list("segments"), backend.read_if_there("segments/1")) == ([], None)
    assert [backend.remove_leftovers("segments"), backend.remove_leftovers("segments")] == [1, 0]


# -- memory


@pytest.mark.s3
def test_neither_an_upload_nor_a_read_holds_the_whole_object(
    s3_server: S3Server, s3_bucket: str
) -> None:
    _check_memory(open_backend(f"s3://{s3_bucket}", s3_server.options))


def test_neither_an_upload_nor_a_read_holds_the_whole_file(tmp_path: Path) -> None:
    _check_memory(open_backend(tmp_path))


def _check_memory(backend: StorageBackend) -> None:
    parts = 16
    chunk = bytes(PART_BYTES // 8)
    backend.upload("warm", (chunk for _ in range(8)))  # libraries allocate at their first use
    backend.read("warm", 5, 5)
    backend.delete("warm")
    tracemalloc.start()
    try:
        assert backend.upload("large", (chunk for _ in range(8 * parts))) == parts * PART_BYTES
        _, upload_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert len(backend.read("large", 3 * PART_BYTES, 1000)) == 1000
        _, read_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert upload_peak < 5 * PART_BYTES  # aiohttp makes three copies of a part
    assert read_peak < PART_BYTES
