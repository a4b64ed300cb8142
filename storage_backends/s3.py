"""Objects in S3 buckets: ``s3://BUCKET/FOLDER`` (``s3a://`` is the same), through s3fs.

Owns: the conditional create that a journal needs, and s3fs's options: time limits, few retries, no
listings from a cache, buckets in the path.  Must not know what the bytes mean.

Credentials and endpoint are those of every AWS tool (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``,
profiles, roles) and of fsspec (``FSSPEC_S3_ENDPOINT_URL``, ...); storage options beat both.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from sparklog.errors import StorageError
from sparklog.storage_backends.base import path_parts
from sparklog.storage_backends.object_errors import is_conflict, is_taken
from sparklog.storage_backends.object_store import ObjectStore

#: Tries of one request by botocore, and by s3fs around it when an answer breaks off.
REQUEST_TRIES = 3
ANSWER_TRIES = 2
CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 10
#: Tries of a write that met another one under way; the pauses between them double from this.
CONFLICT_TRIES = 8
CONFLICT_PAUSE_SECONDS = 0.02


def open_url(url: str, options: Mapping[str, Any]) -> "S3Store":
    """``s3://BUCKET`` or ``s3://BUCKET/FOLDER``; ``options`` are those of ``S3FileSystem``."""
    bucket, _, folder = url.partition("://")[2].rstrip("/").partition("/")
    if len(bucket) < 3:
        raise StorageError(f"{url!r} names no bucket; write s3://BUCKET or s3://BUCKET/FOLDER")
    root = "/".join((bucket, *path_parts(folder)))
    return S3Store(f"s3://{root}", _file_system(url, options), root)


def _file_system(url: str, options: Mapping[str, Any]) -> Any:
    try:
        from s3fs import S3FileSystem
    except ImportError as error:
        raise StorageError(
            f"{url}: storage for s3:// needs the package s3fs: pip install 'sparklog[s3]'"
        ) from error
    config = {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "read_timeout": READ_SECONDS_MAX,
        "retries": {"total_max_attempts": REQUEST_TRIES, "mode": "standard"},
        "s3": {"addressing_style": "path"},
        **options.get("config_kwargs", {}),
    }
    # One request per read: without it s3fs asks for the size first.
    merged = {"max_concurrency": 1, **options, "config_kwargs": config, "use_listings_cache": False}
    try:
        made = S3FileSystem(**merged, skip_instance_cache=True)
    except (TypeError, ValueError, KeyError) as error:
        raise StorageError(f"{url}: S3FileSystem refuses the storage options: {error}") from error
    made.retries = ANSWER_TRIES
    return made


class S3Store(ObjectStore):
    """A folder of a bucket."""

    atomic_put_if_absent = True

    def proves_put_if_absent(self) -> bool:
        """Old stores take the condition and ignore it, so it is tried on an object of our own."""
        probe = f"probe-{secrets.token_hex(8)}"
        try:
            # False the first time too when the answer was lost and a library tried again.
            self.put_if_absent(probe, b"1")
            return not self.put_if_absent(probe, b"2") and self.read(probe) == b"1"
        finally:
            self.delete(probe)

    def _create(self, key: str, data: bytes) -> bool:
        try:
            self._pipe(key, data, mode="create")
        except Exception as error:
            if is_taken(error):
                return False
            raise
        return True

    def _pipe(self, key: str, data: bytes, **how: str) -> None:
        """Again when another write to this name was under way: then nothing was done."""
        for attempt in range(1, CONFLICT_TRIES):
            try:
                return super()._pipe(key, data, **how)
            except Exception as error:
                if not is_conflict(error):
                    raise
            time.sleep(CONFLICT_PAUSE_SECONDS * 2**attempt)
        return super()._pipe(key, data, **how)
