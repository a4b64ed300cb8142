"""The specifics of S3: conditional writes as different servers answer them, and errors."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.driver.control_plane.journal import (
    CommitHeader,
    Journal,
    JournalConflict,
    commit_name,
)
from sparklog.errors import StorageError
from sparklog.metadata import BrokerIdAssigned, encode_records
from sparklog.storage_backends import object_store, s3
from sparklog.storage_backends.base import StorageBackend, file_half
from sparklog.storage_backends.registry import open_backend
from tests.support.s3_server import S3Server
from tests.unit.storage.fake_s3 import CONFLICT, FakeS3, serving


@pytest.fixture
def store() -> Iterator[FakeS3]:
    with serving(FakeS3()) as fake:
        yield fake


def opened(store: FakeS3) -> StorageBackend:
    return open_backend("s3://bucket/journal", store.options)


def header(nonce: str) -> CommitHeader:
    return CommitHeader(version=1, controller_epoch=1, nonce=nonce, time_ms=0)


RECORDS = encode_records([BrokerIdAssigned(broker_id=1)])


# -- conditional create


def test_a_refusal_that_does_not_name_its_condition_means_that_the_name_is_taken(
    store: FakeS3,
) -> None:
    backend = opened(store)
    assert [backend.put_if_absent("1", b"a"), backend.put_if_absent("1", b"b")] == [True, False]
    assert (backend.read("1"), store.puts) == (b"a", 2)


def test_a_conflict_with_a_write_under_way_is_tried_again(store: FakeS3) -> None:
    store.answers = [CONFLICT] * 3
    assert opened(store).put_if_absent("1", b"a")
    assert (store.objects, store.puts) == ({"/bucket/journal/1": b"a"}, 4)


def test_conflicts_without_end_are_an_error(store: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "CONFLICT_PAUSE_SECONDS", 0)
    store.answers = [CONFLICT] * 100
    with pytest.raises(StorageError, match="the store says ConditionalRequestConflict"):
        opened(store).put_if_absent("1", b"a")
    assert (store.objects, store.puts) == ({}, s3.CONFLICT_TRIES)


def test_a_commit_whose_reply_was_lost_and_that_a_library_repeated_is_ours(store: FakeS3) -> None:
    store.loses_replies = 1
    journal = Journal(opened(store))
    journal.commit(header("mine"), RECORDS)
    assert store.puts == 2  # the second was refused: the name is taken, by us
    with pytest.raises(JournalConflict, match="written by a controller of epoch 1"):
        journal.commit(header("another's"), RECORDS)
    assert json.loads(store.objects[f"/bucket/journal/{commit_name(1)}"])["nonce"] == "mine"


def test_a_store_that_ignores_the_condition_holds_no_journal(store: FakeS3) -> None:
    store.ignores_condition = True
    with pytest.raises(StorageError, match=r"s3://bucket/journal cannot create .*choose a"):
        Journal(opened(store)).check_backend()
    assert store.objects == {}


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_reply_does_not_make_a_store_unfit(store: FakeS3, lost: int) -> None:
    """The library's retry of the create is refused, because the first attempt has succeeded."""
    store.loses_replies = lost
    Journal(opened(store)).check_backend()
    assert store.objects == {}


def test_a_store_that_ignores_the_condition_is_unfit_though_a_reply_was_lost(store: FakeS3) -> None:
    store.ignores_condition, store.loses_replies = True, 1
    with pytest.raises(StorageError, match="cannot create"):
        Journal(opened(store)).check_backend()
    assert store.objects == {}


def test_a_store_of_which_fsspec_promises_nothing_holds_no_journal() -> None:
    backend = open_backend("fsspec+memory://bucket/journal")
    with pytest.raises(StorageError, match="choose a journal_dir on a local disk or on an object"):
        Journal(backend).check_backend()


# -- errors


@pytest.mark.s3
@pytest.mark.parametrize(
    ("location", "changes", "message"),
    [
        ("s3://no-bucket/journal", {}, "the bucket does not exist; create it, or correct the URL"),
        ("s3://BUCKET", {"secret": "wrong"}, r"refuses the credentials \(SignatureDoesNotMatch\)"),
        ("s3://BUCKET", {"key": "nobody"}, r"refuses the credentials \(XAdminUserNotFound\)"),
        ("s3://BUCKET", {"key": None, "secret": None}, "no credentials were found; set AWS_ACCESS"),
        ("s3://BUCKET", {"endpoint_url": "http://127.0.0.1:1"}, "does not answer .*AWS_ENDPOINT"),
    ],
)
def test_why_a_bucket_cannot_be_used_is_said_with_a_remedy(
    s3_server: S3Server,
    s3_bucket: str,
    location: str,
    changes: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    url = location.replace("BUCKET", s3_bucket)
    backend = open_backend(url, {**s3_server.options, **changes})
    for attempt in (
        lambda: backend.list(""),
        lambda: backend.put_if_absent("1", b"x"),
        lambda: backend.read("1"),
        backend.proves_put_if_absent,
    ):
        with pytest.raises(StorageError, match=rf"{url}.*{message}"):
            attempt()


def test_a_store_that_takes_requests_and_never_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_store, "OPERATION_SECONDS_MAX", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        backend = open_backend("s3://bucket", {"endpoint_url": endpoint, "key": "k", "secret": "s"})
        began = time.monotonic()
        with pytest.raises(StorageError, match="the store does not answer"):
            backend.put_if_absent("1", b"x")
    assert time.monotonic() - began < 20  # and not for the half minute that it may take


def test_without_s3fs_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StorageError, match=r"s3://.*pip install 'sparklog\[s3\]'"):
        open_backend("s3://bucket")


@pytest.mark.parametrize("url", ["s3://", "s3:///folder", "s3://ab/folder"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(StorageError, match="write s3://BUCKET"):
        open_backend(url)


def test_a_bucket_has_no_files_to_keep_open() -> None:
    with pytest.raises(StorageError, match=r"s3://bucket has no open files.*journal_dir"):
        file_half(open_backend("s3a://bucket/"))
