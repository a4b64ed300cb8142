"""Locations -> the places that they name, so that two locations can be compared.

Owns: which paths and URLs name the same place, and which place is inside another one.  Must not
know what is kept there.
"""

import os
from dataclasses import dataclass
from typing import Self

from sparklog.process import local_folder
from sparklog.storage_backends.registry import SCHEMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder of this host, or a place in a bucket.

    Args:
        store: what opens the place: schemes that are opened alike, as s3 and s3a, are one store.
        names: the names on the way to the place; those of a bucket begin with the bucket.
    """

    store: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, location: str) -> Self:
        """The place of a path or URL.  Links to a local folder are followed on this host."""
        folder = local_folder(location)
        if folder is not None:
            return cls(store=SCHEMES["file"], names=_names(os.path.realpath(folder)))
        scheme, _, rest = location.partition("://")
        return cls(store=SCHEMES.get(scheme.lower(), scheme.lower()), names=_names(rest))

    def holds(self, other: Self) -> bool:
        """Whether the other place is this one, or is inside it."""
        return self.store == other.store and self.names == other.names[: len(self.names)]


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
