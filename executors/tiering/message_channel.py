"""Calls to the process for the remote_dir, over two pipes.

Owns: the numbers of calls, the bytes that wait to be written, and which answer is for whom.  Must
not know what a call does, or how the process is started.
"""

import asyncio
import fcntl
import itertools
import os
from collections import deque
from contextlib import suppress
from typing import Any, Final

from sparklog.errors import StorageError
from sparklog.executors.tiering.messages import Answer, Call, MessageDecoder, encode_message
from sparklog.remote_log.chunk_cache import ChunkCacheCounters

#: Bytes that a pipe holds.
_PIPE_BYTES: Final = 1024 * 1024
#: Reads in one turn of the event loop.
_READS_AT_ONCE: Final = 8


class MessageChannel:
    """The pipes of one process.  Everything runs on the event loop; nothing blocks.

    ``close`` ends it; the descriptors belong to the caller.  ``cache``: what the process's cache
    had done when it last answered.
    """

    def __init__(self, input_descriptor: int, output_descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._input, self._output = input_descriptor, output_descriptor
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)
            with suppress(OSError, AttributeError):  # Linux only, and within the user's limit
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unsent: deque[memoryview] = deque()
        self._decoder = MessageDecoder()
        self._error: StorageError | None = None
        self.cache = ChunkCacheCounters()
        self._loop.add_reader(self._output, self._read)

    @property
    def is_open(self) -> bool:
        return self._error is None

    @property
    def waiting(self) -> int:
        """The number of calls without an answer."""
        return len(self._waiting)

    def call(self, method: str, *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        """Send a call; the future has its result or its exception.

        Cancelling the future only forgets the call.  Raises StorageError after the end of the
        channel; the future has the same error if the end comes first.
        """
        if self._error is not None:
            raise StorageError(str(self._error))
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._unsent.append(memoryview(encode_message(Call(number, method, args, kwargs))))
        if len(self._unsent) == 1:
            self._write()
        return future

    def close(self, reason: str = "it was closed") -> None:
        """Fail all calls without an answer.  May be called twice."""
        if self._error is not None:
            return
        self._error = StorageError(f"the process for the remote_dir does not answer: {reason}")
        self._loop.remove_reader(self._output)
        self._loop.remove_writer(self._input)
        self._unsent.clear()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(StorageError(str(self._error)))

    def _write(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            try:
                sent = os.write(self._input, first)
            except BlockingIOError:
                self._loop.add_writer(self._input, self._write)
                return
            except OSError as error:
                self.close(error.strerror or str(error))
                return
            if sent == len(first):
                self._unsent.popleft()
            else:
                self._unsent[0] = first[sent:]
        self._loop.remove_writer(self._input)

    def _read(self) -> None:
        try:
            for _ in range(_READS_AT_ONCE):
                size = os.readv(self._output, [self._decoder.room()])
                if not size:
                    self.close("it has ended")
                    return
                answer = self._decoder.received(size)
                if answer is not None:
                    self._answered(answer)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))
        except Exception as error:
            self.close(f"it said something else than an answer ({error!r})")

    def _answered(self, answer: Answer) -> None:
        self.cache = answer.cache
        future = self._waiting.get(answer.number)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.result)
