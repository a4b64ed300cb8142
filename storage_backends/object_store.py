"""Object stores through fsspec: ``fsspec+PROTOCOL://``, and all other schemes of fsspec.

Owns: the contract with whole objects (append, truncate and rename copy the object), and time
limits.  Must not know what the bytes mean; the specifics of S3 are in ``s3``.

An object store has no folders: a folder exists as long as an object has a name below it.  Before a
write below the root, a check makes sure that no path is both a file and a folder.  That check is
not safe against races, nor against other stores that write a file where this one knew a folder.

fsspec has no common way to stream an object that appears as a whole.  Therefore ``upload`` streams
to a temporary object, which the store then copies; it takes space for both, and the time limits of
the stream are those of the library.

fsspec runs its requests on one daemon thread with a loop of its own.  Every method here blocks the
calling thread, which may be any other thread; forked processes get a new loop.
"""

import errno
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from sparklog.errors import StorageError
from sparklog.storage_backends.base import (
    TEMPORARY_PREFIX,
    Buffer,
    StorageBackend,
    file_parts,
    path_parts,
)
from sparklog.storage_backends.object_errors import is_missing, object_error, store_response
from sparklog.storage_backends.parts import PART_BYTES, bounded_parts

#: Time limit of a request with its retries, without the time for the data itself.
OPERATION_SECONDS_MAX = 30.0
BYTES_PER_SECOND_MIN = 1_000_000
#: Most folders that a store remembers.
FOLDERS_MAX = 10_000
#: Most objects that ``read_many`` reads in one operation.
READS_AT_ONCE = 64


def open_url(url: str, options: Mapping[str, Any]) -> "ObjectStore":
    """``fsspec+PROTOCOL://place`` or ``PROTOCOL://place``; ``options`` go to the file system."""
    from fsspec.core import url_to_fs

    inner = url.removeprefix("fsspec+").rstrip("/")
    if inner.endswith(":") or "?" in inner or "::" in inner:
        raise StorageError(f"{url!r} names no place in a store; write PROTOCOL://PLACE/FOLDER")
    try:
        file_system, root = url_to_fs(inner, **{"use_listings_cache": False, **options})
    except Exception as error:  # each library has errors of its own for wrong options
        raise StorageError(f"{url} cannot be opened by fsspec: {error}") from error
    return ObjectStore(url.rstrip("/"), file_system, root)


