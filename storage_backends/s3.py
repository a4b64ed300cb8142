"""Objects in S3 buckets: ``s3://BUCKET/FOLDER`` (``s3a://`` is the same), through s3fs.

Owns: the conditional create that a journal needs, the requests that fsspec has no name for, and the
options of s3fs: time limits, few retries, no cached listings, path-style addresses.  Must not know
what the bytes mean; the requests of an upload in parts are in ``s3_multipart``, and the names and
types of storage options in ``s3_options``.

Credentials and endpoint come from the settings of AWS tools (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, profiles, roles) and of fsspec (``FSSPEC_S3_ENDPOINT_URL``, ...); storage
options take precedence over both.
"""

import inspect
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sparklog.errors import StorageError
from sparklog.storage_backends.base import Buffer, path_parts, refused_deletes
from sparklog.storage_backends.object_errors import is_conflict, is_taken
from sparklog.storage_backends.object_store import (
    OPERATION_SECONDS_MAX,
    ObjectStore,
    transfer_seconds_max,
)
from sparklog.storage_backends.s3_multipart import MultipartUpload, abort_uploads
from sparklog.storage_backends.s3_options import checked_options
from sparklog.storage_backends.signed_alike import sign_alike
from sparklog.storage_backends.signed_writes import SignedWrites

#: Attempts of one request by botocore, and by s3fs around it when a response breaks off.
REQUEST_TRIES = 3
ANSWER_TRIES = 2
CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 10
#: The same for the completion of an upload, which a store may take minutes for.  The time limit of
#: the request, which grows with the size of the object, ends earlier (36 minutes for 2 GiB).
COMPLETION_READ_SECONDS_MAX = 3600
#: Attempts of a write that conflicts with another one, and the base of the doubling pauses.
CONFLICT_TRIES = 8
CONFLICT_PAUSE_SECONDS = 0.02
#: The most objects that S3 deletes with one request, and the longest time of a signed URL.
DELETES_AT_ONCE = 1000
PRESIGN_SECONDS_MAX = 7 * 24 * 3600

T = TypeVar("T")

log = logging.getLogger(__name__)


def open_url(url: str, options: Mapping[str, Any]) -> "S3Store":
    """``s3://BUCKET`` or ``s3://BUCKET/FOLDER``; ``options`` are those of ``S3FileSystem``."""
    bucket, _, folder = url.partition("://")[2].rstrip("/").partition("/")
    if len(bucket) < 3:
        raise StorageError(f"{url!r} names no bucket; write s3://BUCKET or s3://BUCKET/FOLDER")
    root = "/".join((bucket, *path_parts(folder)))

    def open_for_completions(session: Any) -> Any:
        return _file_system(url, options, COMPLETION_READ_SECONDS_MAX, session)

    return S3Store(f"s3://{root}", _file_system(url, options), root, open_for_completions)


def _file_system(
    url: str,
    options: Mapping[str, Any],
    read_seconds_max: float | None = None,
    session: Any | None = None,
) -> Any:
    """The file system of s3fs.  ``read_seconds_max`` takes precedence over the options."""
    try:
        from s3fs import S3FileSystem
    except ImportError as error:
        raise StorageError(
            f"{url}: storage for s3:// needs the package s3fs: pip install 'sparklog[s3]'"
        ) from error
    try:
        given = checked_options(options, inspect.signature(S3FileSystem.__init__).parameters)
    except StorageError as error:
        raise StorageError(f"{url}: {error}") from None
    config = {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "read_timeout": READ_SECONDS_MAX,
        "retries": {"total_max_attempts": REQUEST_TRIES, "mode": "standard"},
        "s3": {"addressing_style": "path"},
        # Otherwise botocore signs URLs by version 2, which only the oldest stores accept.
        "signature_version": "s3v4",
        **given.get("config_kwargs", {}),
    }
    if read_seconds_max is not None:
        config["read_timeout"] = read_seconds_max
    _check_config(url, config)
    # With a concurrency of 1, s3fs needs one request per read and does not ask for the size first.
    defaults = {"max_concurrency": 1}
    own = {"config_kwargs": config, "use_listings_cache": False, "skip_instance_cache": True}
    if session is not None:
        own["session"] = session
    try:
        made = S3FileSystem(**{**defaults, **given, **own})
    except (TypeError, ValueError, KeyError) as error:
        raise StorageError(f"{url}: S3FileSystem refuses the storage options: {error}") from error
    made.retries = ANSWER_TRIES
    return made


