"""What brokers watch: the commits, as they become durable.

Owns: the last commits in their encoded form, a snapshot for those who are further behind, and the
requests that wait for the next one.  Must not know what records mean, or who watches.

When a large cluster starts, every broker asks for a snapshot, and each registration is a commit: so
a snapshot is used again, followed by the commits since, until these are the larger part.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from sparklog.metadata import ClusterImage, encode_records
from sparklog.wire.protocol.private import WatchMetadataRequest, WatchMetadataResponse

#: Commits kept for watchers that are behind; who is further behind gets a snapshot.
COMMITS_MAX = 1_000
COMMIT_BYTES_MAX = 8 * 1024 * 1024
#: Longest wait of one request.
WAIT_MS_MAX = 30_000


class MetadataFeed:
    """``image`` gives the committed image, whose version is that of the last published commit."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._commits: deque[bytes] = deque()
        self._bytes = 0
        self._snapshot = b""
        self._snapshot_version = -1
        self._waiting: dict[asyncio.Future[WatchMetadataResponse], int] = {}
        self._closed = False

    @property
    def watchers(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def publish(self, encoded_records: bytes) -> None:
        """The commit that brought the image to its present version."""
        self._commits.append(encoded_records)
        self._bytes += len(encoded_records)
        while len(self._commits) > COMMITS_MAX or (
            self._bytes > COMMIT_BYTES_MAX and len(self._commits) > 1
        ):
            self._bytes -= len(self._commits.popleft())
        self._answer_all()

    def watch(
        self, request: WatchMetadataRequest
    ) -> "WatchMetadataResponse | asyncio.Future[WatchMetadataResponse]":
        """What happened since; waits when nothing did."""
        wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
        if request.since != self._image().version or wait_ms <= 0 or self._closed:
            return self._response_since(request.since)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[WatchMetadataResponse] = loop.create_future()
        self._waiting[future] = request.since
        timer = loop.call_later(wait_ms / 1000, self._answer, future)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def close(self) -> None:
        """Answer everyone who waits, now and from now on."""
        self._closed = True
        self._answer_all()

    def _answer_all(self) -> None:
        for future in list(self._waiting):
            self._answer(future)

    def _answer(self, future: "asyncio.Future[WatchMetadataResponse]") -> None:
        since = self._waiting.pop(future, None)
        if since is not None and not future.done():
            future.set_result(self._response_since(since))

    def _response_since(self, since: int) -> WatchMetadataResponse:
        image = self._image()
        commits = self._commits_after(since)
        snapshot = commits is None
        if commits is None:
            commits = self._snapshot_and_after()
        return WatchMetadataResponse(
            controller_epoch=image.controller_epoch,
            snapshot=snapshot,
            version=image.version,
            commits=commits,
        )

    def _commits_after(self, version: int) -> tuple[bytes, ...] | None:
        """None when they are not all kept."""
        behind = self._image().version - version
        if not 0 <= behind <= len(self._commits):
            return None
        return tuple(self._commits)[len(self._commits) - behind :]

    def _snapshot_and_after(self) -> tuple[bytes, ...]:
        since = self._commits_after(self._snapshot_version)
        if since is None or sum(map(len, since)) > len(self._snapshot):
            image = self._image()
            self._snapshot = encode_records(image.snapshot_records())
            self._snapshot_version, since = image.version, ()
        return (self._snapshot, *since)
