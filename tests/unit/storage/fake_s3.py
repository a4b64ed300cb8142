"""A small S3 server, which can answer as other S3 servers do, or as no server should.

Owns: objects in a dictionary behind HTTP, and faults.  Must not know its clients.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

from sparklog.storage_backends.signed_writes import checksum_of

CONFLICT = (409, "ConditionalRequestConflict")
CHECKSUM_ALGORITHM = "x-amz-checksum-algorithm"
CHECKSUM = "x-amz-checksum-crc32c"
METADATA_PREFIX = "x-amz-meta-"


class FakeS3:
    """The server's objects and faults.

    ``answers`` are the responses to the next writes, which are not done.  ``loses_replies`` PUTs
    are done, but the connection breaks before the response.  ``ignores_condition`` behaves as
    stores that are older than conditional writes.  ``refuses`` are methods that are not allowed,
    PUT only by signed URLs.  ``knows_checksums``: uploads in parts may have checksums;
    ``tells_checksums``: answers have those that were checked.  ``completion_s``: the seconds that
    the completion of an upload takes.  ``loses_completions`` completions are done, but the
    connection breaks before the response.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: The parts of unfinished uploads; the id of an upload is the path of its object.
        self.uploads: dict[str, dict[int, bytes]] = {}
        #: The metadata (headers) of objects, and of unfinished uploads.
        self.metadata: dict[str, Mapping[str, str]] = {}
        self.uploads_metadata: dict[str, Mapping[str, str]] = {}
        #: Method, path and range of all requests.
        self.requests: list[tuple[str, str, str]] = []
        self.refuses: set[str] = set()
        #: Objects that a request for many does not delete.
        self.kept: set[str] = set()
        self.answers: list[tuple[int, str]] = []
        self.loses_replies = self.loses_completions = 0
        self.completion_s = 0.0
        self.ignores_condition = False
        self.knows_checksums = self.tells_checksums = True
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
            self.metadata.pop(key, None)
            return 200, ""

    def part(self, upload: str, number: int, data: bytes) -> tuple[int, str]:
        with self.guard:
            if self.answers:
                return self.answers.pop(0)
            if upload not in self.uploads:
                return 404, "NoSuchUpload"
            self.uploads[upload][number] = data
            return 200, ""

    def complete(self, upload: str) -> tuple[int, str]:
        if self.answers:
            return self.answers.pop(0)
        time.sleep(self.completion_s)
        with self.guard:
            parts = self.uploads.pop(upload, None)
            if parts is None:
                return 404, "NoSuchUpload"
            self.objects[upload] = b"".join(data for _, data in sorted(parts.items()))
            self.metadata[upload] = self.uploads_metadata.pop(upload, {})
            return 200, ""

    def delete_many(self, bucket: str, request: bytes) -> bytes:
        keys = [each.text or "" for each in ElementTree.fromstring(request).iter() if each.text]
        keys = [key for key in keys if key != "true"]  # the flag Quiet
        for key in set(keys) - self.kept:
            self.objects.pop(f"{bucket}/{key}", None)
        refused = "".join(
            f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            for key in keys
            if key in self.kept
        )
        return f"<DeleteResult>{refused}</DeleteResult>".encode()

    def loses_reply(self) -> bool:
        with self.guard:
            self.loses_replies -= 1
            return self.loses_replies >= 0

    def loses_completion(self) -> bool:
        with self.guard:
            self.loses_completions -= 1
            return self.loses_completions >= 0


