"""The backends that the contract suite runs against."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.storage_backends.base import FileHalf, StorageBackend, file_half
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory_disk import forget_disk
from sparklog.storage_backends.registry import open_backend

#: Name -> how to make an empty one in a temporary folder.  A new backend adds its line here.
BACKENDS: dict[str, Callable[[Path], StorageBackend]] = {
    "file": LocalBackend,
    "file-in-a-missing-root": lambda folder: LocalBackend(folder / "not" / "yet"),
    "memory": lambda folder: open_backend(f"memory://{folder.name}"),
    "memory-below-a-folder": lambda folder: open_backend(f"memory://{folder.name}/hosts/1"),
}
#: Those that are files too.
FILE_BACKENDS = ("file", "file-in-a-missing-root", "memory", "memory-below-a-folder")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageBackend]:
    yield BACKENDS[request.param](tmp_path)
    forget_disk(tmp_path.name)


@pytest.fixture(params=FILE_BACKENDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileHalf]:
    half = file_half(BACKENDS[request.param](tmp_path))
    half.make_folder("")
    yield half
    forget_disk(tmp_path.name)
