"""Reads by signed URLs: what plain HTTP cannot read is read by the store."""

from collections.abc import Iterator

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends.base import MissingPathError
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.signed_reads import LIBRARY_S, SIGNED_S, USED_S, SignedReads
from tests.support.range_server import HANG_UP, TRUNCATE, RangeServer, range_server

DATA = bytes(range(256)) * 4


class SignedStore(MemoryBackend):
    """A store in memory whose objects a server has, too."""

    def __init__(self, server: RangeServer) -> None:
        super().__init__()
        self.server = server
        self.signed: list[tuple[str, int]] = []
        self.reads: list[str] = []
        self.has_urls = True
        self.error: StorageError | None = None

    def presign(self, path: str, seconds: int) -> str | None:
        if self.error is not None:
            raise self.error
        self.signed.append((path, seconds))
        return self.server.url(path) if self.has_urls else None

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        self.reads.append(path)
        return super().read(path, offset, size)


class Case:
    def __init__(self, server: RangeServer) -> None:
        self.server = server
        self.now_s = 1_000.0
        self.store = SignedStore(server)
        for path in ("a", "b"):
            server.objects[path] = DATA
            self.store.put(path, DATA)
        self.reads = SignedReads(self.store, clock_s=lambda: self.now_s)

    def read(self, path: str = "a") -> None:
        """Read, and check the bytes."""
        assert self.reads.read(path, 10, 20) == DATA[10:30]


@pytest.fixture
def case() -> Iterator[Case]:
    with range_server() as server:
        yield Case(server)


def test_a_url_is_signed_once_and_again_long_before_it_expires(case: Case) -> None:
    for path in ("a", "b", "a"):
        case.read(path)
    assert case.store.signed == [("a", SIGNED_S), ("b", SIGNED_S)]
    case.now_s += USED_S
    case.read()
    assert case.store.signed[2:] == [("a", SIGNED_S)]
    assert (case.store.reads, len(case.server.asked)) == ([], 4)


@pytest.mark.parametrize("fault", [403, 500, TRUNCATE, HANG_UP])
def test_what_http_does_not_read_the_store_reads(case: Case, fault: int) -> None:
    case.read()
    case.server.faults.append(fault)
    case.read()
    assert (case.store.reads, len(case.server.asked)) == (["a"], 2)
    case.read("b")  # the store reads for a while
    assert (case.store.reads, len(case.server.asked)) == (["a", "b"], 2)
    case.now_s += LIBRARY_S
    case.read()
    assert (case.store.reads, len(case.server.asked)) == (["a", "b"], 3)
    assert case.store.signed == [("a", SIGNED_S), ("a", SIGNED_S)]  # a new URL after the fault


def test_errors_are_those_of_the_store(case: Case) -> None:
    with pytest.raises(MissingPathError):
        case.reads.read("gone", 0, 5)
    case.read()
    assert len(case.server.asked) == 2, "what neither can read is no reason to prefer the store"


def test_a_store_without_urls_reads_itself(case: Case) -> None:
    case.store.has_urls = False
    case.read()
    case.store.error = StorageError("there are no credentials")
    case.read()
    assert (case.store.reads, case.server.asked) == (["a", "a"], [])
