"""The requests to S3: how many there are, what they ask for, and what their failures leave."""

from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends import object_store, s3
from sparklog.storage_backends.base import RefusedDeletesError, StorageBackend
from sparklog.storage_backends.parts import PART_BYTES
from sparklog.storage_backends.registry import open_backend
from sparklog.storage_backends.s3_multipart import MultipartUpload
from tests.support.s3_server import S3Server
from tests.unit.storage.fake_s3 import CONFLICT, FakeS3, serving

DENIED = (403, "AccessDenied")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(object_store, "PART_BYTES", 4)
    monkeypatch.setattr(s3, "CONFLICT_PAUSE_SECONDS", 0)
    with serving(FakeS3()) as fake:
        yield fake


@pytest.fixture
def backend(store: FakeS3) -> StorageBackend:
    return open_backend("s3://bucket/remote", store.options)


def methods(store: FakeS3) -> list[str]:
    """The methods of the requests that change something."""
    return [method for method, _, _ in store.requests if method not in ("GET", "HEAD")]


# -- reads and listings


def test_a_ranged_read_is_one_request_for_no_more_than_the_range(
    store: FakeS3, backend: StorageBackend
) -> None:
    store.objects["/bucket/remote/1"] = bytes(range(256)) * 1000
    assert backend.read("1", 1000, 10) == bytes(range(232, 242))
    assert store.requests == [("GET", "/bucket/remote/1", "bytes=1000-1009")]


@pytest.mark.s3
def test_a_folder_of_several_pages_is_listed_whole(s3_server: S3Server, s3_bucket: str) -> None:
    names = [f"{number:04d}" for number in range(2100)]
    folder = s3_server.folder / s3_bucket / "remote" / "segments"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    (folder / "1000.sub").mkdir()
    (folder / "1000.sub" / "file").touch()
    backend = open_backend(f"s3://{s3_bucket}/remote", s3_server.options)
    assert backend.list("segments") == sorted([*names, "1000.sub"])


# -- uploads in parts


def test_an_upload_in_parts_is_completed(store: FakeS3, backend: StorageBackend) -> None:
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert (store.objects, store.uploads) == ({"/bucket/remote/1": b"0123456789"}, {})
    assert methods(store) == ["POST", "PUT", "PUT", "PUT", "POST"]


def test_a_small_upload_is_one_request(store: FakeS3, backend: StorageBackend) -> None:
    assert backend.upload("1", [b"0", b"12"]) == 3
    assert (store.objects, methods(store)) == ({"/bucket/remote/1": b"012"}, ["PUT"])


def test_a_refused_part_aborts_the_upload(store: FakeS3, backend: StorageBackend) -> None:
    store.objects["/bucket/remote/1"] = b"before"
    store.answers = [DENIED] * 2
    with pytest.raises(
        StorageError, match=r"cannot write s3://bucket/remote/1: the store refuses .*AccessDenied"
    ):
        backend.upload("1", [b"01234", b"56789"])
    assert (store.objects, store.uploads) == ({"/bucket/remote/1": b"before"}, {})
    assert methods(store) == ["POST", "PUT", "PUT", "DELETE"]


def signed_writes(store: FakeS3) -> list[bool]:
    """Of each write, whether its URL was signed."""
    return ["X-Amz-Signature" in path for method, path, _ in store.requests if method == "PUT"]


def test_uploads_are_written_by_signed_urls(store: FakeS3, backend: StorageBackend) -> None:
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert backend.upload("2", [b"0"]) == 1
    backend.put("3", b"3")
    assert signed_writes(store) == [True] * 4 + [False]
    assert sorted(store.objects.values()) == [b"0", b"0123456789", b"3"]


def test_what_signed_urls_do_not_write_the_library_writes(
    store: FakeS3, backend: StorageBackend
) -> None:
    store.refuses.add("PUT")
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert backend.upload("2", [b"0"]) == 1
    assert store.objects == {"/bucket/remote/1": b"0123456789", "/bucket/remote/2": b"0"}
    assert signed_writes(store) == [True] + [False] * 4, "signed URLs are tried again later"


def test_a_store_without_checksums_of_parts(store: FakeS3, backend: StorageBackend) -> None:
    store.knows_checksums = False
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert store.objects == {"/bucket/remote/1": b"0123456789"}
    assert signed_writes(store) == [False] * 3


def test_a_store_that_does_not_say_that_it_has_checked(
    store: FakeS3, backend: StorageBackend
) -> None:
    store.tells_checksums = False
    assert backend.upload("1", [b"0"]) == backend.upload("2", [b"0"]) == 1
    assert signed_writes(store) == [True, False, False]