class ObjectStore(StorageBackend):
    """The names below ``root`` in a file system of fsspec.

    ``put`` is as atomic as that of the store.  ``put_if_absent`` is not atomic in general.
    """

    atomic_put_if_absent = False

    def __init__(self, url: str, file_system: Any, root: str) -> None:
        self.url = url
        self._file_system = file_system
        self._root = root.rstrip("/")
        #: Keys of folders that have had files, as far as this store has seen.
        self._folders: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def append(self, path: str, data: Buffer) -> None:
        key = self._file_key(path)
        with self._storage_errors("append to", key):
            before = b"" if self._kind(key) is None else self._read(key)
            self._put(key, before + bytes(data))

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        key = self._file_key(path)
        with self._storage_errors("read", key):
            if size is not None and size <= 0:
                self._file_size(key)
                return b""
            return self._read(key, **({} if (offset, size) == (0, None) else _range(offset, size)))

    def read_many(self, paths: Sequence[str]) -> list[bytes]:
        keys = [self._file_key(path) for path in paths]
        found: dict[str, bytes] = {}
        try:
            for start in range(0, len(keys), READS_AT_ONCE):
                found |= self._call("cat", keys[start : start + READS_AT_ONCE])
            return [bytes(found[key]) for key in keys]
        except Exception:
            return super().read_many(paths)  # single reads tell which object fails

    def read_if_there(self, path: str) -> bytes | None:
        key = self._file_key(path)
        with self._storage_errors("read", key):
            try:
                return bytes(self._call("cat_file", key))
            except Exception as error:
                if is_missing(error):
                    return None
                raise

    def size(self, path: str) -> int:
        key = self._file_key(path)
        with self._storage_errors("look up", key):
            return self._file_size(key)

    def exists(self, path: str) -> bool:
        key = self._folder_key(path)
        with self._storage_errors("look up", key):
            return self._kind(key) is not None

    def list(self, folder: str) -> list[str]:
        return [name for name in self._all_names(folder) if not name.startswith(TEMPORARY_PREFIX)]

    def remove_leftovers(self, folder: str) -> int:
        names = [name for name in self._all_names(folder) if name.startswith(TEMPORARY_PREFIX)]
        key = self._folder_key(folder)
        with self._storage_errors("tidy up", key):
            for name in names:
                self._call("rm_file", f"{key}/{name}")
        return len(names)

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        key = self._file_key(path)
        with self._storage_errors("create", key):
            self._check_folders_above(key)
            created = self._create(key, bytes(data))
        self._folders.discard(key)
        return created

    def put(self, path: str, data: Buffer) -> None:
        key = self._file_key(path)
        with self._storage_errors("write", key):
            self._put(key, bytes(data))

    def upload(self, path: str, chunks: Iterable[Buffer]) -> int:
        key = self._file_key(path)
        with self._storage_errors("write", key):
            self._check_writable(key)
        parts = bounded_parts(chunks, PART_BYTES)
        first = next(parts, b"")
        if len(first) < PART_BYTES:
            with self._storage_errors("write", key):
                self._upload_whole(key, first)
            size = len(first)
        else:
            whole = chain((first,), parts)
            del first  # the traceback of an earlier error may hold this frame and the memory
            size = self._upload_parts(key, whole)
        self._folders.discard(key)
        return size

    def presign(self, path: str, seconds: int) -> str | None:
        key = self._file_key(path)
        with self._storage_errors("sign a URL of", key):
            try:
                return str(self._file_system.sign(key, expiration=seconds))
            except NotImplementedError:
                return None

    def rename(self, source: str, target: str) -> None:
        old, new = self._file_key(source), self._file_key(target)
        with self._storage_errors(f"rename to {self._where(new)} the file", old):
            self._file_size(old)
            self._check_writable(new)
            self._call("cp_file", old, new)
            self._folders.discard(new)
            self._call("rm_file", old)

    def delete(self, path: str) -> None:
        key = self._file_key(path)
        with self._storage_errors("delete", key):
            kind = self._kind(key)
            if kind == "directory":
                raise IsADirectoryError(errno.EISDIR, "", key)
            if kind is not None:
                self._call("rm_file", key)

    def truncate(self, path: str, size: int) -> None:
        key = self._file_key(path)
        with self._storage_errors("cut", key):
            data = self._read(key)
            if not 0 <= size <= len(data):
                raise StorageError(
                    f"cannot cut {self._where(key)} to {size} bytes: it has {len(data)}"
                )
            self._put(key, data[:size])

    def flush(self, path: str) -> None:
        self.size(path)  # an object that exists is durable

    # -- one object

    def _create(self, key: str, data: bytes) -> bool:
        """Check, then write; another writer may write in between."""
        if self._info(key) is not None:
            return False
        self._pipe(key, data)
        return True

    def _put(self, key: str, data: bytes) -> None:
        self._check_writable(key)
        self._pipe(key, data)
        self._folders.discard(key)

    def _pipe(self, key: str, data: bytes, **how: str) -> None:
        self._call("pipe_file", key, data, seconds_max=transfer_seconds_max(len(data)), **how)

    def _upload_whole(self, key: str, data: Buffer) -> None:
        self._pipe(key, bytes(data))

    def _upload_parts(self, key: str, parts: Iterator[Buffer]) -> int:
        """Stream the parts to a temporary object and copy it; errors of ``parts`` pass through."""
        temporary = f"{key.rpartition('/')[0]}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            size = self._stream(key, temporary, parts)
            with self._storage_errors("write", key):
                limit = transfer_seconds_max(size)
                self._call("cp_file", temporary, key, seconds_max=limit)
        finally:
            with suppress(Exception):
                self._call("rm_file", temporary)
        return size

    def _stream(self, key: str, temporary: str, parts: Iterator[Buffer]) -> int:
        with self._storage_errors("write", key):
            file = self._file_system.open(temporary, "wb", block_size=PART_BYTES)
        size = 0
        try:
            for part in parts:
                with self._storage_errors("write", key):
                    file.write(part)
                size += len(part)
        except BaseException:
            with suppress(Exception):
                file.close()
            raise
        with self._storage_errors("write", key):
            file.close()
        return size

    def _read(self, key: str, **limits: int) -> bytes:
        try:
            return bytes(self._call("cat_file", key, **limits))
        except Exception as error:
            if store_response(error).status == 416:
                return b""  # the range begins beyond the end
            if is_missing(error) and self._kind(key) == "directory":
                raise IsADirectoryError(errno.EISDIR, "", key) from None
            raise

    def _file_size(self, key: str) -> int:
        found = self._info(key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "", key)
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "", key)
        return int(found["size"])

    def _kind(self, key: str) -> str | None:
        """``file`` or ``directory``; None for a missing path."""
        found = self._info(key)
        return None if found is None else str(found["type"])

    def _info(self, key: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self._call("info", key)
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return found

    def _check_writable(self, key: str) -> None:
        self._check_folders_above(key)
        if self._is_folder(key):
            raise IsADirectoryError(errno.EISDIR, "", key)

    def _is_folder(self, key: str) -> bool:
        return self._kind(key) == "directory"

    def _check_folders_above(self, key: str) -> None:
        """Check that no parent of an object that is about to be written is a file.

        Each look costs two requests to a bucket, so a parent that was a folder is not looked at
        again before this store writes a file of its name.
        """
        *folders, _ = key[len(self._root) + 1 :].split("/")
        above = self._root
        for name in folders:
            above = f"{above}/{name}"
            if above in self._folders:
                continue
            kind = self._kind(above)
            if kind == "file":
                raise NotADirectoryError(errno.ENOTDIR, "", key)
            if kind == "directory":
                if len(self._folders) >= FOLDERS_MAX:
                    self._folders.clear()
                self._folders.add(above)

    # -- names and calls

    def _all_names(self, folder: str) -> Sequence[str]:
        """The names directly in a folder, temporary ones included, sorted."""
        key = self._folder_key(folder)
        with self._storage_errors("list", key):
            try:
                entries = self._call("ls", key, detail=True, refresh=True)
            except Exception as error:
                if is_missing(error):
                    return []
                raise
            # The listing of a file is that file; some stores list the marker of the folder itself.
            found = {entry["name"].strip("/") for entry in entries} - {key.strip("/")}
            return sorted(name.rpartition("/")[2] for name in found)

    def _file_key(self, path: str) -> str:
        return "/".join((self._root, *file_parts(path)))

    def _folder_key(self, path: str) -> str:
        return "/".join((self._root, *path_parts(path)))

    def _where(self, key: str) -> str:
        return self.url + key[len(self._root) :]

    def _call(
        self, method: str, *arguments: Any, seconds_max: float = OPERATION_SECONDS_MAX, **named: Any
    ) -> Any:
        """Run one operation of the file system, with a time limit if it is asynchronous."""
        return self._call_of(
            self._file_system, method, *arguments, seconds_max=seconds_max, **named
        )

    @staticmethod
    def _call_of(
        file_system: Any, method: str, *arguments: Any, seconds_max: float, **named: Any
    ) -> Any:
        from fsspec.asyn import AsyncFileSystem, sync

        if not isinstance(file_system, AsyncFileSystem):
            return getattr(file_system, method)(*arguments, **named)
        work = getattr(file_system, f"_{method}")
        return sync(file_system.loop, work, *arguments, timeout=seconds_max, **named)

    @contextmanager
    def _storage_errors(self, action: str, key: str) -> Iterator[None]:
        """Translate the libraries' errors, whose only common base class is ``Exception``."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            raise object_error(action, self._where(key), error) from error


def transfer_seconds_max(size: int) -> float:
    """The time limit of a request that transfers ``size`` bytes, in seconds."""
    return OPERATION_SECONDS_MAX + size / BYTES_PER_SECOND_MIN


def _range(offset: int, size: int | None) -> dict[str, int]:
    return {"start": offset} if size is None else {"start": offset, "end": offset + size}
