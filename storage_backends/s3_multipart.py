"""Multipart uploads to S3: an object in parts, which becomes visible as a whole or not at all.

Owns: the order of the requests, and the removal of uploads that nobody finishes.  Must not know how
a request is sent, or how errors are translated: both come from the store.

The parts of an unfinished upload take space and no listing of objects shows them.  An upload that
fails is aborted.  A killed process leaves its upload behind, until ``abort_uploads``, or until a
lifecycle rule of the bucket (AbortIncompleteMultipartUpload) removes it.

Each upload gives its object a mark of its own, as metadata.  The mark tells the object of a
completion without an answer from an older object of the same name, whose size may be the same.  An
ETag does not: it is no hash of the parts in buckets with encryption by KMS, and in some stores.
"""

import logging
import secrets
from typing import Any, Protocol

from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.object_errors import is_missing, store_response
from sparklog.storage_backends.signed_writes import CHECKSUM, SignedWrites, checksum_of

log = logging.getLogger(__name__)

#: Statuses of a store that does not list uploads, or not for these credentials.
_NO_LISTING = (403, 405, 501)
#: Statuses of a store that knows no checksums of parts.
_NO_CHECKSUMS = (400, 501)
#: The name of the mark in the metadata of an object (the header ``x-amz-meta-sparklog-upload``).
MARK = "sparklog-upload"


class Request(Protocol):
    """Sends a request named as in boto, which transfers ``size`` bytes; returns the response."""

    def __call__(self, method: str, /, *, size: int = 0, **parameters: Any) -> Any: ...


class MultipartUpload:
    """One upload.  Either ``complete`` or ``abort`` ends it."""

    def __init__(self, request: Request, signed: SignedWrites, bucket: str, key: str) -> None:
        """Begin an upload to the object ``key`` of ``bucket``, by ``signed`` writes if possible."""
        self._request = request
        self._name = f"{bucket}/{key}"
        self._mark = secrets.token_hex(16)
        place: dict[str, Any] = {"Bucket": bucket, "Key": key}
        about = {**place, "Metadata": {MARK: self._mark}}
        begun: Any = None
        if not signed.are_paused:
            begun = _begin_with_checksums(request, about)
            if begun is None:
                signed.give_up()
        self._signed = None if begun is None else signed
        if begun is None:
            begun = request("create_multipart_upload", **about)
        self._place = place
        self._upload: dict[str, Any] = {**place, "UploadId": begun["UploadId"]}
        self._parts: list[dict[str, Any]] = []
        self.size = 0

    def add(self, part: Buffer) -> None:
        """Send the next part."""
        place = {**self._upload, "PartNumber": len(self._parts) + 1}
        about: dict[str, Any] = {}
        etag: str | None = None
        if self._signed is not None:
            about = {CHECKSUM: checksum_of(part)}
            etag = self._signed.write("upload_part", part, **place)
        if etag is None:
            body = bytes(part)  # boto takes no memoryview
            sent = self._request("upload_part", size=len(body), **place, **about, Body=body)
            etag = sent["ETag"]
        self._parts.append({"PartNumber": place["PartNumber"], "ETag": etag, **about})
        self.size += len(part)

    def complete(self) -> None:
        """Make the object visible, with all parts.  Some stores copy them, so it may take long."""
        whole = {"Parts": self._parts}
        try:
            self._request(
                "complete_multipart_upload", size=self.size, **self._upload, MultipartUpload=whole
            )
        except Exception as error:
            if self._signed is not None and store_response(error).status in _NO_CHECKSUMS:
                self._signed.give_up()  # the next upload has no checksums
            raise

    def is_complete(self) -> bool:
        """Whether the object is there, with the mark and the size of this upload.

        A caller asks after a failure of ``complete``.  The store may have completed the upload
        although its answer was late or lost; the library has repeated the request then, and the
        store has answered that there is no such upload.  False if the store does not answer.
        """
        try:
            found = self._request("head_object", **self._place)
        except Exception as error:
            log.info("whether %s was completed is unknown: %s", self._name, error)
            return False
        mark, size = found.get("Metadata", {}).get(MARK), found.get("ContentLength")
        return bool(mark == self._mark and size == self.size)

    def abort(self) -> None:
        """Remove the parts.  A failure is logged, because the upload has failed for a reason of its
        own, which the caller raises."""
        try:
            _abort(self._request, self._upload)
        except Exception as error:
            log.warning("an upload to %s is left behind: %s", self._name, error)


def _begin_with_checksums(request: Request, about: dict[str, Any]) -> Any:
    """Begin an upload whose parts have checksums; None if the store knows no such uploads."""
    try:
        return request("create_multipart_upload", **about, ChecksumAlgorithm="CRC32C")
    except Exception as error:
        if store_response(error).status not in _NO_CHECKSUMS:
            raise
        return None


def abort_uploads(request: Request, bucket: str, folder: str) -> int:
    """Abort the unfinished uploads to objects directly in ``folder`` (``""`` or ``name/``).

    Returns:
        The number of aborted uploads; 0 if the store does not list them for these credentials.
    """
    found = _listed_uploads(request, bucket, folder)
    for upload in found:
        _abort(request, {"Bucket": bucket, **upload})
    return len(found)


def _listed_uploads(request: Request, bucket: str, folder: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    place: dict[str, Any] = {"Bucket": bucket, "Prefix": folder, "Delimiter": "/"}
    while True:
        try:
            page = request("list_multipart_uploads", **place)
        except Exception as error:
            if store_response(error).status not in _NO_LISTING:
                raise
            log.info("unfinished uploads below %s/%s are not listed: %s", bucket, folder, error)
            return found
        found += [
            {name: upload[name] for name in ("Key", "UploadId")}
            for upload in page.get("Uploads", ())
        ]
        if not page.get("IsTruncated"):
            return found
        place["KeyMarker"] = page["NextKeyMarker"]
        place["UploadIdMarker"] = page.get("NextUploadIdMarker", "")


def _abort(request: Request, upload: dict[str, Any]) -> None:
    try:
        request("abort_multipart_upload", **upload)
    except Exception as error:
        # Completed or aborted meanwhile, or completed with an answer that said that it failed.
        if not is_missing(error):
            raise