def _check_config(url: str, config: Mapping[str, Any]) -> None:
    """The file system would make the same Config only with its first request."""
    from aiobotocore.config import AioConfig

    try:
        AioConfig(**config)
    except Exception as error:  # the libraries have no common base class
        raise StorageError(f"{url}: storage option config_kwargs: {error}") from error


class S3Store(ObjectStore):
    """A folder of a bucket.

    ``open_for_completions`` makes a file system that waits longer for an answer, from the session
    of the other one.
    """

    atomic_put_if_absent = True

    def __init__(
        self, url: str, file_system: Any, root: str, open_for_completions: Callable[[Any], Any]
    ) -> None:
        super().__init__(url, file_system, root)
        self._open_for_completions = open_for_completions
        self._for_completions: Any = None
        # s3fs adds these to requests (encryption, storage class, ACL), but not to URLs.
        self._extra: Mapping[str, Any] = getattr(file_system, "s3_additional_kwargs", None) or {}
        self._signed_writes = SignedWrites(self._sign, enabled=not self._extra)

    def proves_put_if_absent(self) -> bool:
        """Try the condition on a temporary object, because old stores accept it and ignore it."""
        probe = f"probe-{secrets.token_hex(8)}"
        try:
            # The first call may also return False: the answer was lost, and a library retried.
            self.put_if_absent(probe, b"1")
            proven = not self.put_if_absent(probe, b"2") and self.read(probe) == b"1"
        except StorageError:
            with suppress(StorageError):  # the first error says more
                self.delete(probe)
            raise
        self.delete(probe)
        return proven

    def presign(self, path: str, seconds: int) -> str:
        if not 0 < seconds <= PRESIGN_SECONDS_MAX:
            raise StorageError(
                f"no URL of {self.url} can be signed for {seconds} seconds; choose 1 to "
                f"{PRESIGN_SECONDS_MAX} (7 days)"
            )
        key = self._file_key(path)
        with self._storage_errors("sign a URL of", key):
            return str(self._call("url", key, expires=seconds))

    def presign_many(self, paths: Sequence[str], seconds: int) -> Sequence[str | None]:
        for path in paths:
            self._file_key(path)
        if len(paths) < 2:
            return [self.presign(path, seconds) for path in paths]
        first, others = self.presign(paths[0], seconds), paths[1:]
        alike = sign_alike(first, paths[0], others, self._secret_key())
        return [first, *(alike or (self.presign(path, seconds) for path in others))]

    def delete_many(self, paths: Iterable[str]) -> None:
        paths_of = {self._file_key(path): path for path in paths}
        keys = list(paths_of)
        refused: dict[str, StorageError] = {}
        for start in range(0, len(keys), DELETES_AT_ONCE):
            refused |= self._delete_objects(keys[start : start + DELETES_AT_ONCE])
        if refused:
            raise refused_deletes({paths_of[key]: error for key, error in refused.items()})

    def remove_leftovers(self, folder: str) -> int:
        key = self._folder_key(folder)
        with self._storage_errors("tidy up", key):
            return abort_uploads(self._request, *_bucket_and_key(f"{key}/"))

    def _delete_objects(self, keys: list[str]) -> dict[str, StorageError]:
        """Delete objects by one request; return the errors of those that the store keeps."""
        bucket = _bucket_and_key(keys[0])[0]
        objects = [{"Key": _bucket_and_key(key)[1]} for key in keys]
        with self._storage_errors(f"delete {len(keys)} files, the first of which is", keys[0]):
            done = self._request(
                "delete_objects", Bucket=bucket, Delete={"Objects": objects, "Quiet": True}
            )
        refused: dict[str, StorageError] = {}
        for entry in done.get("Errors", ()):
            code, key = entry.get("Code"), f"{bucket}/{entry.get('Key', '')}"
            if code != "NoSuchKey":
                said = f"the store says {code}: {entry.get('Message', '')}"
                refused[key] = StorageError(f"cannot delete {self._where(key)}: {said}")
        if not refused.keys() <= set(keys):
            raise next(error for key, error in refused.items() if key not in keys)
        return refused

    def _all_names(self, folder: str) -> list[str]:
        """By pages with a time limit each: s3fs keeps more than 1 KB of each name until the end."""
        key = self._folder_key(folder)
        bucket, prefix = _bucket_and_key(f"{key}/")
        place: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
        found: set[str] = set()
        with self._storage_errors("list", key):
            while True:
                page = self._request("list_objects_v2", **place)
                found.update(entry["Key"] for entry in page.get("Contents", ()))
                found.update(entry["Prefix"] for entry in page.get("CommonPrefixes", ()))
                if not page.get("IsTruncated"):
                    break
                place["ContinuationToken"] = page["NextContinuationToken"]
        found.discard(prefix)  # the marker of the folder itself
        return sorted(name[len(prefix) :].rstrip("/") for name in found)

    def _is_folder(self, key: str) -> bool:
        bucket, name = _bucket_and_key(key)
        # One request where the kind of a path takes two; few names that are written are folders.
        place: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{name}/", "Delimiter": "/"}
        page = self._request("list_objects_v2", **place, MaxKeys=1)
        found = page.get("Contents") or page.get("CommonPrefixes")
        return bool(found) and super()._is_folder(key)

    def _upload_parts(self, key: str, parts: Iterator[Buffer]) -> int:
        with self._storage_errors("write", key):
            upload = MultipartUpload(self._request, self._signed_writes, *_bucket_and_key(key))
        try:
            for part in parts:
                with self._storage_errors("write", key):
                    upload.add(part)
            with self._storage_errors("write", key):
                self._complete(upload)
        except BaseException:
            upload.abort()
            raise
        return upload.size

    def _complete(self, upload: MultipartUpload) -> None:
        try:
            self._without_conflict(upload.complete)
        except Exception as error:
            if not upload.is_complete():
                raise
            log.info("%s: an upload is complete, after the answer: %s", self.url, error)

    def _upload_whole(self, key: str, data: Buffer) -> None:
        bucket, name = _bucket_and_key(key)
        if self._signed_writes.write("put_object", data, Bucket=bucket, Key=name) is None:
            super()._upload_whole(key, data)

    def _sign(self, method: str, /, *, seconds: int, **parameters: Any) -> str:
        key = f"{parameters.pop('Bucket')}/{parameters.pop('Key')}"
        return str(self._call("url", key, expires=seconds, client_method=method, **parameters))

    def _secret_key(self) -> str:
        """The key with which URLs are signed now; empty if the libraries keep it elsewhere."""
        from fsspec.asyn import sync

        file_system = self._file_system

        async def find() -> str:
            client = await file_system.get_s3(self._root.partition("/")[0])
            found = await client._request_signer._credentials.get_frozen_credentials()
            return str(found.secret_key)

        try:
            return str(sync(file_system.loop, find, timeout=OPERATION_SECONDS_MAX))
        except Exception as error:  # only the speed depends on it
            log.debug("%s: the library signs every URL: %r", self.url, error)
            return ""

    def _request(self, method: str, /, *, size: int = 0, **parameters: Any) -> Any:
        limit = transfer_seconds_max(size)
        file_system = self._file_system
        if method == "complete_multipart_upload":
            file_system = self._completion_file_system()
        if "Metadata" in parameters:
            parameters["Metadata"] = {**self._extra.get("Metadata", {}), **parameters["Metadata"]}
        return self._call_of(file_system, "call_s3", method, seconds_max=limit, **parameters)

    def _completion_file_system(self) -> Any:
        """The file system for completions, made at the first use.

        Most releases of botocore take the time limit of an answer for a client, not for a request.
        Credentials, and most of the memory of a client, are those of the session.
        """
        if self._for_completions is None:
            self._for_completions = self._open_for_completions(self._file_system.session)
        return self._for_completions

    def _create(self, key: str, data: bytes) -> bool:
        try:
            self._pipe(key, data, mode="create")
        except Exception as error:
            if is_taken(error):
                return False
            raise
        return True

    def _pipe(self, key: str, data: bytes, **how: str) -> None:
        write = super()._pipe
        self._without_conflict(lambda: write(key, data, **how))

    @staticmethod
    def _without_conflict(write: Callable[[], T]) -> T:
        """Write; retry after a conflict with another write, which means that nothing was done."""
        for attempt in range(1, CONFLICT_TRIES):
            try:
                return write()
            except Exception as error:
                if not is_conflict(error):
                    raise
            time.sleep(CONFLICT_PAUSE_SECONDS * 2**attempt)
        return write()


def _bucket_and_key(key: str) -> tuple[str, str]:
    bucket, _, rest = key.partition("/")
    return bucket, rest
