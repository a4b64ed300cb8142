"""The errors for an object that does not hold what its segment says, or is gone.

Owns: how the errors name the object and the offsets.  Must not know how damage is found.
"""

from typing import Any

from sparklog.errors import DamagedRangeError


class DamagedObjectError(DamagedRangeError):
    """An object in the bucket that is damaged or cut off.

    ``path`` is the object's, ``position`` a byte in it.  The offsets [``first_offset``,
    ``end_offset``) cannot be read; a read from ``end_offset`` on does not touch the damage.
    """

    def __reduce__(self) -> tuple[type["DamagedObjectError"], tuple[Any, ...]]:
        return (type(self), super().__reduce__()[1])


class GoneObjectError(DamagedObjectError):
    """An object that is not in the bucket, so that no offset of its segment can be read."""

    def __str__(self) -> str:
        return (
            f"{self.path} does not exist, and the segment of the offsets {self.first_offset} to "
            f"{self.end_offset - 1} needs it: {self.damage}"
        )
