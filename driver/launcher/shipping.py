"""The archive of sparklog's code, for executors that do not have it.

Owns: the fingerprint of this package's code, and the archive that ``addPyFile`` distributes.  Must
not know where the archive is used.  Only sparklog is shipped; its dependencies must be installed.
"""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import sparklog

_ARCHIVE_PREFIX = "sparklog-"
_DATA_SOURCE_MODULE = "pyspark_sparklog.py"
#: Python sources, and the Java sources that a driver's JVM compiles.
_SUFFIXES = frozenset({".py", ".java"})


def fingerprint() -> str:
    """A text that is the same for the same code of sparklog, and different for different code."""
    package = Path(sparklog.__file__).parent
    if package.parent.is_file():  # this process runs from an archive made by ``write_archive``
        return package.parent.stem.removeprefix(_ARCHIVE_PREFIX)
    digest = hashlib.sha256()
    for name, path in _sources(package):
        digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def write_archive(folder: Path) -> Path:
    """Write a zip archive of this package, named by its fingerprint, into ``folder``."""
    package = Path(sparklog.__file__).parent
    archive = folder / f"{_ARCHIVE_PREFIX}{fingerprint()}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, path in _sources(package):
            file.write(path, name)
    return archive


def _sources(package: Path) -> Iterator[tuple[str, Path]]:
    """The archive's names and their files, sorted.  Links inside the package are followed."""
    module = package.parent / _DATA_SOURCE_MODULE
    if module.is_file():
        yield _DATA_SOURCE_MODULE, module
    for folder, folders, files in os.walk(package, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(folder) / name
            if path.suffix in _SUFFIXES:
                yield str(path.relative_to(package.parent)), path
