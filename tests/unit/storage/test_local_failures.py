"""Failures of local files: full disks, too large files, locks of other processes, wrong paths."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.errors import LockedError, StorageError
from sparklog.storage_backends.base import MissingPathError, RefusedDeletesError, storage_error
from sparklog.storage_backends.local import LocalBackend

#: Limits files to 4096 bytes, as on a disk that becomes full during a write.
LIMITED = """
import os, resource, sys
from sparklog.errors import StorageError
from sparklog.storage_backends.local import LocalBackend
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
backend = LocalBackend(sys.argv[1])
handle = backend.open("segment", create=True)
handle.writev([b"a" * 3000])

def refused(write):
    try:
        write()
    except StorageError as error:
        assert "size limit; raise `ulimit -f`" in str(error), error
    else:
        raise AssertionError("was not refused")

refused(lambda: handle.writev([b"b" * 500] * 10))
assert (handle.size(), os.path.getsize(handle.path)) == (3000, 3000)
handle.writev([b"c" * 96, b"d" * 1000])
refused(lambda: handle.writev([b"e"]))
assert handle.read(2999, 5000) == b"a" + b"c" * 96 + b"d" * 1000

backend.append("log", b"f" * 4000)
refused(lambda: backend.append("log", b"g" * 200))
refused(lambda: backend.append("new", b"h" * 5000))
backend.put("state", b"old")
refused(lambda: backend.put("state", b"i" * 5000))
refused(lambda: backend.put_if_absent("commit", b"j" * 5000))
refused(lambda: backend.upload("state", [b"j" * 3000, b"k" * 2000]))
index = backend.open("index", create=True)
refused(lambda: index.map(8192))
assert backend.read("log") == b"f" * 4000
assert backend.read("state") == b"old"
assert sorted(os.listdir(sys.argv[1])) == ["index", "log", "segment", "state"]
print("ok")
"""

HOLDER = """
import sys
from sparklog.storage_backends.local import LocalBackend
lock = LocalBackend(sys.argv[1]).lock("broker-1/.lock")
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_write_that_fails_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok\n", "")


def test_a_full_device_is_named_with_a_remedy() -> None:
    handle = LocalBackend("/dev").open("full")
    with pytest.raises(StorageError, match="cannot write to /dev/full: the disk is full; free"):
        handle.writev([b"data"])
    assert handle.size() == 0
    handle.close()


def test_a_root_below_a_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    backend = LocalBackend(tmp_path / "file" / "data")
    named = r"file/data.*: a part of the path is a file, not a folder; choose another path"
    for attempt in (
        lambda: backend.make_folder(""),
        lambda: backend.put("x", b""),
        lambda: backend.put_if_absent("x", b""),
        lambda: backend.append("x", b""),
        lambda: backend.open("x", create=True),
        lambda: backend.lock("x"),
    ):
        with pytest.raises(StorageError, match=named):
            attempt()
    assert (backend.list(""), backend.exists("x")) == ([], False)


def test_what_cannot_be_looked_at_is_not_taken_for_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    backend = LocalBackend(tmp_path)
    for look in (backend.exists, backend.is_folder):
        with pytest.raises(StorageError, match=r"cannot look up .*/loop/broker-1"):
            look("loop/broker-1")


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.EROFS, StorageError, "the file system is read-only; mount it writable or"),
        (errno.EACCES, StorageError, "permission denied; give this user access or choose"),
        (errno.ENOENT, MissingPathError, "it does not exist; check the path"),
        (errno.EMFILE, StorageError, "too many open files in this process; raise `ulimit -n`"),
        (errno.ELOOP, StorageError, os.strerror(errno.ELOOP)),
    ],
)
def test_every_failure_names_path_and_remedy(code: int, kind: type, message: str) -> None:
    error = storage_error("write to", "/data/log", OSError(code, os.strerror(code)))
    assert type(error) is kind
    assert str(error).startswith(f"cannot write to /data/log: {message}")


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    backend.make_folder("broker-1")
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(LockedError) as caught:
                backend.lock("broker-1/.lock")
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait(timeout=30)
    assert f"{tmp_path}/broker-1 is in use by process {holder.pid} on " in str(caught.value)
    backend.lock("broker-1/.lock").release()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY])
def test_files_behind_those_that_are_not_deleted_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The error crosses the pipe from the process that talks to the remote_dir."""
    fail_deletes(monkeypatch, ("1", "3"), number)
    backend = LocalBackend(tmp_path)
    for name in "12345":
        backend.put(name, b"")
    error = rf"^cannot delete {tmp_path}/1: .* \(and 1 more files were not deleted\)$"
    with pytest.raises(RefusedDeletesError, match=error) as caught:
        backend.delete_many("12345")
    assert backend.list("") == ["1", "3"]
    received = pickle.loads(pickle.dumps(caught.value))
    assert (str(received), received.paths) == (str(caught.value), {"1", "3"})


def test_a_disk_that_fails_is_not_asked_for_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_deletes(monkeypatch, ("1",), errno.EIO)
    backend = LocalBackend(tmp_path)
    for name in "12":
        backend.put(name, b"")
    with pytest.raises(StorageError, match="the device failed") as caught:
        backend.delete_many("12")
    assert not isinstance(caught.value, RefusedDeletesError)
    assert backend.list("") == ["1", "2"]


def fail_deletes(monkeypatch: pytest.MonkeyPatch, refused: Collection[str], number: int) -> None:
    unlink = os.unlink

    def unlink_others(path: str) -> None:
        if os.path.basename(path) in refused:
            raise OSError(number, "")
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlink_others)


def test_a_descriptor_is_closed_only_after_its_last_region_let_go(tmp_path: Path) -> None:
    handle = LocalBackend(tmp_path).open("log", create=True)
    handle.writev([b"data"])
    region = handle.region(0, 4)
    number, file = region.descriptor()[0], (tmp_path / "log").stat().st_ino
    handle.close()
    assert os.fstat(number).st_ino == file
    region.release()
    with suppress(OSError):  # somebody else may have been given the number at once
        assert os.fstat(number).st_ino != file
