"""Ranges of objects, read by URL and without credentials: ``http(s)://`` and ``file://``.

Owns: the requests, the check of their answers, and which failures are tried again.  Must not know
what the bytes mean, or where the URLs come from.

The query of a URL is a secret, so no error shows it.
"""

import http.client
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from sparklog.errors import StorageError
from sparklog.storage_backends.local import open_url

#: Attempts of one read (by default), and the base of the doubling pauses between them.
TRIES: Final = 4
PAUSE_SECONDS: Final = 0.05
#: Longest pauses in seconds after answers of a store that is overloaded (503 "SlowDown", 429) or
#: has failed (5xx), for readers who would rather wait than read elsewhere.
BUSY_PAUSES_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Time for a connection, and for each part of an answer (by default).
SECONDS_MAX: Final = 20.0

#: Time in which a host that did not answer a connection is not tried again by those who share that.
UNREACHABLE_SECONDS: Final = 300.0

#: What stores answer for a URL that has expired, or whose object is gone.
_REFUSALS: Final = frozenset((400, 401, 403, 404, 410))
_REFUSAL_BYTES_MAX: Final = 4096
_SAID: Final = (
    re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>"),
    re.compile(r"<Message>([^<>&=?%]{1,200})</Message>"),
)
_BEHIND_THE_END: Final = 416
_PARTIAL: Final = 206
_WHOLE: Final = 200


class RefusedUrlError(StorageError):
    """The store does not accept the URL (any more), or the object is gone."""


class _BrokenAnswerError(StorageError):
    """An answer that another attempt may complete."""


class _BusyStoreError(_BrokenAnswerError):
    """The store is overloaded, or has failed."""


class UnreachableHosts:
    """Hosts that did not answer a connection, for a while: the readers of a process share them.

    Packets to them are dropped, by a firewall for example, and each reader would find that out only
    after ``SECONDS_MAX``.  For one thread at a time.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s: dict[tuple[str, str], float] = {}

    def note(self, host: tuple[str, str]) -> None:
        self._until_s[host] = self._now_s() + UNREACHABLE_SECONDS

    def __contains__(self, host: tuple[str, str]) -> bool:
        return self._now_s() < self._until_s.get(host, 0.0)


#: What the Spark tasks of a process have found out; a worker runs many tasks, one after the other.
UNREACHABLE: Final = UnreachableHosts()


class UrlRanges:
    """Reads ranges; keeps a connection to each host until ``close``.  For one thread at a time.

    ``requests`` and ``bytes_read`` count what was asked for over HTTP, and the bytes of answers.

    Args:
        tries: attempts of one read, but for answers of a busy store that have pauses of their own.
        busy_pauses_s: longest pauses after such answers, in order.  Each lasts between half of that
            and all of it, so that many readers do not come back together.
        unreachable: where a connection is not tried again after one that was not answered.
        sleep_s: waits for seconds.
        jitter: a random number in [0, 1).
    """

    def __init__(
        self,
        *,
        pause_seconds: float = PAUSE_SECONDS,
        tries: int = TRIES,
        seconds_max: float = SECONDS_MAX,
        busy_pauses_s: Sequence[float] = (),
        unreachable: UnreachableHosts | None = None,
        sleep_s: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._pause_seconds = pause_seconds
        self._tries = tries
        self._seconds_max = seconds_max
        self._busy_pauses_s = busy_pauses_s
        self._unreachable = unreachable
        self._sleep_s = sleep_s
        self._jitter = jitter
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self.requests = 0
        self.bytes_read = 0

    def read_into(self, url: str, offset: int, target: memoryview) -> int:
        """Read the bytes from ``offset`` on into ``target``, as many as it has room for; return how
        many there are.  A target that is used again saves half of the CPU.

        Raises:
            RefusedUrlError, MissingPathError: try with a new URL.
            StorageError: the store cannot be reached, or does not serve ranges.
        """
        parts = urlsplit(url)
        if parts.scheme == "file":
            folder, _, name = url.rpartition("/")
            return open_url(folder, {}).read_into(name, offset, target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StorageError(f"{parts.scheme}:// is no URL of an object that can be read here")
        attempt = busy = 0
        while True:
            try:
                return self._request(parts, offset, target)
            except _BrokenAnswerError as error:
                if isinstance(error, _BusyStoreError) and busy < len(self._busy_pauses_s):
                    pause_s = self._busy_pauses_s[busy] * (1 + self._jitter()) / 2
                    busy += 1
                else:
                    attempt += 1
                    pause_s = self._pause_seconds * (2**attempt - 2)  # at once the first time
                    if attempt >= self._tries or (busy and isinstance(error, _BusyStoreError)):
                        raise
            self._sleep_s(pause_s)

    def close(self) -> None:
        """Close the connections.  May be called twice."""
        while self._connections:
            self._connections.popitem()[1].close()

    def _request(self, parts: SplitResult, offset: int, target: memoryview) -> int:
        key = parts.scheme, parts.netloc
        where = f"{parts.scheme}://{parts.netloc}{parts.path}"
        connection = self._connections.get(key) or self._connect(parts, where)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self.requests += 1
        try:
            connection.request(
                "GET", path, headers={"Range": f"bytes={offset}-{offset + len(target) - 1}"}
            )
            with connection.getresponse() as response:
                filled = _take_body(response, where, offset, target)
        except http.client.InvalidURL:  # its text has the query
            del self._connections[key]  # the request was begun
            raise StorageError(f"cannot read {where}: the URL is malformed") from None
        except (OSError, http.client.HTTPException) as error:
            del self._connections[key]
            connection.close()
            raise _BrokenAnswerError(f"cannot read {where}: {error!r}") from error
        except StorageError:
            del self._connections[key]  # the rest of the answer is in the way of the next one
            connection.close()
            raise
        self.bytes_read += filled
        return filled

    def _connect(self, parts: SplitResult, where: str) -> http.client.HTTPConnection:
        key, unreachable = (parts.scheme, parts.netloc), self._unreachable
        seconds = f"{self._seconds_max:g} s"
        if unreachable is not None and key in unreachable:
            raise StorageError(f"cannot read {where}: the host did not answer for {seconds} before")
        connection = open_connection(parts, self._seconds_max)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            if unreachable is not None and isinstance(error, TimeoutError):
                unreachable.note(key)
                what = f"cannot read {where}: the host does not answer for {seconds}"
                raise StorageError(what) from error
            raise _BrokenAnswerError(f"cannot read {where}: {error!r}") from error
        self._connections[key] = connection
        return connection


def open_connection(parts: SplitResult, seconds_max: float) -> http.client.HTTPConnection:
    """A connection to the host of an ``http(s)://`` URL, made with its first request."""
    assert parts.hostname is not None
    try:
        port = parts.port
    except ValueError as error:
        raise StorageError(f"the URL of an object has no port: {error}") from None
    https = parts.scheme == "https"
    kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
    return kind(parts.hostname, port, timeout=seconds_max)


