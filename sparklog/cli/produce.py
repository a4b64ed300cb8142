"""``sparklog produce``: records from the lines of stdin or of a file.

Owns: the command's options and output, and how lines are read.  Must not know what a line means
(``record_input``), nor how records are sent.
"""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    exit_code,
    fail,
    parse_assignments,
    parse_bootstrap,
    print_json,
)
from sparklog.cli.record_input import Headers, InputRecord, ReadRecord, json_record, text_record
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    import asyncio

    from sparklog.client.producer import Producer
    from sparklog.client.producer_options import ProducerOptions

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


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Acks(StrEnum):
    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="PATH",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Read the lines of this file.",
            show_default="stdin",
        ),
    ] = None,
    layout: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="What a line is: a value; or a JSON document as of consume --format json, whose "
            "key, value, headers, timestamp and partition are set.",
        ),
    ] = Format.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Text between key and value.", metavar="TEXT"),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="TEXT", help="Of the records whose line has no key."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="Of all records; may be repeated."
        ),
    ] = None,
    timestamp: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_INT64,
            metavar="MS",
            help="In ms since 1970, of the records whose line has none.",
            show_default="now",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            max=MAX_INT32,
            help="Of the records whose line has none.",
            show_default="by key",
        ),
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z")] = Codec.NONE,
    acks: Annotated[Acks, typer.Option(help="Whose acknowledgement counts.")] = Acks.ALL,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Write all records in one transaction of this id: all become visible, or none. "
            "Another producer with this id is fenced.",
            show_default="no transaction",
        ),
    ] = None,
    transaction_timeout: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_INT32,
            metavar="MS",
            help="The cluster aborts a transaction that takes longer than so many ms.",
        ),
    ] = 60_000,
    create: Annotated[
        bool, typer.Option("--create/--no-create", help="Create the topic when it is missing.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write each line of stdin, or of a file, as one record.

    With a key separator a line without it is a value without key.  In JSON a field may be left out,
    {"base64": "..."} stands for bytes, and a value of null is a tombstone.  A line that cannot be
    read counts as failed, and the others are written; in a transaction, none is visible then.
    """
    import asyncio

    if key_separator == "":
        raise typer.BadParameter("it is empty", param_hint="--key-separator")
    if layout is Format.JSON and key_separator is not None:
        raise typer.BadParameter("it excludes --format json", param_hint="--key-separator")
    if transactional_id == "":
        raise typer.BadParameter("it is empty", param_hint="--transactional-id")
    if transactional_id is not None and acks is not Acks.ALL:
        raise typer.BadParameter("it needs --acks all", param_hint="--transactional-id")
    separator = None if key_separator is None else key_separator.encode()
    read = json_record if layout is Format.JSON else partial(text_record, separator=separator)
    given = _Given(
        key=None if key is None else key.encode(),
        headers=tuple(
            (name, value.encode())
            for name, value in parse_assignments(header or [], "--header").items()
        ),
        timestamp=timestamp,
        partition=partition,
    )
    options = _options(compression, acks, create, transactional_id, transaction_timeout)
    with _opened(file) as descriptor:
        outcome = asyncio.run(_produce(bootstrap, topic, descriptor, read, given, options))
    if as_json:
        counts = {"topic": topic, "produced": outcome.produced, "failed": len(outcome.failed)}
        lines = {"failed_lines": sorted(outcome.failed)[:FAILED_LINES_MAX]}
        print_json(counts | (lines if outcome.failed else {}))
    else:
        typer.echo(f"Produced {outcome.produced} of {outcome.sent} records to {topic}.")
    if outcome.failed:
        raise typer.Exit(fail(_first_failure(outcome.failed), exit_code(outcome.first_error)))


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    """The descriptor of a file, or of stdin."""
    if file is None:
        yield sys.stdin.fileno()
        return
    with file.open("rb") as opened:
        yield opened.fileno()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What the options say of the records whose lines do not say it."""

    key: bytes | None
    headers: Headers
    timestamp: int | None
    partition: int | None

    def complete(self, record: InputRecord) -> InputRecord:
        return replace(
            record,
            key=self.key if record.key is None else record.key,
            headers=(*self.headers, *record.headers),
            timestamp=self.timestamp if record.timestamp is None else record.timestamp,
            partition=self.partition if record.partition is None else record.partition,
        )


@dataclass(slots=True)
class _Outcome:
    """The outcome of a run.  ``failed`` has the errors by the line's number, from 1.

    ``aborted``: the lines were in a transaction, none of which is visible.
    """

    sent: int = 0
    failed: dict[int, BaseException] = field(default_factory=dict)
    aborted: bool = False

    @property
    def produced(self) -> int:
        return 0 if self.aborted else self.sent - len(self.failed)

    @property
    def first_error(self) -> BaseException:
        return self.failed[min(self.failed)]


def _first_failure(failed: dict[int, BaseException]) -> str:
    first = min(failed)
    others = f" ({len(failed) - 1} more lines failed)" if len(failed) > 1 else ""
    return f"line {first} of the input: {failed[first]}{others}"


def _options(
    compression: Codec,
    acks: Acks,
    create: bool,
    transactional_id: str | None,
    transaction_timeout_ms: int,
) -> "ProducerOptions":
    from sparklog.client.producer_options import ProducerOptions
    from sparklog.types import Compression

    return ProducerOptions(
        acks=-1 if acks is Acks.ALL else int(acks),
        idempotent=acks is Acks.ALL,
        compression=Compression[compression.name],
        create_topics=create,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
    )


async def _produce(
    bootstrap: str,
    topic: str,
    descriptor: int,
    read: ReadRecord,
    given: _Given,
    options: "ProducerOptions",
) -> _Outcome:
    """Send every line.  Returns how many were sent, and the errors of lines that did not arrive."""
    from contextlib import suppress

    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.producer import Producer
    from sparklog.errors import SparklogError

    outcome = _Outcome()
    async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
        producer = Producer(cluster, options)
        try:
            if options.transactional_id is None:
                await _send_lines(producer, topic, descriptor, read, given, outcome)
            else:
                await producer.init_transactions()
                await _send_in_transaction(producer, topic, descriptor, read, given, outcome)
        finally:  # after a Ctrl-C too
            with suppress(SparklogError):  # every failure is in the outcome
                await producer.close()
    return outcome


async def _send_in_transaction(
    producer: "Producer",
    topic: str,
    descriptor: int,
    read: ReadRecord,
    given: _Given,
    outcome: _Outcome,
) -> None:
    """Commit if every line has arrived, else abort."""
    from contextlib import suppress

    from sparklog.errors import SparklogError

    producer.begin_transaction()
    try:
        await _send_lines(producer, topic, descriptor, read, given, outcome)
        await producer.flush()
    except SparklogError as error:
        if not outcome.failed:
            outcome.failed[outcome.sent] = error
    if outcome.failed:
        outcome.aborted = True
        with suppress(SparklogError):  # the cluster aborts it later
            await producer.abort_transaction()
    else:
        await producer.commit_transaction()


async def _send_lines(
    producer: "Producer",
    topic: str,
    descriptor: int,
    read: ReadRecord,
    given: _Given,
    outcome: _Outcome,
) -> None:

    def record_failure(number: int, done: "asyncio.Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            outcome.failed[number] = error

    async for line in read_lines(descriptor):
        outcome.sent += 1
        try:
            record = given.complete(read(line))
        except ConfigError as error:
            outcome.failed[outcome.sent] = error
            continue
        delivery = await producer.send(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp=record.timestamp,
            headers=record.headers,
        )
        delivery.add_done_callback(partial(record_failure, outcome.sent))


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
