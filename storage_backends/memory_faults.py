"""The faults of a memory disk, which tests switch on and off.

Owns: the switches and their errors.  Must not know files.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sparklog.storage_backends.base import storage_error

#: Operations whose error means that nothing has happened, so they cannot fail after their work.
_ALL_OR_NOTHING = frozenset({"append", "writev"})

#: The operations that faults can name; those of an open file are named after its methods.
Operation = Literal[
    "append",
    "delete",
    "exists",
    "flush",
    "flush_folder",
    "list",
    "lock",
    "make_folder",
    "map",
    "open",
    "overwrite",
    "put",
    "put_if_absent",
    "read",
    "region",
    "remove_folder",
    "rename",
    "rename_folder",
    "reserve",
    "size",
    "truncate",
    "upload",
    "writev",
]


@dataclass(slots=True, kw_only=True)
class _Failure:
    remaining: int
    operation: Operation | None
    after: bool
    under: str


@dataclass(slots=True, kw_only=True)
class Faults:
    """The switches of one disk.

    ``capacity_bytes`` limits the space of all files.  ``read_only`` refuses writes.  ``slow`` is
    called with (operation, path) before each operation, outside of the disk's lock; it may block,
    record, or raise.
    """

    capacity_bytes: int | None = None
    read_only: bool = False
    slow: Callable[[Operation, str], None] | None = None
    _failures: list[_Failure] = field(default_factory=list)

    def fail_next(
        self,
        count: int = 1,
        operation: Operation | None = None,
        *,
        after: bool = False,
        under: str = "",
    ) -> None:
        """Make the next operations fail.

        Args:
            count: how many operations fail.
            operation: the kind of operations; None for any kind.
            after: the operations take effect and then fail, as when an answer is lost.  This is not
                possible for appends and writes, whose errors promise that nothing has happened.
            under: a text that the path must contain.
        """
        assert not (after and operation in _ALL_OR_NOTHING), f"{operation} never fails afterwards"
        self._failures.append(
            _Failure(remaining=count, operation=operation, after=after, under=under)
        )

    def clear(self) -> None:
        """Switch all faults off."""
        self.capacity_bytes = None
        self.read_only = False
        self.slow = None
        self._failures.clear()

    def delay(self, operation: Operation, where: str) -> None:
        if self.slow is not None:
            self.slow(operation, where)

    def check_before(self, operation: Operation, where: str, *, writes: bool) -> None:
        if writes and self.read_only:
            raise storage_error(operation, where, OSError(errno.EROFS, "read-only"))
        self._fail_if_due(operation, where, after=False)

    def check_after(self, operation: Operation, where: str) -> None:
        if operation not in _ALL_OR_NOTHING:
            self._fail_if_due(operation, where, after=True)

    def _fail_if_due(self, operation: Operation, where: str, *, after: bool) -> None:
        for failure in self._failures:
            due = (
                failure.after == after
                and failure.operation in (None, operation)
                and failure.under in where
            )
            if due:
                failure.remaining -= 1
                if not failure.remaining:
                    self._failures.remove(failure)
                raise storage_error(operation, where, OSError(errno.EIO, "failed"))
