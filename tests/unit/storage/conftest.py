"""The backends that the contract suite runs against."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sparklog.storage_backends.base import FileHalf, StorageBackend, file_half
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory_disk import forget_disk
from sparklog.storage_backends.registry import open_backend

#: Name -> a function that makes an empty backend in a temporary folder.  A new backend adds a line.
BACKENDS: dict[str, Callable[[Path], StorageBackend]] = {
    "file": LocalBackend,
    "file-in-a-missing-root": lambda folder: LocalBackend(folder / "not" / "yet"),
    "memory": lambda folder: open_backend(f"memory://{folder.name}"),
    "memory-below-a-folder": lambda folder: open_backend(f"memory://{folder.name}/hosts/1"),
    "fsspec-memory": lambda folder: open_backend(f"fsspec+memory://{folder.name}/journal"),
    "s3": lambda folder: open_backend(f"s3://{folder.name}"),
    "s3-below-a-folder": lambda folder: open_backend(f"s3://{folder.name}/clusters/one"),
}
#: The backends with a file half.
FILE_BACKENDS = ("file", "file-in-a-missing-root", "memory", "memory-below-a-folder")


def _marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.s3) if name.startswith("s3") else name


@pytest.fixture(params=map(_marked, BACKENDS))
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorageBackend]:
    folder = tmp_path
    if request.param.startswith("s3"):
        folder = Path(request.getfixturevalue("s3_bucket"))
        for name, value in request.getfixturevalue("s3_server").environment.items():
            monkeypatch.setenv(name, value)
    yield BACKENDS[request.param](folder)
    forget_disk(tmp_path.name)
    MemoryFileSystem.store.clear()


@pytest.fixture(params=FILE_BACKENDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileHalf]:
    half = file_half(BACKENDS[request.param](tmp_path))
    half.make_folder("")
    yield half
    forget_disk(tmp_path.name)
