"""Writes of a bucket's objects over plain HTTP, which cost a fraction of the library's writes.

Owns: the checksum of what is sent, a connection for each thread, and when the library writes
instead.  Must not know how a URL is signed, or how parts make an object.

The library's client reads what it sends three times: for the hash in the signature, for a checksum,
and in small parts through an event loop.  A signed URL has no hash of the body, and the CRC-32C of
the bytes is computed in one pass.  A store that has checked it says so in its answer; from others
no signed write is taken as done.
"""

import base64
import http.client
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import SplitResult, urlsplit

from crc32c import crc32c

from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.library_pause import LibraryPause
from sparklog.storage_backends.url_ranges import open_connection

#: Seconds for which a URL is signed.
SIGNED_S: Final = 3600
#: Attempts of a write: the server may have closed the kept connection.  Seconds for a connection,
#: for each step of a body, and for the answer.
TRIES: Final = 2
HTTP_S: Final = 20.0
#: Bytes of a body that are sent at once.
_STEP_BYTES: Final = 512 * 1024
#: Statuses that have to do with what is written, or pass.  After others no such write is tried for
#: a while: the store refuses them, or does not say that it has checked what it got.
_MAY_PASS: Final = frozenset((404, 409, 412, 429, 500, 502, 503, 504))
#: The checksum's header; the name of its parameter is that of boto.
_HEADER: Final = "x-amz-checksum-crc32c"
CHECKSUM: Final = "ChecksumCRC32C"


class SignWrite(Protocol):
    """Signs a URL for a request named as in boto, good for ``seconds``."""

    def __call__(self, method: str, /, *, seconds: int, **parameters: object) -> str: ...


class SignedWrites:
    """Writes by signed URLs, in any thread.

    Args:
        sign: may raise any error; then nothing is written.
        enabled: False if the library adds to its writes what no signed URL has.
        clock_s: seconds, on a clock that never goes back.
    """

    def __init__(
        self,
        sign: SignWrite,
        *,
        enabled: bool = True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sign = sign
        self._enabled = enabled
        self._pause = LibraryPause(clock_s)
        self._of_thread = threading.local()

    @property
    def are_paused(self) -> bool:
        """Whether ``write`` does nothing now, because it failed lately, or ever."""
        return not self._enabled or self._pause.lasts()

    def give_up(self) -> None:
        """Do nothing for a while: the store does not take such writes."""
        self._pause.begin()

    def write(self, method: str, data: Buffer, **parameters: object) -> str | None:
        """Write; return the ETag.

        Returns None if the library has to write, which may do the same once more.
        """
        if self.are_paused:
            return None
        checksum = checksum_of(data)
        try:
            url = urlsplit(
                self._sign(method, seconds=SIGNED_S, **parameters, **{CHECKSUM: checksum})
            )
        except Exception:
            return None  # the library says why
        for _ in range(TRIES):
            try:
                answer = self._put(url, data, checksum)
            except (OSError, http.client.HTTPException):
                self._disconnect()
                continue
            if answer.status == http.client.OK and answer.getheader(_HEADER) == checksum:
                self._pause.forget()
                return answer.getheader("ETag")
            if answer.status in _MAY_PASS:
                return None
            break
        self._pause.begin()
        return None

    def _put(self, url: SplitResult, data: Buffer, checksum: str) -> http.client.HTTPResponse:
        """The answer, which has been read."""
        connection = self._connection(url)
        view = memoryview(data)
        steps = (view[at : at + _STEP_BYTES] for at in range(0, len(view), _STEP_BYTES))
        headers = {"Content-Length": str(len(view)), _HEADER: checksum}
        connection.request("PUT", f"{url.path}?{url.query}", steps, headers)
        with connection.getresponse() as response:
            response.read()
            return response

    def _connection(self, url: SplitResult) -> http.client.HTTPConnection:
        place = url.scheme, url.netloc
        kept: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if kept is not None and self._of_thread.place == place:
            return kept
        self._disconnect()
        made = open_connection(url, HTTP_S)
        self._of_thread.place, self._of_thread.connection = place, made
        return made

    def _disconnect(self) -> None:
        kept: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if kept is not None:
            kept.close()


def checksum_of(data: Buffer) -> str:
    """The CRC-32C as S3 writes it."""
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()
