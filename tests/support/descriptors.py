"""How many files a test holds open, without those of other tests.

Descriptors of earlier tests are closed whenever the garbage collector comes by, so that a count of
all of a process's descriptors may fall during a test. Only files of a test's own folder count.
"""

import os
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


def open_files_in(folder: Path) -> int:
    """The number of descriptors of this process on files in ``folder``, deleted ones included."""
    prefix = f"{folder.resolve()}{os.sep}"
    count = 0
    for descriptor in os.listdir(DESCRIPTORS):
        # The listing's own descriptor is gone by now, and other threads close theirs.
        with suppress(FileNotFoundError):
            count += os.readlink(DESCRIPTORS / descriptor).startswith(prefix)
    return count
