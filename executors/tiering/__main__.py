"""``python -m sparklog.executors.tiering``: the remote logs of one broker, as a process.

The process reads one JSON line from stdin: ``remote_dir``, its ``options``, ``cluster_id``,
``cache_dir`` and ``cache_bytes``.  It answers with a JSON line that it is ready, or why not.  After
that it takes calls and gives answers (``messages``), until the end of its input.  It logs to stderr
and dies with the broker.

Copies are made one after the other.  Other calls have threads of their own, so nobody who reads
waits for a copy.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO, Final

from sparklog.errors import SparklogError
from sparklog.executors.tiering.messages import Answer, Call, MessageDecoder, encode_message
from sparklog.process import die_with_parent
from sparklog.rate_throttle import RateThrottle
from sparklog.remote_log.chunk_cache import ChunkCache
from sparklog.remote_log.copy_job import CopyJob
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.service import RemoteLogService
from sparklog.runtime_environment import SYSTEM
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.registry import open_backend, open_file_half
from sparklog.storage_backends.signed_reads import SignedReads

#: The niceness: a broker's own work comes first.  See the cleaner's process.
_NICE: Final = 10
_THREADS: Final = 8
#: Bytes of one request to the store, which takes about 10 ms of CPU whatever it reads.
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_READ_AHEAD_CHUNKS: Final = 3

logger = logging.getLogger("sparklog.executors.tiering")


def main() -> int:
    die_with_parent()
    with suppress(OSError):
        os.nice(_NICE)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    config = json.loads(source.readline())
    with ThreadPoolExecutor(_THREADS, "remote") as threads, ThreadPoolExecutor(1) as copies:
        try:
            service, cache = _open(config, threads.submit)
        except SparklogError as error:
            _say(sink, {"ready": False, "error": str(error), "kind": "storage"})
            return 1
        _say(sink, {"ready": True})
        _serve(service, cache, source, sink, threads, copies)
        threads.shutdown(cancel_futures=True)
        copies.shutdown(cancel_futures=True)
    return 0


def _open(
    config: dict[str, Any], submit: Callable[..., object]
) -> tuple[RemoteLogService, ChunkCache | None]:
    """The service and its cache."""
    remote = open_backend(config["remote_dir"], config["options"])
    cached: dict[str, Any] = {}
    cache: ChunkCache | None = None
    if not isinstance(remote, FileHalf):  # a folder is as near as a cache
        cache_dir = open_backend(config["cache_dir"])
        cache = ChunkCache(
            cache_dir,
            SignedReads(remote).read_into,
            submit,
            bytes_max=config["cache_bytes"],
            chunk_bytes=_CHUNK_BYTES,
            read_ahead_chunks_max=_READ_AHEAD_CHUNKS,
        )
        cached |= {
            "read": cache.read,
            "read_once": cache.read_once,
            "find_pieces": cache.pieces,
        }
    service = RemoteLogService(
        remote,
        open_file_half,
        **cached,
        moved=_Throttle(),
        new_lock=threading.Lock,
        clock_ms=SYSTEM.wall_ms,
    )
    service.owner.check(config["cluster_id"])
    return service, cache


class _Throttle:
    """Holds each copy to its rate."""

    def __init__(self) -> None:
        self._job: CopyJob | None = None
        self._throttle: RateThrottle

    def __call__(self, job: CopyJob, size: int) -> None:
        if self._job is not job:
            self._job = job
            self._throttle = RateThrottle(
                job.bytes_per_second,
                burst_s=job.burst_s,
                clock_s=time.monotonic,
                sleep_s=time.sleep,
            )
        self._throttle(size)


def _say(sink: BinaryIO, line: dict[str, Any]) -> None:
    sink.write(json.dumps(line).encode() + b"\n")
    sink.flush()


def _serve(
    service: RemoteLogService,
    cache: ChunkCache | None,
    source: BinaryIO,
    sink: BinaryIO,
    threads: ThreadPoolExecutor,
    copies: ThreadPoolExecutor,
) -> None:
    writing = threading.Lock()

    def answer(call: Call) -> None:
        found = answer_call(service, cache, call)
        data = encode_message(found)
        with writing:
            sink.write(data)
            sink.flush()

    decoder = MessageDecoder()
    while size := os.readv(source.fileno(), [decoder.room()]):
        call = decoder.received(size)
        if call is not None:
            (copies if call.method == "copy" else threads).submit(answer, call)


def answer_call(service: RemoteLogService, cache: ChunkCache | None, call: Call) -> Answer:
    """The answer to a call.

    What seems damaged may be so in the cache only, so it is read from the bucket once more: the
    error for the bucket's objects is one that clients report to applications.
    """
    found = _answer(service, call)
    if cache is None:
        return found
    for is_last in (False, True):
        if isinstance(found.error, DamagedObjectError):
            cache.forget(found.error.path)
            found = found if is_last else _answer(service, call)
    return found._replace(cache=cache.counters())


def _answer(service: RemoteLogService, call: Call) -> Answer:
    try:
        result = getattr(service, call.method)(*call.args, **call.kwargs)
    except SparklogError as error:
        return Answer(call.number, None, error)
    except Exception as error:
        logger.exception("the call %s failed", call.method)
        return Answer(call.number, None, SparklogError(f"{type(error).__name__}: {error}"))
    return Answer(call.number, result)


if __name__ == "__main__":
    sys.exit(main())