@contextmanager
def serving(store: FakeS3) -> Iterator[FakeS3]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Handler", (Handler,), {"store": store}))
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers requests; a subclass has the self.store."""

    store: FakeS3
    protocol_version = "HTTP/1.1"

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            self.store.requests.append((self.command, self.path, self.headers.get("Range", "")))
        return parsed

    def do_PUT(self) -> None:
        data = self._body()
        key, query = self._target()
        if self._is_signed(query) and "PUT" in self.store.refuses:
            status, code = 403, "AccessDenied"
        elif self.headers.get(CHECKSUM, checksum_of(data)) != checksum_of(data):
            status, code = 400, "BadDigest"
        elif "partNumber" in query:
            status, code = self.store.part(key, int(query["partNumber"][0]), data)
        else:
            status, code = self.store.put(key, data, "If-None-Match" in self.headers)
        if status == 200 and self.store.loses_reply():
            self.close_connection = True
            return
        self._answer(status, code)

    def do_POST(self) -> None:
        data = self._body()
        key, query = self._target()
        if "delete" in query:
            self._answer(200, "", self.store.delete_many(key, data))
        elif "uploads" in query:
            if CHECKSUM_ALGORITHM in self.headers and not self.store.knows_checksums:
                self._answer(501, "NotImplemented")
                return
            self.store.uploads[key] = {}
            self.store.uploads_metadata[key] = {
                name: text
                for name, text in self.headers.items()
                if name.lower().startswith(METADATA_PREFIX)
            }
            answer = f"<UploadId>{key}</UploadId>"
            self._answer(200, "", f"<Result>{answer}</Result>".encode())
        else:
            status, code = self.store.complete(key)
            if status == 200 and self.store.loses_completion():
                self.close_connection = True
                return
            self._answer(status, code, b"<Result/>")

    def do_GET(self) -> None:
        key, query = self._target()
        data = self.store.objects.get(key)
        if "GET" in self.store.refuses:
            self._answer(403, "AccessDenied")
        elif "uploads" in query:
            self._answer(200, "", self._listed_uploads(key, query["prefix"][0]))
        elif "list-type" in query:
            self._answer(200, "", self._listed(key, query))
        elif data is None:
            self._answer(404, "NoSuchKey")
        elif "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            self._answer(206, "", data[int(first) : int(last) + 1])
        else:
            self._answer(200, "", data)

    def do_HEAD(self) -> None:
        found = self.path in self.store.objects
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(self.store.objects.get(self.path, b""))))
        for name, text in self.store.metadata.get(self.path, {}).items():
            self.send_header(name, text)
        self.end_headers()

    def do_DELETE(self) -> None:
        key, query = self._target()
        if "DELETE" in self.store.refuses:
            self._answer(403, "AccessDenied")
            return
        (self.store.uploads if "uploadId" in query else self.store.objects).pop(key, None)
        self._answer(204, "")

    @staticmethod
    def _is_signed(query: dict[str, list[str]]) -> bool:
        """Whether a signed URL has all that is needed for a write."""
        return CHECKSUM in query.get("X-Amz-SignedHeaders", [""])[0].split(";")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _target(self) -> tuple[str, dict[str, list[str]]]:
        path, _, query = self.path.partition("?")
        return path, parse_qs(query, keep_blank_values=True)

    def _listed(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        start = f"{bucket}/{query.get('prefix', [''])[0]}"
        delimiter = query.get("delimiter", [""])[0]
        found: dict[str, None] = {}
        for path in sorted(map(unquote, self.store.objects)):
            if path.startswith(start):
                name, cut, _ = path[len(start) :].partition(delimiter or "\0")
                key = (start + name).removeprefix(f"{bucket}/")
                common = f"<CommonPrefixes><Prefix>{key}{cut}</Prefix></CommonPrefixes>"
                found[common if cut else f"<Contents><Key>{key}</Key></Contents>"] = None
        return f"<ListBucketResult>{''.join(found)}</ListBucketResult>".encode()

    def _listed_uploads(self, bucket: str, prefix: str) -> bytes:
        keys = [upload.removeprefix(f"{bucket}/") for upload in self.store.uploads]
        found = "".join(
            f"<Upload><Key>{key}</Key><UploadId>{bucket}/{key}</UploadId></Upload>"
            for key in keys
            if key.startswith(prefix)
        )
        return f"<Result>{found}</Result>".encode()

    def _answer(self, status: int, code: str, body: bytes = b"") -> None:
        if code:  # without the element that names the condition, as MinIO does
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        if CHECKSUM in self.headers and self.store.tells_checksums:
            self.send_header(CHECKSUM, self.headers[CHECKSUM])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