def test_a_completion_that_is_refused_with_checksums(
    store: FakeS3, backend: StorageBackend
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"0123"
        store.answers = [(501, "NotImplemented")]

    with pytest.raises(StorageError, match="NotImplemented"):
        backend.upload("1", chunks())
    assert backend.upload("1", [b"01234"]) == 5
    assert signed_writes(store)[-2:] == [False, False]


def test_signed_urls_lack_what_is_added_to_requests(store: FakeS3) -> None:
    """Encryption and storage classes, for instance."""
    options = {**store.options, "s3_additional_kwargs": {"StorageClass": "STANDARD_IA"}}
    backend = open_backend("s3://bucket/remote", options)
    assert backend.upload("1", [b"01234"]) == 5
    assert backend.upload("2", [b"0"]) == 1
    assert not any(signed_writes(store))


def test_a_lost_answer_of_a_part(store: FakeS3, backend: StorageBackend) -> None:
    store.loses_replies = 1
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert store.objects == {"/bucket/remote/1": b"0123456789"}
    assert signed_writes(store) == [True] * 4


def test_what_could_not_be_aborted_is_logged_and_is_a_leftover(
    store: FakeS3, backend: StorageBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"01234"
        store.refuses.add("DELETE")
        raise ValueError("of the chunks")

    with pytest.raises(ValueError, match="of the chunks"):
        backend.upload("segments/1", chunks())
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "an upload to bucket/remote/segments/1 is left behind: no"
    ]
    with pytest.raises(StorageError, match="cannot tidy up s3://bucket/remote/segments: the store"):
        backend.remove_leftovers("segments")
    store.refuses.clear()
    assert (backend.remove_leftovers("segments"), store.uploads) == (1, {})


def test_without_the_right_to_list_uploads_there_are_no_leftovers(
    store: FakeS3, backend: StorageBackend
) -> None:
    """A journal, which needs no uploads, starts without that right."""
    store.uploads["/bucket/remote/1"] = {}
    store.refuses.add("GET")
    assert backend.remove_leftovers("") == 0


def test_an_upload_that_something_else_aborts_says_so(
    store: FakeS3, backend: StorageBackend
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"01234"
        assert open_backend(backend.url, store.options).remove_leftovers("") == 1
        yield b"5"

    with pytest.raises(StorageError, match="something else has aborted the upload; write the file"):
        backend.upload("1", chunks())
    assert store.objects == {}


def test_the_conflict_of_a_small_upload_is_tried_again(
    store: FakeS3, backend: StorageBackend
) -> None:
    store.answers = [CONFLICT] * 2
    assert backend.upload("1", [b"0"]) == 1
    assert store.objects == {"/bucket/remote/1": b"0"}


def test_the_conflict_of_a_completion_is_tried_again(
    store: FakeS3, backend: StorageBackend
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"0123"
        store.answers = [CONFLICT] * 2

    assert backend.upload("1", chunks()) == 4
    assert (store.objects, store.uploads) == ({"/bucket/remote/1": b"0123"}, {})


# -- completions that a store answers late, or not

KEY = "/bucket/remote/1"


def completions(store: FakeS3) -> int:
    return sum(method == "POST" and "uploadId=" in path for method, path, _ in store.requests)


def test_a_completion_may_take_longer_than_the_answers_to_other_requests(
    store: FakeS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the library repeats the request, and is told that there is no such upload."""
    monkeypatch.setattr(s3, "READ_SECONDS_MAX", 0.5)
    store.completion_s = 1.0
    backend = open_backend("s3://bucket/remote", store.options)
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert (store.objects, store.uploads) == ({KEY: b"0123456789"}, {})
    assert completions(store) == 1


@pytest.mark.parametrize("before", [{}, {KEY: b"9876543210"}])
@pytest.mark.parametrize("lost", [1, 9])
def test_a_completion_whose_answer_was_lost_is_one(
    store: FakeS3, backend: StorageBackend, lost: int, before: dict[str, bytes]
) -> None:
    """The library repeats the request, and is told that there is no such upload."""
    store.loses_completions = lost
    store.objects |= before
    assert backend.upload("1", [b"01234", b"56789"]) == 10
    assert (store.objects, store.uploads) == ({KEY: b"0123456789"}, {})
    assert completions(store) > 1


def test_an_older_object_of_the_same_size_is_not_that_of_an_aborted_upload(
    store: FakeS3, backend: StorageBackend
) -> None:
    assert backend.upload("1", [b"0123"]) == 4

    def chunks() -> Iterator[bytes]:
        yield b"9876"
        store.uploads.clear()

    with pytest.raises(StorageError, match="something else has aborted the upload; write the file"):
        backend.upload("1", chunks())
    assert (store.objects, completions(store)) == ({KEY: b"0123"}, 2)


def test_the_mark_of_an_upload_keeps_the_metadata_of_the_options(store: FakeS3) -> None:
    extra = {"Metadata": {"team": "log"}}
    backend = open_backend("s3://bucket/remote", {**store.options, "s3_additional_kwargs": extra})
    store.loses_completions = 1
    assert backend.upload("1", [b"01234"]) == 5
    names = {name.lower() for name in store.metadata[KEY]}
    assert names == {"x-amz-meta-team", "x-amz-meta-sparklog-upload"}


@pytest.mark.s3
def test_a_server_tells_the_mark_of_an_upload(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = MultipartUpload.complete

    def complete_without_an_answer(self: MultipartUpload) -> None:
        complete(self)
        raise TimeoutError

    monkeypatch.setattr(MultipartUpload, "complete", complete_without_an_answer)
    backend = open_backend(f"s3://{s3_bucket}/remote", s3_server.options)
    size = PART_BYTES + 1
    assert backend.upload("1", [bytes(size)]) == backend.size("1") == size


# -- deletes


def test_many_objects_are_deleted_by_one_request_for_a_thousand(
    store: FakeS3, backend: StorageBackend
) -> None:
    names = [f"{number:04d}" for number in range(2001)]
    store.objects |= {f"/bucket/remote/{name}": b"" for name in (*names, "kept")}
    backend.delete_many(names)
    assert store.objects == {"/bucket/remote/kept": b""}
    assert store.requests == [("POST", "/bucket?delete", "")] * 3


@pytest.mark.parametrize(
    ("kept", "more"),
    [({"2"}, ""), ({"2", "3"}, r" \(and 1 more files were not deleted\)")],
)
def test_the_objects_that_were_not_deleted_are_named(
    store: FakeS3,
    backend: StorageBackend,
    kept: set[str],
    more: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "DELETES_AT_ONCE", 2)
    store.kept = {f"remote/{name}" for name in kept}
    store.objects |= {f"/bucket/remote/{name}": b"" for name in "12345"}
    error = f"^cannot delete s3://bucket/remote/2: the store says AccessDenied: no{more}$"
    with pytest.raises(RefusedDeletesError, match=error) as caught:
        backend.delete_many("12345")
    assert caught.value.paths == kept
    assert set(store.objects) == {f"/bucket/remote/{name}" for name in kept}


# -- the folders above


def test_folders_that_had_files_are_not_looked_up_again(
    store: FakeS3, backend: StorageBackend
) -> None:
    for number in (1, 2):  # the first write does not see a folder yet
        backend.upload(f"t/0/{number}", [b"x"])
    store.requests.clear()
    backend.upload("t/0/3", [b"x"])
    backend.put_if_absent("t/0/4", b"x")
    assert [(method, path.partition("?")[0]) for method, path, _ in store.requests] == [
        ("GET", "/bucket"),  # is the name a folder?
        ("PUT", "/bucket/remote/t/0/3"),
        ("PUT", "/bucket/remote/t/0/4"),
    ]


def test_a_folder_whose_name_becomes_a_file_is_none_any_more(backend: StorageBackend) -> None:
    for number in (1, 2):
        backend.put(f"t/0/{number}", b"x")
    backend.delete_many(["t/0/1", "t/0/2"])
    backend.put("t/0", b"a file")
    with pytest.raises(StorageError, match=r"t/0/3.*is a file, not a folder"):
        backend.put("t/0/3", b"x")


def test_a_folder_that_another_write_has_seen_during_an_upload_of_its_name_is_none(
    backend: StorageBackend,
) -> None:
    def chunks() -> Iterator[bytes]:
        for number in (1, 2):
            backend.put(f"t/0/{number}", b"x")
        yield b"a file"

    backend.upload("t/0", chunks())
    with pytest.raises(StorageError, match=r"t/0/3.*is a file, not a folder"):
        backend.put("t/0/3", b"x")


def test_few_folders_are_remembered(
    backend: StorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "FOLDERS_MAX", 1)
    assert isinstance(backend, s3.S3Store)
    for name in ("a/b/1", "a/b/2", "a/b/3"):
        backend.put(name, b"x")
        assert len(backend._folders) <= 1
    assert backend.list("a/b") == ["1", "2", "3"]


def test_a_marker_makes_a_folder_and_a_file_with_files_below_is_still_a_file(
    store: FakeS3, backend: StorageBackend
) -> None:
    store.objects |= {"/bucket/remote/marked/": b"", "/bucket/remote/deep/er/1": b""}
    for folder in ("marked", "deep"):
        with pytest.raises(StorageError, match=f"{folder}.*not a file"):
            backend.put(folder, b"x")
    store.objects |= {"/bucket/remote/both": b"", "/bucket/remote/both/1": b""}
    backend.put("both", b"x")
    assert backend.read("both") == b"x"


# -- signed URLs


def test_a_url_is_signed_without_a_request(store: FakeS3, backend: StorageBackend) -> None:
    url = backend.presign("segments/1", 3600)
    assert url is not None
    assert url.startswith(f"{store.options['endpoint_url']}/bucket/remote/segments/1?")
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in url
    assert "X-Amz-Expires=3600" in url
    assert store.requests == []


@pytest.mark.parametrize("seconds", [0, 7 * 24 * 3600 + 1])
def test_no_url_is_signed_for_longer_than_the_store_accepts(
    backend: StorageBackend, seconds: int
) -> None:
    with pytest.raises(StorageError, match=f"for {seconds} seconds; choose 1 to 604800"):
        backend.presign("1", seconds)


def test_a_signature_of_one_bucket_may_have_another_version(store: FakeS3) -> None:
    options: dict[str, Any] = {**store.options, "config_kwargs": {"signature_version": "s3"}}
    url = open_backend("s3://bucket", options).presign("1", 60)
    assert url is not None
    assert "AWSAccessKeyId=k" in url
