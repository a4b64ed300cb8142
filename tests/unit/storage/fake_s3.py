"""A small S3 server, which can answer as other S3 servers do, or as no server should.

Owns: objects in a dictionary behind HTTP, and faults.  Must not know its clients.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFLICT = (409, "ConditionalRequestConflict")


class FakeS3:
    """The server's objects and faults.

    ``answers`` are the responses to the next PUTs, which are not done.  ``loses_replies`` PUTs are
    done, but the connection breaks before the response.  ``ignores_condition`` behaves as stores
    that are older than conditional writes.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.answers: list[tuple[int, str]] = []
        self.loses_replies = 0
        self.ignores_condition = False
        self.puts = 0
        self.guard = threading.Lock()
        self.port = 0

    @property
    def options(self) -> dict[str, Any]:
        return {"endpoint_url": f"http://127.0.0.1:{self.port}", "key": "k", "secret": "s"}

    def put(self, key: str, data: bytes, conditional: bool) -> tuple[int, str]:
        with self.guard:
            self.puts += 1
            if self.answers:
                return self.answers.pop(0)
            if conditional and not self.ignores_condition and key in self.objects:
                return 412, "PreconditionFailed"
            self.objects[key] = data
            return 200, ""

    def loses_reply(self) -> bool:
        with self.guard:
            self.loses_replies -= 1
            return self.loses_replies >= 0


@contextmanager
def serving(store: FakeS3) -> Iterator[FakeS3]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(store: FakeS3) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status, code = store.put(self.path, data, "If-None-Match" in self.headers)
            if status == 200 and store.loses_reply():
                self.close_connection = True
                return
            self._answer(status, code)

        def do_GET(self) -> None:
            data = store.objects.get(self.path)
            if self.path.partition("?")[2].startswith("list-type"):
                self._answer(200, "", b"<ListBucketResult/>")
            elif data is None:
                self._answer(404, "NoSuchKey")
            else:
                self._answer(200, "", data)

        def do_HEAD(self) -> None:
            found = self.path in store.objects
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(store.objects.get(self.path, b""))))
            self.end_headers()

        def do_DELETE(self) -> None:
            store.objects.pop(self.path, None)
            self._answer(204, "")

        def _answer(self, status: int, code: str, body: bytes = b"") -> None:
            if code:  # without the element that names the condition, as MinIO does
                body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
