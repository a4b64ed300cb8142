"""Unfinished uploads that take several pages to list."""

from typing import Any

from sparklog.storage_backends.s3_multipart import abort_uploads

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
