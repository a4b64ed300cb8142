"""The error for an object that does not hold what its segment says.

Owns: how the error names the object and the offsets.  Must not know how damage is found.
"""

from typing import Any

from sparklog.errors import DamagedRangeError


class DamagedObjectError(DamagedRangeError):
    """An object in the bucket that is damaged or cut off.

    ``path`` is the object's, ``position`` a byte in it.  The offsets [``first_offset``,
    ``end_offset``) cannot be read; a read from ``end_offset`` on does not touch the damage.
    """

    def __reduce__(self) -> tuple[type["DamagedObjectError"], tuple[Any, ...]]:
        return (DamagedObjectError, super().__reduce__()[1])
