"""The atomic replacement of a file in a partition directory.

Owns: the write under a second name and the rename.  Must not know what the files hold.
"""

from sparklog.executors.log.names import NEW_SUFFIX
from sparklog.storage_backends.base import Buffer, FileHalf


def replace_file(half: FileHalf, path: str, data: Buffer, *, durable: bool) -> None:
    """Replace the file by ``data``; a killed process leaves the old file or the new file.

    With ``durable``, a crash of the machine leaves one of the two files as well, never a torn file;
    the new name is durable after the next flush of the directory.  The opening of the log removes a
    file that a crash leaves under the second name.
    """
    new = path + NEW_SUFFIX
    half.delete(new)
    handle = half.open(new, create=True)
    try:
        handle.writev([data])
        if durable:
            handle.flush()
    finally:
        handle.close()
    half.rename(new, path)
