"""A data source finds the cluster that an ancestor process announced."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.dataframe import discovery, private_folder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr(private_folder, "_home", lambda _user: tmp_path / "home")
    return


def test_nothing_announced() -> None:
    assert discovery.find_bootstrap_servers() is None


def test_a_grandchild_finds_what_was_announced_until_it_is_withdrawn() -> None:
    code = "from sparklog.dataframe.discovery import *; print(find_bootstrap_servers())"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"

    def found() -> str:
        return subprocess.run(
            [sys.executable, "-c", child], check=True, capture_output=True, text=True
        ).stdout.strip()

    discovery.announce(os.getpid(), "h:1,h:2")
    assert found() == "h:1,h:2"
    discovery.withdraw(os.getpid(), "h:1,h:2")
    assert found() == "None"


def test_the_nearest_ancestor_wins() -> None:
    discovery.announce(os.getppid(), "far:1")
    assert discovery.find_bootstrap_servers() == "far:1"
    discovery.announce(os.getpid(), "near:1")
    assert discovery.find_bootstrap_servers() == "near:1"


def test_only_the_cluster_that_was_announced_last_is_withdrawn() -> None:
    discovery.announce(os.getpid(), "first:1")
    discovery.announce(os.getpid(), "second:1")
    discovery.withdraw(os.getpid(), "first:1")
    assert discovery.find_bootstrap_servers() == "second:1"
    discovery.withdraw(os.getpid(), "second:1")
    discovery.withdraw(os.getpid(), "second:1")
    assert discovery.find_bootstrap_servers() is None


def test_a_process_that_has_the_id_of_a_killed_driver_does_not_find_its_cluster() -> None:
    discovery.announce(os.getppid(), "far:1")
    discovery.announce(os.getpid(), "near:1")
    (file,) = Path(tempfile.gettempdir()).glob(f"sparklog-*/{os.getpid()}")
    file.write_text("near:1\nlong ago")
    assert discovery.find_bootstrap_servers() == "far:1"


def test_a_process_that_is_gone_is_not_announced() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    with pytest.raises(ProcessLookupError, match=str(gone.pid)):
        discovery.announce(gone.pid, "h:1")


# -- other users of this machine

STRANGER = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act for another user")


def shared_place() -> Path:
    return Path(tempfile.gettempdir()) / f"sparklog-{os.getuid()}"


def home_place(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".sparklog"


def announced_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def announcement(servers: str) -> str:
    process = discovery._process(os.getpid())
    assert process is not None
    return f"{servers}\n{process.start}"


def test_the_folder_and_its_files_are_for_this_user_alone() -> None:
    discovery.announce(os.getpid(), "ours:1")
    (file,) = shared_place().iterdir()
    modes = [stat.S_IMODE(path.lstat().st_mode) for path in (shared_place(), file)]
    assert modes == [0o700, 0o600]


def test_nothing_is_written_into_a_folder_behind_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    shared_place().symlink_to(target)
    discovery.announce(os.getpid(), "ours:1")
    assert announced_in(target) == []
    assert announced_in(home_place(tmp_path)) == [str(os.getpid())]
    assert discovery.find_bootstrap_servers() == "ours:1"
    discovery.withdraw(os.getpid(), "ours:1")
    assert discovery.find_bootstrap_servers() is None


def test_nothing_is_read_from_a_folder_behind_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / str(os.getpid())).write_text(announcement("theirs:1"))
    shared_place().symlink_to(target)
    assert discovery.find_bootstrap_servers() is None


@as_root
def test_a_folder_of_another_user_is_neither_written_to_nor_read(tmp_path: Path) -> None:
    shared_place().mkdir(mode=0o777)
    (shared_place() / str(os.getpid())).write_text(announcement("theirs:1"))
    os.chown(shared_place(), STRANGER, STRANGER)
    assert discovery.find_bootstrap_servers() is None
    discovery.announce(os.getpid(), "ours:1")
    assert (shared_place() / str(os.getpid())).read_text() == announcement("theirs:1")
    assert announced_in(home_place(tmp_path)) == [str(os.getpid())]
    assert discovery.find_bootstrap_servers() == "ours:1"


@as_root
def test_a_file_of_another_user_is_not_read() -> None:
    discovery.announce(os.getpid(), "theirs:1")
    os.chown(shared_place() / str(os.getpid()), STRANGER, STRANGER)
    assert discovery.find_bootstrap_servers() is None


def test_a_folder_that_others_may_write_to_is_not_read_until_it_was_mended() -> None:
    discovery.announce(os.getpid(), "theirs:1")
    shared_place().chmod(0o777)
    assert discovery.find_bootstrap_servers() is None
    discovery.announce(os.getpid(), "ours:1")
    assert stat.S_IMODE(shared_place().stat().st_mode) == 0o700
    assert discovery.find_bootstrap_servers() == "ours:1"


@pytest.mark.parametrize("planted", ["link", "pipe", "folder"])
def test_a_file_that_is_no_file_is_not_read_and_not_written_through(
    planted: str, tmp_path: Path
) -> None:
    discovery.announce(os.getppid(), "ours:1")
    other = tmp_path / "other"
    other.write_text(announcement("theirs:1"))
    for name in (str(os.getpid()), f".{os.getpid()}.{os.getpid()}"):
        place = shared_place() / name
        if planted == "link":
            place.symlink_to(other)
        elif planted == "pipe":
            os.mkfifo(place)
        elif name == str(os.getpid()):
            place.mkdir()
    assert discovery.find_bootstrap_servers() == "ours:1"
    if planted != "folder":
        discovery.announce(os.getpid(), "near:1")
        assert discovery.find_bootstrap_servers() == "near:1"
    assert other.read_text() == announcement("theirs:1")


def test_without_a_private_place_the_error_names_both(tmp_path: Path) -> None:
    shared_place().symlink_to(tmp_path)
    home_place(tmp_path).write_text("a file")
    with pytest.raises(PermissionError) as caught:
        discovery.announce(os.getpid(), "ours:1")
    assert str(shared_place()) in str(caught.value)
    assert str(home_place(tmp_path)) in str(caught.value)
