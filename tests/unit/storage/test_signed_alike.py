"""URLs after the pattern of a signed one: those that botocore would sign, or none."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sparklog.storage_backends import s3
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.registry import open_backend
from sparklog.storage_backends.signed_alike import sign_alike
from tests.unit.storage.fake_s3 import FakeS3, serving

NAMES = ["segments/1.log", "segments/2.log", "segments/3~x.indexes", "4"]


@pytest.fixture
def store() -> Iterator[FakeS3]:
    with serving(FakeS3()) as fake:
        yield fake


class Calls:
    """Counts the URLs that the library signs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        sign = s3.S3Store.presign

        def presign(backend: Any, path: str, seconds: int) -> str:
            self.count += 1
            return sign(backend, path, seconds)

        monkeypatch.setattr(s3.S3Store, "presign", presign)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def without_time(url: str | None) -> str:
    assert url is not None
    kept, _, query = url.partition("?")
    return kept + "&".join(
        each for each in query.split("&") if not each.startswith(("X-Amz-Date", "X-Amz-Signature"))
    )


def within_a_second(
    backend: StorageBackend, calls: Calls
) -> tuple[Sequence[str | None], Sequence[str | None]]:
    """The URLs of all names at once, and one by one: their signatures have the time in seconds."""
    while True:
        before = backend.presign(NAMES[0], 60)
        calls.count = 0
        many = backend.presign_many(NAMES, 60)
        assert calls.count == 1
        one_by_one = [backend.presign(name, 60) for name in NAMES]
        if backend.presign(NAMES[0], 60) == before:
            return many, one_by_one


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"token": "a+token/with=signs"},
        {"client_kwargs": {"region_name": "eu-north-1"}},
    ],
    ids=["key", "session token", "region"],
)
@pytest.mark.parametrize("folder", ["bucket/remote", "bucket/a folder/ä+1"])
def test_the_urls_of_many_files_are_those_that_the_library_signs(
    store: FakeS3, calls: Calls, more: dict[str, Any], folder: str
) -> None:
    backend = open_backend(f"s3://{folder}", {**store.options, **more})
    many, one_by_one = within_a_second(backend, calls)
    assert many == one_by_one
    assert store.requests == []


def test_a_bucket_may_be_in_the_name_of_the_host(calls: Calls) -> None:
    options: dict[str, Any] = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://store.test:9000",
        "config_kwargs": {"s3": {"addressing_style": "virtual"}},
    }
    many, one_by_one = within_a_second(open_backend("s3://bucket/remote", options), calls)
    assert many == one_by_one
    assert str(many[1]).startswith(f"http://bucket.store.test:9000/remote/{NAMES[1]}?")


def test_names_that_a_url_spells_otherwise_are_signed_by_the_library(
    store: FakeS3, calls: Calls
) -> None:
    backend = open_backend("s3://bucket/remote", store.options)
    names = ["plain", "with a space", "ä", "a+b"]
    found = backend.presign_many(names, 60)
    assert calls.count == 4
    assert [without_time(url) for url in found] == [
        without_time(backend.presign(name, 60)) for name in names
    ]


def test_other_signatures_and_unknown_keys_are_left_to_the_library(
    store: FakeS3, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {**store.options, "config_kwargs": {"signature_version": "s3"}}
    found = open_backend("s3://bucket", options).presign_many(["1", "2"], 60)
    assert ["AWSAccessKeyId=k" in str(url) for url in found] == [True, True]
    assert calls.count == 2
    backend = open_backend("s3://bucket", store.options)
    monkeypatch.setattr(type(backend), "_secret_key", lambda _: "")
    backend.presign_many(["1", "2"], 60)
    assert calls.count == 4


def test_no_url_comes_from_a_pattern_that_is_not_understood() -> None:
    url = "https://host/bucket/1?X-Amz-Credential=k%2F20260101%2Fr%2Fs3%2Faws4_request"
    assert sign_alike(url, "1", ["2"], "secret") is None
    dated = f"{url}&X-Amz-Date=20260101T000000Z"
    assert sign_alike(f"{dated}&X-Amz-Signature=0", "1", ["2"], "secret") is None
    assert sign_alike(dated, "2", ["3"], "secret") is None
    assert sign_alike("https://host/bucket/1", "1", ["2"], "secret") is None
    assert sign_alike(dated.replace("%2F", "-"), "1", ["2"], "secret") is None


def test_one_file_or_none_needs_no_pattern(store: FakeS3, calls: Calls) -> None:
    backend: StorageBackend = open_backend("s3://bucket/remote", store.options)
    assert backend.presign_many([], 60) == []
    [url] = backend.presign_many(["1"], 60)
    assert without_time(url) == without_time(backend.presign("1", 60))
