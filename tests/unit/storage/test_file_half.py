"""The contract of backends with a file half: handles, regions, maps, folders, locks."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.errors import ChangedFileError, LockedError, StorageError
from sparklog.storage_backends.base import (
    Buffer,
    FileHalf,
    MissingPathError,
    StorageBackend,
    file_half,
)
from sparklog.storage_backends.local import LocalBackend
from tests.support.descriptors import open_files_in


def test_gathered_writes_append(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    gathered: list[list[Buffer]] = [
        [b"one", memoryview(b"-two")[1:]],
        [],
        [b""],
        [bytearray(b"three")],
    ]
    assert [handle.writev(buffers) for buffers in gathered] == [6, 0, 0, 5]
    assert (handle.size(), files.read("log")) == (11, b"onetwothree")
    handle.close()


def test_more_buffers_than_the_system_takes_at_once_are_all_written(files: FileHalf) -> None:
    buffers = [b"%d," % number if number % 7 else b"" for number in range(5000)]
    handle = files.open("log", create=True)
    handle.writev([b"start "])
    assert handle.writev(buffers) == sum(map(len, buffers))
    assert files.read("log") == b"start " + b"".join(buffers)
    handle.close()


def test_a_reopened_file_goes_on_at_its_end(files: FileHalf) -> None:
    for data in (b"first ", b"second"):
        handle = files.open("log", create=True)
        handle.writev([data])
        handle.flush()
        handle.close()
        handle.close()
    assert files.read("log") == b"first second"


def test_handles_read_ranges(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123456789"])
    ranges = ((0, 4), (8, 100), (10, 1), (99, 1), (3, 0))
    assert [handle.read(*bounds) for bounds in ranges] == [b"0123", b"89", b"", b"", b""]
    handle.close()


def test_truncate_cuts_and_refuses_to_extend(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123456789"])
    handle.truncate(4)
    with pytest.raises(StorageError, match="to 5 bytes: it has 4"):
        handle.truncate(5)
    handle.writev([b"ab"])
    assert (handle.size(), files.read("log")) == (6, b"0123ab")
    handle.close()


def test_bytes_can_be_replaced_where_there_are_some(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123456789"])
    other = files.open("log")
    other.overwrite(3, memoryview(b"abc"))
    other.overwrite(10, b"")
    other.flush()
    for offset in (8, -1, 10):
        with pytest.raises(StorageError, match=r"cannot replace 3 bytes .* it has 10"):
            other.overwrite(offset, b"xyz")
    handle.writev([b"!"])
    assert (handle.size(), files.read("log")) == (11, b"012abc6789!")
    handle.close()
    other.close()
    with pytest.raises(StorageError, match="was closed"):
        other.overwrite(0, b"x")


def test_a_file_is_opened_only_where_it_can_be(files: FileHalf) -> None:
    files.put("file", b"")
    with pytest.raises(MissingPathError):
        files.open("absent")
    with pytest.raises(MissingPathError):
        files.open("absent/file", create=True)
    with pytest.raises(StorageError, match="not a folder"):
        files.open("file/below", create=True)
    assert files.list("") == ["file"]


def test_a_closed_handle_says_so(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.close()
    attempts: tuple[Callable[[], object], ...] = (
        lambda: handle.writev([b"x"]),
        lambda: handle.read(0, 1),
        lambda: handle.region(0, 1),
        lambda: handle.truncate(0),
        lambda: handle.map(8),
        handle.flush,
    )
    for attempt in attempts:
        with pytest.raises(StorageError, match="was closed"):
            attempt()


def test_a_region_outlives_handle_name_and_later_appends(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123456789"])
    region = handle.region(2, 5)
    handle.writev([b"more"])
    handle.close()
    files.rename("log", "log.deleted")
    files.delete("log.deleted")
    assert (region.size, region.read(), bytes(region.view())) == (5, b"23456", b"23456")
    place = region.descriptor()
    if place is not None:
        assert os.pread(place[0], region.size, place[1]) == b"23456"
    region.release()
    region.release()


def test_a_region_is_clipped_to_the_file(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123"])
    regions = [handle.region(*bounds) for bounds in ((2, 100), (4, 1), (9, 1))]
    assert [(region.size, region.read()) for region in regions] == [(2, b"23"), (0, b""), (0, b"")]
    handle.close()


def test_no_descriptor_leaks(files: FileHalf, tmp_path: Path) -> None:
    for number in range(20):
        handle = files.open(f"log-{number}", create=True)
        handle.writev([b"x" * 100])
        mapped = handle.map(200)
        kept, dropped = handle.region(0, 10), handle.region(0, 20)
        handle.close()
        del dropped
        kept.release()
        mapped.flush()
        mapped.close()
        mapped.close()
        files.lock(f"lock-{number}").release()
    assert open_files_in(tmp_path) == 0


def test_a_map_extends_the_file_and_writes_through(files: FileHalf) -> None:
    handle = files.open("index", create=True)
    handle.writev([b"head"])
    mapped = handle.map(64)
    handle.close()
    mapped.reserve(12)
    mapped.buffer[4:8] = b"BODY"
    mapped.flush()
    assert (len(mapped.buffer), mapped.buffer.readonly) == (64, False)
    mapped.close()
    assert files.read("index") == b"headBODY" + bytes(56)
    files.truncate("index", 8)
    again = files.open("index")
    remapped = again.map(4)
    assert (bytes(remapped.buffer), again.size()) == (b"head", 8)
    remapped.close()
    again.close()


def test_a_map_of_a_local_file_brings_in_no_more_than_is_touched(tmp_path: Path) -> None:
    if not hasattr(mmap, "MADV_RANDOM"):
        pytest.skip("this system takes no advice about maps")
    handle = LocalBackend(tmp_path).open("index", create=True)
    mapped = handle.map(1 << 20)
    maps = Path("/proc/self/smaps").read_text().split(str(tmp_path / "index"))[1]
    flags = next(line for line in maps.splitlines() if line.startswith("VmFlags"))
    # Otherwise the first store reads as much as the device reads ahead, megabytes on some devices.
    assert "rr" in flags.split()
    mapped.close()
    handle.close()


def test_a_map_works_on_after_its_file_was_renamed(files: FileHalf) -> None:
    handle = files.open("index", create=True)
    mapped = handle.map(16)
    files.rename("index", "index.deleted")
    files.put("index", bytes(16))
    mapped.reserve(16)
    mapped.buffer[:2] = b"ok"
    mapped.flush()
    mapped.close()
    handle.close()
    assert (files.read("index")[:2], files.read("index.deleted")[:2]) == (b"\0\0", b"ok")


def test_folders_are_made_renamed_and_removed_whole(files: FileHalf) -> None:
    for _ in range(2):
        files.make_folder("broker/topic-0/sub")
    files.put("broker/topic-0/sub/file", b"x")
    files.rename_folder("broker/topic-0", "broker/topic-0-delete")
    files.flush_folder("broker")
    assert files.list("broker") == ["topic-0-delete"]
    assert files.read("broker/topic-0-delete/sub/file") == b"x"
    for _ in range(2):
        files.remove_folder("broker/topic-0-delete")
    assert (files.list("broker"), files.is_folder("broker")) == ([], True)


def test_is_folder_tells_files_from_folders(files: FileHalf) -> None:
    files.put("folder/file", b"")
    paths = ("", "folder", "folder/file", "absent", "folder/file/below")
    assert [files.is_folder(path) for path in paths] == [True, True, False, False, False]


def test_folder_operations_refuse_what_they_cannot_do(files: FileHalf) -> None:
    files.put("a/file", b"x")
    files.put("b/file", b"y")
    with pytest.raises(StorageError, match="taken"):
        files.rename_folder("a", "b")
    with pytest.raises(MissingPathError):
        files.rename_folder("absent", "c")
    with pytest.raises(MissingPathError):
        files.flush_folder("absent")
    for attempt in (files.make_folder, files.remove_folder, files.flush_folder):
        with pytest.raises(StorageError, match="not a folder"):
            attempt("a/file")
    assert (files.read("a/file"), files.read("b/file")) == (b"x", b"y")


def test_a_lock_has_one_holder_and_names_it(files: FileHalf) -> None:
    files.make_folder("broker-1")
    lock = files.lock("broker-1/.lock")
    with pytest.raises(LockedError, match=rf"broker-1 is in use by process {os.getpid()}\b.*stop"):
        files.lock("broker-1/.lock")
    lock.release()
    lock.release()
    with files.lock("broker-1/.lock"), pytest.raises(LockedError):
        files.lock("broker-1/.lock")
    files.lock("broker-1/.lock").release()


def test_a_lock_needs_its_folder(files: FileHalf) -> None:
    with pytest.raises(MissingPathError):
        files.lock("broker-1/.lock")
    assert files.list("") == []


def test_a_store_without_files_is_refused(files: FileHalf) -> None:
    methods = dict.fromkeys(StorageBackend.__abstractmethods__)
    object_store = type("ObjectStore", (StorageBackend,), methods | {"url": "object://store"})()
    assert file_half(files) is files
    with pytest.raises(StorageError, match=r"object://store has no open files.*file://"):
        file_half(object_store)


def cut(files: FileHalf, path: str, size: int) -> None:
    """Truncate a file behind the back of the handle that writes."""
    other = files.open(path)
    other.truncate(size)
    other.close()


def test_nothing_is_written_behind_the_end_of_a_file_that_somebody_cut(files: FileHalf) -> None:
    handle = files.open("log", create=True)
    handle.writev([b"0123456789"])
    cut(files, "log", 4)
    for act in (
        lambda: handle.writev([b"more"]),
        lambda: handle.truncate(10),
        lambda: handle.region(0, 4),
    ):
        with pytest.raises(ChangedFileError, match="has 4 bytes where 10 were written"):
            act()
    assert handle.size() == 10
    assert files.read("log") == b"0123"
    handle.close()


def test_a_look_tells_which_file_a_path_leads_to(files: FileHalf) -> None:
    assert files.look("log") is None
    handle = files.open("log", create=True)
    handle.writev([b"0123"])
    assert files.look("log") == (handle.identity, 4)
    files.rename("log", "moved")
    assert files.look("log") is None
    assert files.look("moved") == (handle.identity, 4)
    files.put("log", b"another")
    found = files.look("log")
    assert found is not None
    assert (found.identity != handle.identity, found.size) == (True, 7)
    mapped = handle.map(4)
    assert mapped.identity == handle.identity
    mapped.close()
    files.make_folder("folder")
    assert files.look("folder") is None
    handle.close()
