"""Objects in S3 buckets: ``s3://BUCKET/FOLDER`` (``s3a://`` is the same), through s3fs.

Owns: the conditional create that a journal needs, and the options of s3fs: time limits, few
retries, no cached listings, path-style addresses.  Must not know what the bytes mean.

Credentials and endpoint come from the settings of AWS tools (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, profiles, roles) and of fsspec (``FSSPEC_S3_ENDPOINT_URL``, ...); storage
options take precedence over both.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from sparklog.errors import StorageError
from sparklog.storage_backends.base import path_parts
from sparklog.storage_backends.object_errors import is_conflict, is_taken
from sparklog.storage_backends.object_store import ObjectStore

#: Attempts of one request by botocore, and by s3fs around it when a response breaks off.
REQUEST_TRIES = 3
ANSWER_TRIES = 2
CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 10
#: Attempts of a write that conflicts with another one, and the base of the doubling pauses.
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
    # With a concurrency of 1, s3fs needs one request per read and does not ask for the size first.
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
        """Try the condition on a temporary object, because old stores accept it and ignore it."""
        probe = f"probe-{secrets.token_hex(8)}"
        try:
            # The first call may also return False: the answer was lost, and a library retried.
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
        """Write; retry after a conflict with another write, which means that nothing was done."""
        for attempt in range(1, CONFLICT_TRIES):
            try:
                return super()._pipe(key, data, **how)
            except Exception as error:
                if not is_conflict(error):
                    raise
            time.sleep(CONFLICT_PAUSE_SECONDS * 2**attempt)
        return super()._pipe(key, data, **how)
