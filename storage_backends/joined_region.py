"""Ranges of several files that are sent as one.

Owns: their order.  Must not know what they are, or how they are sent.
"""

from collections.abc import Sequence

from sparklog.storage_backends.base import Region


class JoinedRegion:
    """A ``Region`` whose bytes are those of ``regions``, one after the other.

    It has no descriptor of its own: whoever can send files sends ``regions``.
    """

    __slots__ = ("regions", "size")

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = regions
        self.size = sum(region.size for region in regions)

    def descriptor(self) -> None:
        return None

    def view(self) -> memoryview:
        return memoryview(self.read())

    def read(self) -> bytes:
        return b"".join([region.read() for region in self.regions])

    def release(self) -> None:
        for region in self.regions:
            region.release()
