"""A folder that only this user can write to, and that other processes of this user find.

Owns: the place of the folder, the check that it is private, and its files.  Must not know what the
files hold.

The first place is in the shared temporary directory.  If another user has put a folder or a link
there, the second place, in the user's home directory, is used.  Readers look at both.  Nothing is
written through a link, and no file of another user is read: otherwise that user could redirect a
DataFrame to a cluster of their own.
"""

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: O_NONBLOCK, because the file could be a pipe without a writer.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
#: Largest file that is read, in bytes.
_READ_BYTES_MAX: Final = 64 * 1024


class PrivateFolder:
    """An open folder; files are opened relative to its descriptor, not by its path."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole.  Raises OSError."""
        temporary = f".{name}.{os.getpid()}"
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=self._descriptor)
        file = os.open(temporary, _WRITE_FLAGS, _FILE_MODE, dir_fd=self._descriptor)
        with os.fdopen(file, "w") as stream:
            stream.write(text)
        os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def read(self, name: str) -> str:
        """The bytes of a file.  Raises OSError, also for a link or another user's file."""
        file = os.open(name, _READ_FLAGS, dir_fd=self._descriptor)
        try:
            found = os.fstat(file)
            if found.st_uid != os.getuid() or not stat.S_ISREG(found.st_mode):
                raise PermissionError(f"{name} is not a file of this user")
            return os.read(file, _READ_BYTES_MAX).decode(errors="replace")
        finally:
            os.close(file)

    def remove(self, name: str) -> None:
        """Remove a file.  Raises OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def make_private_folder() -> PrivateFolder:
    """The first place that only this user can write to.  Raises OSError if there is none."""
    objections = []
    for path in _places():
        try:
            path.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            return _open(path, tighten=True)
        except OSError as error:
            objections.append(f"{path}: {error.strerror or error}")
    raise PermissionError(f"no folder belongs to this user alone: {'; '.join(objections)}")


def private_folders() -> Iterator[PrivateFolder]:
    """The existing places that only this user can write to; the caller closes them."""
    for path in _places():
        with suppress(OSError):
            yield _open(path, tighten=False)


def _places() -> tuple[Path, Path]:
    """The candidate places, equal in all processes of this user with one temporary directory."""
    user = os.getuid()
    return Path(tempfile.gettempdir()) / f"sparklog-{user}", _home(user) / ".sparklog"


def _home(user: int) -> Path:
    """The home directory; not from the environment, which differs between processes."""
    try:
        return Path(pwd.getpwuid(user).pw_dir)
    except KeyError:
        return Path.home()


def _open(path: Path, *, tighten: bool) -> PrivateFolder:
    """Open a folder.  Raises OSError if others can write to it; ``tighten`` corrects its mode."""
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise PermissionError(f"it belongs to user {found.st_uid}")
        if tighten:
            os.fchmod(descriptor, _FOLDER_MODE)
        elif stat.S_IMODE(found.st_mode) & 0o022:
            raise PermissionError("other users may write to it")
    except BaseException:
        os.close(descriptor)
        raise
    return PrivateFolder(descriptor)
