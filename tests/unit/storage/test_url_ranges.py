"""Ranges by URL, from an HTTP server that answers as stores do, and as they should not."""

import socket
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends.base import MissingPathError
from sparklog.storage_backends.url_ranges import (
    TRIES,
    UNREACHABLE_SECONDS,
    RefusedUrlError,
    UnreachableHosts,
    UrlRanges,
)
from tests.support.free_ports import free_ports
from tests.support.range_server import (
    HANG_UP,
    TRUNCATE,
    WHOLE,
    WRONG_RANGE,
    Asked,
    RangeServer,
    range_server,
)

DATA = bytes(range(256)) * 4


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with range_server() as found:
        found.objects["a/b.log"] = DATA
        yield found


def read(ranges: UrlRanges, url: str, offset: int, size: int) -> bytes:
    target = memoryview(bytearray(size))
    return bytes(target[: ranges.read_into(url, offset, target)])


@pytest.fixture
def ranges() -> Iterator[UrlRanges]:
    found = UrlRanges(pause_seconds=0)
    yield found
    found.close()


def test_a_range_is_read_and_counted(server: RangeServer, ranges: UrlRanges) -> None:
    url = server.url("a/b.log")
    assert read(ranges, url, 10, 20) == DATA[10:30]
    assert read(ranges, url, 1000, 100) == DATA[1000:]
    assert read(ranges, url, len(DATA), 5) == b""
    assert read(ranges, url, 0, len(DATA)) == DATA
    assert server.asked == [
        Asked("a/b.log", offset, size)
        for offset, size in ((10, 20), (1000, 100), (1024, 5), (0, 1024))
    ]
    assert (ranges.requests, ranges.bytes_read) == (4, 20 + 24 + 1024)


@pytest.mark.parametrize("fault", [500, 503, 429, TRUNCATE, HANG_UP])
def test_a_fault_that_passes_is_not_seen(
    server: RangeServer, ranges: UrlRanges, fault: int
) -> None:
    read(ranges, server.url("a/b.log"), 0, 1)  # the connection is reused
    server.faults.extend([fault] * (TRIES - 1))
    assert read(ranges, server.url("a/b.log"), 10, 20) == DATA[10:30]
    assert ranges.requests == 1 + TRIES


@pytest.mark.parametrize("fault", [500, TRUNCATE, HANG_UP])
def test_a_fault_that_stays_is_an_error(server: RangeServer, ranges: UrlRanges, fault: int) -> None:
    server.faults.extend([fault] * TRIES)
    with pytest.raises(StorageError, match=f"cannot read http://127.0.0.1:{server.port}/a/b.log: "):
        read(ranges, server.url("a/b.log"), 10, 20)
    assert len(server.asked) == TRIES
    assert read(ranges, server.url("a/b.log"), 10, 20) == DATA[10:30]


@pytest.mark.parametrize("fault", [429, 500, 503])
def test_a_busy_store_is_waited_for(server: RangeServer, fault: int) -> None:
    pauses: list[float] = []
    random = iter([0.0, 0.5, 1.0, 0.0] * 2)
    ranges = UrlRanges(
        pause_seconds=0,
        busy_pauses_s=(1, 2, 4, 8),
        sleep_s=pauses.append,
        jitter=lambda: next(random),
    )
    url = server.url("a/b.log")
    server.faults.extend([fault, HANG_UP, fault, fault, fault])
    assert read(ranges, url, 10, 20) == DATA[10:30]
    assert pauses == [0.5, 0, 1.5, 4, 4]
    del server.asked[:], pauses[:]
    server.faults.extend([fault] * 5)
    with pytest.raises(StorageError, match=f"the store answers {fault}"):
        read(ranges, url, 10, 20)
    assert (len(server.asked), pauses) == (5, [0.5, 1.5, 4, 4])
    assert not server.faults
    ranges.close()


@pytest.mark.parametrize("fault", [400, 401, 403, 404, 410])
def test_a_refused_url_is_not_tried_again(
    server: RangeServer, ranges: UrlRanges, fault: int
) -> None:
    server.faults.append(fault)
    with pytest.raises(RefusedUrlError, match=rf"/a/b.log: the store answers {fault} "):
        read(ranges, server.url("a/b.log"), 10, 20)
    assert len(server.asked) == 1
    assert read(ranges, server.url("a/b.log"), 10, 20) == DATA[10:30]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            b"<Error><Code>AccessDenied</Code><Message>Request has expired.</Message></Error>",
            " (AccessDenied: Request has expired.)",
        ),
        (b"<Code>SignatureDoesNotMatch</Code><Message>of ?signature=1</Message>",
         " (SignatureDoesNotMatch)"),
        (b"<html>Forbidden</html>", ""),
        (b"\xff" * 100_000 + b"<Code>TooLate</Code>", ""),
        (b"", ""),
    ],
)  # fmt: skip
def test_a_refusal_says_why(
    server: RangeServer, ranges: UrlRanges, refusal: bytes, said: str
) -> None:
    url = server.url("a/b.log")
    server.signature, server.refusal = 2, refusal
    with pytest.raises(RefusedUrlError) as refused:
        ranges.read_into(url, 0, memoryview(bytearray(5)))
    assert str(refused.value).endswith(f"/a/b.log: the store answers 403 Forbidden{said}")


