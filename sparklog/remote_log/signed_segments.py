"""Segments with the URLs of their objects, for readers that have no credentials.

Owns: the value, its JSON form, and which stores have such URLs.  Must not know who reads, or how.

An object store signs URLs (``StorageBackend.presign``).  A folder that readers may see too has
``file://`` URLs, which open nothing that the reader's user may not open anyway.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.errors import DecodeError
from sparklog.remote_log import names
from sparklog.remote_log.json_values import text_of
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.storage_backends.base import StorageBackend
from sparklog.types import NO_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSegment:
    """A segment, and the URLs of its log object and its indexes object.  The URLs are secrets."""

    segment: RemoteSegment
    log_url: str = field(repr=False)
    indexes_url: str = field(repr=False)

    def encode(self) -> bytes:
        """The segment as JSON."""
        document: dict[str, Any] = {
            "segment": self.segment.to_json(),
            "log": self.log_url,
            "indexes": self.indexes_url,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "SignedSegment":
        """Raises DecodeError."""
        try:
            document = json.loads(data)
            return cls(
                segment=RemoteSegment.from_json(document["segment"]),
                log_url=text_of(document["log"]),
                indexes_url=text_of(document["indexes"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            # Not its repr, in which a UnicodeDecodeError has all the bytes, and so the URLs.
            what = f"{type(error).__name__}: {error}"
            raise DecodeError(f"it describes no segment with URLs: {what}") from None


class SignedPage(NamedTuple):
    """Some of the segments that were asked for, oldest first.

    Below ``next_offset``, from the asked offset on, no other segment has what was asked for; the
    log objects of those behind have ``bytes_behind``.  NO_OFFSET says nothing of any offset: there
    are no URLs.
    """

    segments: Sequence[SignedSegment] = ()
    next_offset: int = NO_OFFSET
    bytes_behind: int = 0


def sign_segments(
    store: StorageBackend, folder: str, segments: Sequence[RemoteSegment], seconds: int
) -> list[SignedSegment]:
    """The segments with URLs that are good for ``seconds``; none if the store has no URLs.

    ``folder`` is that of the partition's segments.  Nothing is requested from the store.  Raises
    StorageError: there are no credentials to sign with.
    """
    ids = [segment.segment_id for segment in segments]
    paths = [names.log_object(folder, each) for each in ids]
    paths += [names.indexes_object(folder, each) for each in ids]
    urls = [url for url in _urls(store, paths, seconds) if url is not None]
    if len(urls) < len(paths):
        return []
    return [
        SignedSegment(segment=segment, log_url=urls[place], indexes_url=urls[len(ids) + place])
        for place, segment in enumerate(segments)
    ]


def _urls(store: StorageBackend, paths: list[str], seconds: int) -> Sequence[str | None]:
    if store.url.startswith("file://"):
        return [f"{store.url}/{path}" for path in paths]
    return store.presign_many(paths, seconds)
