"""Unfinished uploads that take several pages to list, and what shows that one is complete."""

from typing import Any

import pytest

from sparklog.storage_backends.s3_multipart import MARK, MultipartUpload, abort_uploads
from sparklog.storage_backends.signed_writes import SignedWrites

FIRST = {"Bucket": "bucket", "Prefix": "logs/", "Delimiter": "/"}
SECOND = {**FIRST, "KeyMarker": "logs/b", "UploadIdMarker": "2"}


class Missing(Exception):
    def __init__(self) -> None:
        self.response = {"Error": {"Code": "NoSuchUpload"}}


def test_uploads_of_all_pages_are_aborted_though_some_are_finished_meanwhile() -> None:
    requests: list[tuple[str, dict[str, Any]]] = []

    def request(method: str, /, *, size: int = 0, **parameters: Any) -> Any:
        requests.append((method, parameters))
        if method == "list_multipart_uploads":
            return _page(parameters)
        if parameters["UploadId"] == "1":
            raise FileNotFoundError("no such upload") from Missing()
        return {}

    assert abort_uploads(request, "bucket", "logs/") == 3
    assert requests == [
        ("list_multipart_uploads", FIRST),
        ("list_multipart_uploads", SECOND),
        *(
            ("abort_multipart_upload", {"Bucket": "bucket", "Key": key, "UploadId": number})
            for key, number in (("logs/a", "1"), ("logs/b", "2"), ("logs/c", "3"))
        ),
    ]


class Bucket:
    """Knows one object.  ``found`` is its size and its mark, None for the mark of the upload."""

    def __init__(self, found: tuple[int, str | None] | None) -> None:
        self.found = found
        self.mark = ""

    def __call__(self, method: str, /, *, size: int = 0, **parameters: Any) -> Any:
        match method:
            case "create_multipart_upload":
                self.mark = parameters["Metadata"][MARK]
                return {"UploadId": "1"}
            case "upload_part":
                return {"ETag": "e"}
        assert (method, parameters) == ("head_object", {"Bucket": "bucket", "Key": "1"})
        if self.found is None:
            raise FileNotFoundError
        found_size, mark = self.found
        return {"ContentLength": found_size, "Metadata": {MARK: mark or self.mark}}


@pytest.mark.parametrize(
    ("found", "is_complete"),
    [
        ((5, None), True),
        ((4, None), False),
        ((5, "another"), False),  # an older object, or that of another writer
        (None, False),
    ],
)
def test_the_object_of_an_upload_has_its_mark_and_its_size(
    found: tuple[int, str | None] | None, is_complete: bool
) -> None:
    bucket = Bucket(found)
    signed = SignedWrites(lambda *_, **__: "", enabled=False)
    upload = MultipartUpload(bucket, signed, "bucket", "1")
    upload.add(b"01234")
    assert upload.is_complete() == is_complete


def test_each_upload_has_a_mark_of_its_own() -> None:
    signed = SignedWrites(lambda *_, **__: "", enabled=False)
    buckets = [Bucket(None), Bucket(None)]
    for bucket in buckets:
        MultipartUpload(bucket, signed, "bucket", "1")
    assert len({bucket.mark for bucket in buckets}) == 2


def _page(parameters: dict[str, Any]) -> dict[str, Any]:
    if "KeyMarker" in parameters:
        return {"IsTruncated": False, "Uploads": [_upload("logs/c", "3")]}
    return {
        "IsTruncated": True,
        "NextKeyMarker": "logs/b",
        "NextUploadIdMarker": "2",
        "Uploads": [_upload("logs/a", "1"), _upload("logs/b", "2")],
    }


def _upload(key: str, number: str) -> dict[str, str]:
    return {"Key": key, "UploadId": number, "StorageClass": "STANDARD"}
