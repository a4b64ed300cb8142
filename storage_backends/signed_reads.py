"""Reads of a bucket's objects over plain HTTP, which cost a fraction of the library's reads.

Owns: the signed URLs, a connection for each thread, and when the library reads instead.  Must not
know what is read.

The library's client takes an answer in small parts, through an event loop of its own.  That is
about four times the CPU of one request over a kept connection.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sparklog.errors import StorageError
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.library_pause import LibraryPause
from sparklog.storage_backends.url_ranges import RefusedUrlError, UrlRanges

#: Seconds for which a URL is signed, and for which it is used.
SIGNED_S: Final = 3600
USED_S: Final = 1800.0
#: URLs that are kept.
URLS_MAX: Final = 1000
#: Attempts of a read: the server may have closed the kept connection.  Seconds for a connection,
#: and for each part of an answer.
TRIES: Final = 2
HTTP_S: Final = 5.0


class SignedReads:
    """Reads ranges of the objects of ``store``, in any thread.

    What plain HTTP does not read is read by the store, which knows proxies, certificates and
    renewed credentials; so the errors are the store's.

    Args:
        clock_s: seconds, on a clock that never goes back.
    """

    def __init__(
        self, store: StorageBackend, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock_s = clock_s
        self._guard = threading.Lock()
        #: By path: a URL, and until when it is used.  The least recently signed first.
        self._urls: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._pause = LibraryPause(clock_s)
        self._of_thread = threading.local()

    def read_into(self, path: str, offset: int, target: memoryview) -> int:
        """Read an object from ``offset`` on into ``target``; return how many bytes there are.

        Raises StorageError.
        """
        url = self._url(path)
        if url is None:
            return self._store.read_into(path, offset, target)
        try:
            size = self._read_signed(path, url, offset, target)
        except RefusedUrlError:  # or the object is gone, which the store tells
            size = self._store.read_into(path, offset, target)
            self._prefer_library()
            return size
        except StorageError:
            size = 0
        if size == len(target):
            self._pause.forget()
            return size
        self._prefer_library()
        return self._store.read_into(path, offset, target)

    def _read_signed(self, path: str, url: str, offset: int, target: memoryview) -> int:
        ranges = self._ranges()
        try:
            return ranges.read_into(url, offset, target)
        except RefusedUrlError:  # it may have expired with the credentials that signed it
            self._forget(path)
            again = self._url(path)
            if again is None:
                raise
            return ranges.read_into(again, offset, target)

    def _prefer_library(self) -> None:
        with self._guard:
            self._urls.clear()
        self._pause.begin()

    def _forget(self, path: str) -> None:
        with self._guard:
            self._urls.pop(path, None)

    def _url(self, path: str) -> str | None:
        """None while, or where, there are no URLs."""
        if self._pause.lasts():
            return None
        now_s = self._clock_s()
        with self._guard:
            url, until_s = self._urls.get(path, ("", now_s))
        if now_s < until_s:
            return url
        try:
            signed = self._store.presign(path, SIGNED_S)
        except StorageError:
            return None  # the store says why when it reads
        if signed is not None:
            with self._guard:
                self._urls[path] = signed, now_s + USED_S
                self._urls.move_to_end(path)
                while len(self._urls) > URLS_MAX:
                    self._urls.popitem(last=False)
        return signed

    def _ranges(self) -> UrlRanges:
        ranges: UrlRanges | None = getattr(self._of_thread, "ranges", None)
        if ranges is None:
            ranges = self._of_thread.ranges = UrlRanges(tries=TRIES, seconds_max=HTTP_S)
        return ranges
