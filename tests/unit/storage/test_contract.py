"""The contract of every backend, object stores included."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends.base import Buffer, MissingPathError, StorageBackend
from sparklog.storage_backends.registry import open_backend


def test_appends_add_up_and_are_read_back_whole_and_in_ranges(backend: StorageBackend) -> None:
    for part in (b"one", bytearray(b"two"), memoryview(b"three"), b""):
        backend.append("a/b/log", part)
    ranges = ((0, None), (3, 3), (3, None), (9, 100), (11, 5), (50, 5), (2, 0))
    assert [backend.read("a/b/log", *bounds) for bounds in ranges] == [
        b"onetwothree",
        b"two",
        b"twothree",
        b"ee",
        b"",
        b"",
        b"",
    ]
    assert backend.size("a/b/log") == 11


def test_many_files_are_read_in_order_and_a_missing_one_is_named(backend: StorageBackend) -> None:
    names = [f"journal/{number}" for number in range(70)]
    for name in names:
        backend.put_if_absent(name, name.encode())
    assert backend.read_many(names[::-1]) == [name.encode() for name in names[::-1]]
    assert backend.read_many([]) == []
    assert [backend.read_if_there(name) for name in ("journal/7", "journal/x", "x/y")] == [
        b"journal/7",
        None,
        None,
    ]
    with pytest.raises(MissingPathError, match=r"journal/x.*does not exist"):
        backend.read_many(["journal/1", "journal/x", "journal/2"])


def test_an_append_of_nothing_makes_an_empty_file(backend: StorageBackend) -> None:
    backend.append("empty", b"")
    assert (backend.read("empty"), backend.size("empty")) == (b"", 0)


def test_put_creates_and_replaces(backend: StorageBackend) -> None:
    backend.put("folder/state", b"a long first version")
    backend.put("folder/state", memoryview(b"second"))
    assert backend.read("folder/state") == b"second"
    assert backend.list("folder") == ["state"]


def test_put_if_absent_creates_once_and_never_replaces(backend: StorageBackend) -> None:
    outcomes = [backend.put_if_absent("journal/1", data) for data in (b"mine", b"theirs", b"")]
    assert outcomes == [True, False, False]
    assert backend.read("journal/1") == b"mine"
    assert backend.list("journal") == ["1"]


def test_put_if_absent_creates_an_empty_file(backend: StorageBackend) -> None:
    assert [backend.put_if_absent("marker", b""), backend.put_if_absent("marker", b"x")] == [
        True,
        False,
    ]
    assert backend.read("marker") == b""


def test_a_store_knows_whether_one_of_many_wins(backend: StorageBackend) -> None:
    assert backend.proves_put_if_absent() == backend.atomic_put_if_absent
    assert backend.list("") == []


def test_one_of_many_racing_threads_wins(backend: StorageBackend) -> None:
    if not backend.atomic_put_if_absent:
        pytest.skip("a store that says that it cannot do this; a journal refuses it")
    writers, rounds = 8, 10
    start = Barrier(writers)

    def write(number: int) -> list[bool]:
        wins = []
        for round_ in range(rounds):
            start.wait(timeout=30)
            wins.append(backend.put_if_absent(f"journal/{round_}", b"%d" % number * 1000))
        return wins

    with ThreadPoolExecutor(writers) as pool:
        wins = list(pool.map(write, range(writers)))
    winners = [[n for n in range(writers) if wins[n][round_]] for round_ in range(rounds)]
    assert [len(of_round) for of_round in winners] == [1] * rounds
    assert [backend.read(f"journal/{round_}") for round_ in range(rounds)] == [
        b"%d" % of_round[0] * 1000 for of_round in winners
    ]


def test_listing_gives_the_direct_children_in_order(backend: StorageBackend) -> None:
    for path in ("z", "a/2", "a/10", "a/sub/deep/x", "a/.lock"):
        backend.put(path, b"")
    listings = [backend.list(folder) for folder in ("", "a", "a/sub", "a/sub/deep")]
    assert listings == [["a", "z"], [".lock", "10", "2", "sub"], ["deep"], ["x"]]


def test_listing_what_is_missing_or_a_file_gives_nothing(backend: StorageBackend) -> None:
    backend.put("file", b"x")
    assert [backend.list(folder) for folder in ("nowhere", "file", "file/below")] == [[], [], []]


def test_exists_sees_files_and_folders(backend: StorageBackend) -> None:
    backend.put("folder/file", b"")
    paths = ("folder", "folder/file", "folder/other", "other", "folder/file/below")
    assert [backend.exists(path) for path in paths] == [True, True, False, False, False]


def test_rename_moves_and_replaces(backend: StorageBackend) -> None:
    backend.put("a/new", b"new")
    backend.put("b/old", b"old")
    backend.rename("a/new", "b/old")
    assert (backend.exists("a/new"), backend.read("b/old")) == (False, b"new")


def test_delete_is_repeatable(backend: StorageBackend) -> None:
    backend.put("folder/file", b"x")
    backend.put("folder/kept", b"y")
    for path in ("folder/file", "folder/file", "nowhere/file"):
        backend.delete(path)
    assert backend.list("folder") == ["kept"]


def test_truncate_cuts_and_an_append_goes_on_from_there(backend: StorageBackend) -> None:
    backend.append("log", b"0123456789")
    backend.truncate("log", 4)
    backend.append("log", b"ab")
    backend.flush("log")
    assert backend.read("log") == b"0123ab"


def test_truncate_never_extends(backend: StorageBackend) -> None:
    backend.append("log", b"0123")
    with pytest.raises(StorageError, match="to 5 bytes: it has 4"):
        backend.truncate("log", 5)
    assert backend.read("log") == b"0123"


def test_what_is_missing_is_an_error_of_its_own(backend: StorageBackend) -> None:
    backend.put("here", b"")
    for attempt in (
        lambda: backend.read("gone/x"),
        lambda: backend.size("gone/x"),
        lambda: backend.flush("gone/x"),
        lambda: backend.truncate("gone/x", 0),
        lambda: backend.rename("gone/x", "here"),
    ):
        with pytest.raises(MissingPathError, match=r"gone/x.*does not exist"):
            attempt()


@pytest.mark.parametrize("write", ["append", "put", "put_if_absent"])
def test_nothing_can_be_written_below_a_file(backend: StorageBackend, write: str) -> None:
    backend.put("file", b"x")
    attempt = getattr(backend, write)
    with pytest.raises(StorageError, match=r"file/below.*is a file, not a folder"):
        attempt("file/below", b"y")
    assert (backend.list(""), backend.read("file")) == (["file"], b"x")


def test_a_folder_is_no_file(backend: StorageBackend) -> None:
    backend.put("folder/file", b"x")
    for attempt in (
        lambda: backend.read("folder"),
        lambda: backend.size("folder"),
        lambda: backend.append("folder", b"y"),
        lambda: backend.put("folder", b"y"),
        lambda: backend.delete("folder"),
        lambda: backend.rename("folder", "other"),
    ):
        with pytest.raises(StorageError, match=r"folder.*not a file"):
            attempt()
    assert backend.read("folder/file") == b"x"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a//b", "a/../../x", "a/.", "a/", "a\0b"])
def test_a_path_never_leaves_the_root(backend: StorageBackend, path: str) -> None:
    with pytest.raises(StorageError, match="not a path below a storage root"):
        backend.put(path, b"x")
    assert backend.list("") == []


def test_the_root_is_no_file(backend: StorageBackend) -> None:
    with pytest.raises(StorageError, match="the root folder, not a file"):
        backend.put("", b"x")


def test_large_data_survives(backend: StorageBackend) -> None:
    data: Buffer = bytes(range(256)) * 20_000
    backend.put("large", data)
    backend.append("large", data)
    assert backend.read("large") == bytes(data) * 2


def test_the_url_leads_to_the_same_place(backend: StorageBackend) -> None:
    backend.put("file", b"x")
    again = open_backend(backend.url)
    assert (type(again), again.url, again.read("file")) == (type(backend), backend.url, b"x")


def test_nothing_is_left_over_by_writers_that_were_not_killed(backend: StorageBackend) -> None:
    assert backend.remove_leftovers("missing") == 0
    backend.put("a/one", b"1")
    assert backend.put_if_absent("a/two", b"2")
    assert not backend.put_if_absent("a/two", b"3")
    assert backend.remove_leftovers("a") == 0
    assert backend.list("a") == ["one", "two"]


def test_a_range_of_a_large_file_is_read_at_any_place(backend: StorageBackend) -> None:
    mib = 1 << 20
    data = b"".join(bytes([number]) * mib for number in range(20))
    backend.put("large", data)
    ranges = ((0, 1), (3 * mib - 1, 2), (7 * mib, mib), (20 * mib - 3, 100), (20 * mib, 1))
    assert [backend.read("large", *bounds) for bounds in ranges] == [
        data[offset : offset + size] for offset, size in ranges
    ]
    assert [backend.read("large", 20 * mib + beyond, 5) for beyond in (0, 1, mib)] == [b""] * 3


def test_many_files_are_deleted_at_once_and_missing_ones_do_not_count(
    backend: StorageBackend,
) -> None:
    for name in ("a/1", "a/2", "a/3", "1"):
        backend.put(name, b"x")
    backend.delete_many(["a/1", "a/9", "1", "nowhere/1", "a/3"])
    backend.delete_many([])
    assert (backend.list(""), backend.list("a")) == (["a"], ["2"])


def test_whoever_has_a_signed_url_reads_that_file(backend: StorageBackend) -> None:
    backend.put("a folder/file+1", b"0123456789")
    url = backend.presign("a folder/file+1", 60)
    if not backend.url.startswith("s3:"):
        assert url is None
        return
    assert url is not None
    ranged = Request(url, headers={"Range": "bytes=2-4"})
    assert [urlopen(asked).read() for asked in (url, ranged)] == [b"0123456789", b"234"]
    with pytest.raises(HTTPError, match="403"):
        urlopen(url.replace("file%2B1", "file%2B2"))
