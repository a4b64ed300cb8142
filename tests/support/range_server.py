"""An HTTP server of objects for tests, as an object store serves signed URLs.

Owns: the ranges, and the faults that a test asks for.  Must not know what the objects hold.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple
from urllib.parse import urlsplit

#: Faults besides statuses: half of the bytes; the whole object; no answer; other bytes.
TRUNCATE: Final = -1
WHOLE: Final = -2
HANG_UP: Final = -3
WRONG_BYTES: Final = -4
WRONG_RANGE: Final = -5


class Asked(NamedTuple):
    """A request for a range."""

    path: str
    offset: int
    size: int


class RangeServer:
    """Objects by path.  Each of ``faults`` is what becomes of one request; 0 is no fault.  Each URL
    has a signature, which must be the present one."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: deque[int] = deque()
        self.asked: list[Asked] = []
        self.signature = 1
        #: The answer to other signatures.
        self.refusal = b"<Error>SignatureDoesNotMatch</Error>"
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}?signature={self.signature}"

    def answer(self, target: str, span: str) -> tuple[int, bytes, str]:
        """Status, body and Content-Range."""
        parts = urlsplit(target)
        path = parts.path.removeprefix("/")
        first, _, last = span.removeprefix("bytes=").partition("-")
        offset, end = int(first), int(last) + 1
        self.asked.append(Asked(path, offset, end - offset))
        fault = self.faults.popleft() if self.faults else 0
        if fault > 0:
            return fault, b"a fault", ""
        if parts.query != f"signature={self.signature}":
            return 403, self.refusal, ""
        if path not in self.objects:
            return 404, b"<Error>NoSuchKey</Error>", ""
        data = self.objects[path]
        if fault == WHOLE:
            return 200, data, ""
        if offset >= len(data):
            return 416, b"", f"bytes */{len(data)}"
        body = data[offset:end]
        if fault == WRONG_BYTES:
            body = bytes(each ^ 1 for each in body)
        at = offset + (fault == WRONG_RANGE)
        return 206, body, f"bytes {at}-{offset + len(body) - 1}/{len(data)}"


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """A server that runs while the context is open."""
    served = RangeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fault = served.faults[0] if served.faults else 0
            status, body, content_range = served.answer(self.path, self.headers["Range"])
            if fault == HANG_UP:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            if fault == TRUNCATE:
                body = body[: len(body) // 2]
                self.close_connection = True
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
