"""The unsent bytes of one connection, in the order in which they are sent.

Owns: the queue of buffers and file regions, partial sends, and the watch on a full connection.
Must not know requests or responses, nor whether the wire is a socket.

The asyncio transport of the connection never holds an unsent byte.  Buffers and regions share one
queue and are sent by the calls of ``wire.py``.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sparklog.storage_backends.base import Region
from sparklog.storage_backends.joined_region import JoinedRegion
from sparklog.transport.wire import Buffer, Wire

#: One response without its length: buffers and file regions in the order of sending.
EncodedResponse: TypeAlias = Sequence[Buffer | Region]

#: Bytes that one connection may send before other connections have a turn.
TURN_BYTES_MAX = 4 * 1024 * 1024

_BUFFERS_PER_CALL = 512  # below IOV_MAX of every Linux
#: Responses up to this size are copied behind their length: cheaper than a buffer of their own.
_SMALL_BYTES = 4096
_BUFFERS = (bytes, bytearray, memoryview)


class SendQueue:
    """The unsent bytes of one connection, in order, and the calls that send them."""

    __slots__ = ("_items", "_on_error", "_on_writable", "_region_sent", "_watched", "_wire",
                 "unsent", "unsent_regions")  # fmt: skip

    def __init__(
        self,
        wire: Wire,
        on_writable: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        #: Bytes that have not been sent, and the part of them that is file regions.
        self.unsent = 0
        self.unsent_regions = 0
        self._wire = wire
        self._items: deque[Buffer | Region] = deque()
        self._region_sent = 0
        self._watched = False
        self._on_writable = on_writable
        self._on_error = on_error

    def put(self, reply: EncodedResponse) -> None:
        """Queue one frame behind its length."""
        if len(reply) == 1 and type(reply[0]) is bytes and len(reply[0]) <= _SMALL_BYTES:
            frame = len(reply[0]).to_bytes(4, "big") + reply[0]
            self._items.append(frame)
            self.unsent += len(frame)
            return
        size = encoded_size(reply)
        self._items.append(size.to_bytes(4, "big"))
        for item in reply:
            if isinstance(item, JoinedRegion):
                self._items.extend(item.regions)
            elif size_of(item):
                self._items.append(item)
            else:
                _release(item)
        self.unsent += size + 4
        self.unsent_regions += region_bytes(reply)

    def flush(self) -> None:
        """Send the bytes that the socket takes now; the rest is sent when the socket takes more."""
        budget = TURN_BYTES_MAX
        items = self._items
        try:
            while items and budget > 0:
                head = items[0]
                if isinstance(head, _BUFFERS):
                    budget -= self._send_buffers()
                else:
                    budget -= self._send_region(head)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._on_error(error)
            return
        if items:
            self._start_watch()
        elif self._watched:
            self._watched = False
            self._wire.unwatch()

    def close(self) -> None:
        """Release the unsent bytes and the callbacks."""
        self._wire.close()
        self._on_writable = _nothing
        self._on_error = _nothing
        self.unsent = self.unsent_regions = 0
        for item in self._items:
            _release(item)
        self._items.clear()

    def _send_buffers(self) -> int:
        items = self._items
        batch: list[Buffer] = []
        for item in items:
            if len(batch) == _BUFFERS_PER_CALL or not isinstance(
                item, (bytes, bytearray, memoryview)
            ):
                break
            batch.append(item)
        sent = self._wire.writev(batch)
        self.unsent -= sent
        if not self.unsent:
            items.clear()
            return sent
        left = sent
        for item in batch:
            if len(item) > left:
                if left:
                    items[0] = memoryview(item)[left:]
                break
            left -= len(item)
            items.popleft()
        return sent

    def _send_region(self, region: Region) -> int:
        done = self._region_sent
        left = region.size - done
        sent = self._wire.send(region, done)
        if sent == 0:
            raise OSError(errno.EIO, "a file is shorter than the region that was promised")
        self.unsent -= sent
        self.unsent_regions -= sent
        if sent < left:
            self._region_sent = done + sent
        else:
            self._region_sent = 0
            self._items.popleft()
            region.release()
        return sent

    def _start_watch(self) -> None:
        if not self._watched:
            try:
                self._wire.watch(self._on_writable)
            except OSError as error:
                self._on_error(error)
                return
            self._watched = True


def encoded_size(reply: Iterable[Buffer | Region]) -> int:
    """The number of bytes of a response, without its length."""
    return sum([size_of(item) for item in reply])


def region_bytes(reply: EncodedResponse) -> int:
    """The number of bytes in the file regions of a response."""
    if len(reply) == 1 and type(reply[0]) is bytes:
        return 0
    return sum([size_of(item) for item in reply if not isinstance(item, _BUFFERS)])


def size_of(item: Buffer | Region) -> int:
    return len(item) if isinstance(item, _BUFFERS) else item.size


def _release(item: Buffer | Region) -> None:
    if not isinstance(item, _BUFFERS):
        item.release()


def release_all(reply: EncodedResponse | None) -> None:
    for item in reply or ():
        _release(item)


def _nothing(*_arguments: object) -> None:
    """The connection has ended."""
