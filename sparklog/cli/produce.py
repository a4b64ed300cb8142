"""``sparklog produce``: records from the lines of stdin.

Owns: the command's options and output, and how stdin is read.  Must not know how records are sent.
"""

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    exit_code,
    fail,
    parse_bootstrap,
    print_json,
)
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32

if TYPE_CHECKING:
    from sparklog.client.producer import ProducerOptions

READ_BYTES = 64 * 1024
#: The default of ``socket.request.max.bytes``: no broker takes more bytes in one request.
LINE_BYTES_MAX = 100 * 1024 * 1024
#: The largest number of failed lines that ``--json`` names.
FAILED_LINES_MAX = 1_000


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Text between key and value.", metavar="TEXT"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, max=MAX_INT32)
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z")] = Codec.NONE,
    acks: Annotated[Acks, typer.Option(help="Whose acknowledgement counts.")] = Acks.ALL,
    create: Annotated[
        bool, typer.Option("--create/--no-create", help="Create the topic when it is missing.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write each line of stdin as one record.

    With a key separator a line without it is a value without key.
    """
    import asyncio

    if key_separator == "":
        raise typer.BadParameter("it is empty", param_hint="--key-separator")
    separator = None if key_separator is None else key_separator.encode()
    outcome = asyncio.run(
        _produce(bootstrap, topic, separator, partition, _options(compression, acks, create))
    )
    if as_json:
        counts = {"topic": topic, "produced": outcome.produced, "failed": len(outcome.failed)}
        lines = {"failed_lines": sorted(outcome.failed)[:FAILED_LINES_MAX]}
        print_json(counts | (lines if outcome.failed else {}))
    else:
        typer.echo(f"Produced {outcome.produced} of {outcome.sent} records to {topic}.")
    if outcome.failed:
        raise typer.Exit(fail(_first_failure(outcome.failed), exit_code(outcome.first_error)))


@dataclass(slots=True)
class _Outcome:
    """The outcome of a run.  ``failed`` has the errors by the line's number, from 1."""

    sent: int = 0
    failed: dict[int, BaseException] = field(default_factory=dict)

    @property
    def produced(self) -> int:
        return self.sent - len(self.failed)

    @property
    def first_error(self) -> BaseException:
        return self.failed[min(self.failed)]


def _first_failure(failed: dict[int, BaseException]) -> str:
    first = min(failed)
    others = f" ({len(failed) - 1} more lines failed)" if len(failed) > 1 else ""
    return f"line {first} of the input: {failed[first]}{others}"


def _options(compression: Codec, acks: Acks, create: bool) -> "ProducerOptions":
    from sparklog.client.producer import ProducerOptions
    from sparklog.types import Compression

    return ProducerOptions(
        acks=-1 if acks is Acks.ALL else int(acks),
        idempotent=acks is Acks.ALL,
        compression=Compression[compression.name],
        create_topics=create,
    )


async def _produce(
    bootstrap: str,
    topic: str,
    separator: bytes | None,
    partition: int | None,
    options: "ProducerOptions",
) -> _Outcome:
    """Send every line.  Returns how many were sent, and the errors of lines that did not arrive."""
    import asyncio
    from contextlib import suppress

    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.producer import Producer
    from sparklog.errors import SparklogError

    outcome = _Outcome()

    def settle(number: int, done: "asyncio.Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            outcome.failed[number] = error

    async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
        producer = Producer(cluster, options)
        try:
            async for line in read_lines(sys.stdin.fileno()):
                key, value = split_line(line, separator)
                delivery = await producer.send(topic, value, key, partition=partition)
                outcome.sent += 1
                delivery.add_done_callback(partial(settle, outcome.sent))
        finally:  # after a Ctrl-C too
            with suppress(SparklogError):  # every failure is in the outcome
                await producer.close()
    return outcome


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


async def read_lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield each line as soon as it arrives, without its end.

    Raises ConfigError for a line of more than ``LINE_BYTES_MAX`` bytes, naming its number.
    """
    number, parts, size = 1, [b""], 0
    while data := await _read(descriptor):
        first, *others = data.split(b"\n")
        parts.append(first)
        size += len(first)
        _check_size(number, size)
        if others:
            *whole, rest = b"".join(parts), *others
            for line in whole:
                _check_size(number, len(line))
                yield line
                number += 1
            parts, size = [rest], len(rest)
    if size:
        yield b"".join(parts)


def _check_size(number: int, size: int) -> None:
    if size > LINE_BYTES_MAX:
        raise ConfigError(
            f"line {number} of the input is longer than {LINE_BYTES_MAX} bytes, the most that a "
            "request can have"
        )


async def _read(descriptor: int) -> bytes:
    """Read from a descriptor in a thread of its own, which nobody joins.

    The threads of an executor are joined at the end, so that a Ctrl-C would wait for the next line.
    """
    import asyncio
    from contextlib import suppress
    from threading import Thread

    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def tell(data: bytes | OSError) -> None:
        if answer.done():
            return
        if isinstance(data, OSError):
            answer.set_exception(data)
        else:
            answer.set_result(data)

    def read() -> None:
        try:
            data: bytes | OSError = os.read(descriptor, READ_BYTES)
        except OSError as error:
            data = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, data)

    Thread(target=read, daemon=True).start()
    return await answer
