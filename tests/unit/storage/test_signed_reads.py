"""Reads by signed URLs: what plain HTTP cannot read is read by the store."""

from collections.abc import Iterator

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends.base import MissingPathError
from sparklog.storage_backends.library_pause import LIBRARY_S
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.signed_reads import (
    SIGNED_S,
    TRIES,
    USED_S,
    SignedReads,
)
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
        self.target = memoryview(bytearray(20))
        self.reads = SignedReads(self.store, clock_s=lambda: self.now_s)

    def read(self, path: str = "a") -> None:
        """Read, and check the bytes."""
        assert self.reads.read_into(path, 10, self.target) == 20
        assert self.target == DATA[10:30]


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


@pytest.mark.parametrize("fault", [500, TRUNCATE, HANG_UP])
def test_a_fault_that_passes_at_once_is_not_seen(case: Case, fault: int) -> None:
    """Such as a kept connection that the server has closed."""
    case.read()
    case.server.faults.append(fault)
    case.read()
    assert (case.store.reads, len(case.server.asked)) == ([], 3)


def test_a_url_that_is_refused_is_signed_again(case: Case) -> None:
    case.read()
    case.server.signature += 1
    case.read()
    assert (case.store.reads, len(case.store.signed)) == ([], 2)


@pytest.mark.parametrize("fault", [403, 500, TRUNCATE, HANG_UP])
def test_what_http_does_not_read_the_store_reads_for_a_while(case: Case, fault: int) -> None:
    case.read()
    for pause_s in (LIBRARY_S[0], 2 * LIBRARY_S[0]):
        case.store.reads.clear()
        case.server.asked.clear()
        case.server.faults.extend([fault] * TRIES)
        case.read()
        case.read("b")
        assert (case.store.reads, len(case.server.asked)) == (["a", "b"], TRIES)
        case.now_s += pause_s
    case.read()
    assert case.store.reads == ["a", "b"]


def test_an_answer_that_is_too_short_is_none(case: Case) -> None:
    case.server.objects["a"] = DATA[:15]
    case.read()
    assert case.store.reads == ["a"]


def test_errors_are_those_of_the_store(case: Case) -> None:
    with pytest.raises(MissingPathError):
        case.reads.read_into("gone", 0, case.target)
    case.store.reads.clear()
    case.read()
    assert case.store.reads == [], "what neither can read is no reason to prefer the store"


def test_a_store_without_urls_reads_itself(case: Case) -> None:
    case.store.has_urls = False
    case.read()
    case.store.error = StorageError("there are no credentials")
    case.read()
    assert (case.store.reads, case.server.asked) == (["a", "a"], [])
