"""The backends of URLs and paths."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends import registry
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory_disk import forget_disk
from sparklog.storage_backends.registry import (
    open_backend,
    open_file_half,
    register_scheme,
    require_conditional_create,
)


@pytest.fixture(autouse=True)
def _schemes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SCHEMES", dict(registry.SCHEMES))


@pytest.fixture
def disk() -> Iterator[str]:
    yield "registry-disk"
    forget_disk("registry-disk")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/data/logs", "file:///data/logs"),
        ("/data/../logs/", "file:///logs"),
        (Path("/data/with space"), "file:///data/with%20space"),
        ("file:///data/with%20space", "file:///data/with%20space"),
        ("file://localhost/data", "file:///data"),
        ("FILE:///data", "file:///data"),
    ],
)
def test_local_places(location: str | Path, url: str) -> None:
    backend = open_backend(location)
    assert (type(backend), backend.url) == (LocalBackend, url)


def test_relative_and_home_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    urls = [open_backend(location).url for location in ("logs", ".", "~/logs")]
    assert urls == [f"file://{tmp_path}/logs", f"file://{tmp_path}", "file:///home/me/logs"]


def test_opening_creates_nothing(tmp_path: Path) -> None:
    open_file_half(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_one_name_is_one_memory_disk(disk: str) -> None:
    open_backend(f"memory://{disk}").put("a/file", b"x")
    assert open_backend(f"memory://{disk}/a").read("file") == b"x"
    forget_disk(disk)
    assert open_backend(f"memory://{disk}").list("") == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3x://bucket", r"no storage for s3x://; known are file://, .* and those of fsspec; did"),
        ("fil:///data", r"no storage for fil://; .*did you mean file://\?"),
        ("file:data", r"write file:///absolute/path"),
        ("file://host/data", r"write file:///absolute/path"),
        ("memory://", r"write memory://NAME"),
        ("", r"empty storage location; give a folder or a URL"),
    ],
)
def test_wrong_places_are_refused_with_a_remedy(location: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        open_backend(location)


def test_a_place_of_many_writers_is_refused_by_its_scheme() -> None:
    for location in ("/data", "data", "FILE:///data", "s3://b/x", "S3A://b/x", "memory://x"):
        require_conditional_create(location)
    with pytest.raises(StorageError, match="no store of mine:// is known"):
        require_conditional_create("mine://x")
    register_scheme("mine", "sparklog_no_such_module:open_url")
    require_conditional_create("mine://x")
    with pytest.raises(StorageError) as refused:
        require_conditional_create("GS://bkt/x")
    assert str(refused.value) == (
        "GS://bkt/x: no store of GS:// is known to create a file only if it is absent, which is "
        "needed here; choose a folder or file://, mine://, s3://, s3a://"
    )


def test_a_scheme_can_be_added_and_is_imported_when_asked_for() -> None:
    register_scheme("mine", "sparklog.storage_backends.memory:open_url")
    register_scheme("broken", "sparklog_no_such_module:open_url")
    assert open_backend("mine://disk").url == "memory://disk"
    with pytest.raises(StorageError, match=r"broken:// needs a package that is missing: .*no_such"):
        open_backend("broken://x")
    with pytest.raises(StorageError, match="expected a scheme and 'module:function'"):
        register_scheme("wrong", "module.function")


def test_a_backend_is_imported_only_when_its_scheme_is_asked_for() -> None:
    script = (
        "import sys; from sparklog.storage_backends.registry import open_backend;"
        "open_backend('/data');"
        "print([n for n in ('memory', 'local') if f'sparklog.storage_backends.{n}' in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "['local']\n"