def test_no_error_shows_the_signature(server: RangeServer, ranges: UrlRanges) -> None:
    url = server.url("a/b.log")
    server.signature = 2
    with pytest.raises(RefusedUrlError) as refused:
        read(ranges, url, 0, 1)
    server.faults.extend([HANG_UP] * TRIES)
    with pytest.raises(StorageError) as broken:
        read(ranges, url, 0, 1)
    assert "signature=" not in f"{refused.value} {broken.value} {broken.value.__cause__}"


def test_the_error_for_a_malformed_url_does_not_show_the_signature(
    server: RangeServer, ranges: UrlRanges
) -> None:
    url = server.url("a/b.log")
    with pytest.raises(StorageError, match=r"/a/b\.log: the URL is malformed") as refused:
        read(ranges, f"{url} ", 0, 1)
    assert "signature=" not in "".join(traceback.format_exception(refused.value))
    assert read(ranges, url, 10, 20) == DATA[10:30]


@pytest.mark.parametrize("fault", [WHOLE, WRONG_RANGE])
def test_other_bytes_than_asked_for_are_an_error(
    server: RangeServer, ranges: UrlRanges, fault: int
) -> None:
    server.faults.append(fault)
    with pytest.raises(StorageError, match="the store does not serve ranges"):
        read(ranges, server.url("a/b.log"), 10, 20)
    assert read(ranges, server.url("a/b.log"), 10, 20) == DATA[10:30]


def test_a_whole_object_is_right_where_it_was_asked_for(
    server: RangeServer, ranges: UrlRanges
) -> None:
    server.faults.append(WHOLE)
    assert read(ranges, server.url("a/b.log"), 0, 2000) == DATA


def test_a_redirection_is_not_followed(server: RangeServer, ranges: UrlRanges) -> None:
    server.faults.append(307)
    with pytest.raises(StorageError, match="the store answers 307"):
        read(ranges, server.url("a/b.log"), 10, 20)


def test_a_store_that_is_away_is_an_error(ranges: UrlRanges) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StorageError, match=f"cannot read http://127.0.0.1:{port}/x"):
        read(ranges, f"http://127.0.0.1:{port}/x?key=1", 0, 1)


def test_a_file_is_read_where_this_process_sees_it(tmp_path: Path, ranges: UrlRanges) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "1.log").write_bytes(DATA)
    url = (folder / "1.log").as_uri()
    assert read(ranges, url, 10, 20) == DATA[10:30]
    assert read(ranges, url, 2000, 20) == b""
    with pytest.raises(MissingPathError):
        read(ranges, url.replace("1.log", "2.log"), 0, 1)
    assert ranges.requests == 0


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://bucket/x", "/etc/passwd", "http:///x", ""])
def test_other_urls_are_refused(ranges: UrlRanges, url: str) -> None:
    with pytest.raises(StorageError, match="no URL of an object"):
        read(ranges, url, 0, 1)


@contextmanager
def silent_host() -> Iterator[str]:
    """The URL of an object on a host that answers no connection, as behind a firewall."""
    with socket.socket() as listening, ExitStack() as waiting:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        for _ in range(3):  # they fill the queue, so that the next one is dropped
            first = waiting.enter_context(socket.socket())
            first.setblocking(False)
            first.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}/a/b.log"


def test_a_host_that_does_not_answer_is_not_tried_again_for_a_while() -> None:
    now_s = 0.0
    unreachable = UnreachableHosts(lambda: now_s)

    def error(**settings: Any) -> str:
        with closing(UrlRanges(pause_seconds=0, seconds_max=0.05, **settings)) as ranges:
            with pytest.raises(StorageError) as caught:
                read(ranges, url, 0, 1)
            return str(caught.value)

    with silent_host() as url:
        assert error(unreachable=unreachable).endswith("does not answer for 0.05 s")
        assert error(unreachable=unreachable).endswith("did not answer for 0.05 s before")
        now_s = UNREACHABLE_SECONDS
        assert error(unreachable=unreachable).endswith("does not answer for 0.05 s")
        assert "timed out" in error()  # those who share nothing try as often as always


def test_a_host_that_refuses_a_connection_is_tried_again(server: RangeServer) -> None:
    (port,) = free_ports(1)
    unreachable = UnreachableHosts()
    ranges = UrlRanges(pause_seconds=0, unreachable=unreachable)
    with closing(ranges), pytest.raises(StorageError, match="refused"):
        read(ranges, f"http://127.0.0.1:{port}/a/b.log", 0, 1)
    assert ("http", f"127.0.0.1:{port}") not in unreachable