def _take_body(
    response: http.client.HTTPResponse, where: str, offset: int, target: memoryview
) -> int:
    """Take the bytes of an answer, which must be those that were asked for."""
    status = response.status
    if status == _BEHIND_THE_END:
        response.read()
        return 0
    if status in _REFUSALS:
        said = f"{status} {response.reason}{_said(response)}"
        raise RefusedUrlError(f"cannot read {where}: the store answers {said}")
    if status == 429 or status >= 500:
        raise _BusyStoreError(f"cannot read {where}: the store answers {status} {response.reason}")
    if status not in (_PARTIAL, _WHOLE):
        raise StorageError(f"cannot read {where}: the store answers {status} {response.reason}")
    start = _start_of(response.getheader("Content-Range")) if status == _PARTIAL else 0
    if start != offset or (response.length or 0) > len(target):
        raise StorageError(f"cannot read {where}: the store does not serve ranges")
    filled = 0
    while filled < len(target) and (count := response.readinto(target[filled:])):
        filled += count
    if response.length:
        raise _BrokenAnswerError(f"cannot read {where}: {response.length} bytes did not come")
    if response.length is None and response.read(1):
        raise StorageError(f"cannot read {where}: the store does not serve ranges")
    return filled


def _said(response: http.client.HTTPResponse) -> str:
    """Code and message of a refusal; empty without any.

    The rest of the answer may show the query of the URL, and so may a message with its characters.
    """
    try:
        text = response.read(_REFUSAL_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    found = [each.group(1).strip() for part in _SAID if (each := part.search(text))]
    return f" ({': '.join(found)})" if found else ""


def _start_of(content_range: str | None) -> int:
    """The first byte of ``bytes 0-99/1000``; -1 if it is not known."""
    unit, _, span = (content_range or "").partition(" ")
    start = span.partition("-")[0]
    return int(start) if unit == "bytes" and start.isdigit() else -1
