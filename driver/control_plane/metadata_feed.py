"""The metadata feed: brokers receive the journal's commits from it as these become durable.

Owns: the last commits in their encoded form, a snapshot for watchers that are further behind, and
the WatchMetadata requests that wait for the next commit.  Must not know what records mean, or which
nodes watch.

When a large cluster starts, every broker asks for a snapshot, and each registration is a commit.
Therefore a snapshot is reused together with the commits after it, until these commits are larger
than the snapshot.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from sparklog.metadata import ClusterImage, encode_records
from sparklog.wire.protocol.private import WatchMetadataRequest, WatchMetadataResponse

#: Commits that are kept for watchers; a watcher that is further behind gets a snapshot.
COMMITS_MAX = 1_000
COMMIT_BYTES_MAX = 8 * 1024 * 1024
#: Longest wait of one request, in milliseconds.
WAIT_MS_MAX = 30_000


class MetadataFeed:
    """Sends commits to watchers.

    Args:
        image: returns the committed image; its version is that of the last published commit.
    """

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
        """The number of waiting requests."""
        return len(self._waiting)

    def publish(self, encoded_records: bytes) -> None:
        """Publish the commit that brought the image to its present version.

        Args:
            encoded_records: the commit's records, from ``encode_records``.
        """
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
        """The commits after ``request.since``.

        Returns:
            The response, or a future of it while there is no later commit.  The future is done
            after ``request.max_wait_ms`` (at most ``WAIT_MS_MAX``) in any case.
        """
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
        """Answer all waiting requests now, and later requests at once."""
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
        """The commits after ``version``; None when some of them are not kept any more."""
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
