"""``sparklog produce``: lines from stdin become records."""

import os
import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    parse_bootstrap,
    print_json,
)

if TYPE_CHECKING:
    from sparklog.client.producer import ProducerOptions

READ_BYTES = 64 * 1024


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
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
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
    sent, failed = asyncio.run(
        _produce(bootstrap, topic, separator, partition, _options(compression, acks, create))
    )
    if as_json:
        print_json({"topic": topic, "produced": sent - len(failed), "failed": len(failed)})
    else:
        typer.echo(f"Produced {sent - len(failed)} of {sent} records to {topic}.")
    if failed:
        raise failed[0]


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
) -> tuple[int, list[BaseException]]:
    """How many records were sent, and the errors of those that did not arrive."""
    from contextlib import suppress

    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.producer import Producer
    from sparklog.errors import SparklogError

    sent = 0
    failed: list[BaseException] = []
    async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
        producer = Producer(cluster, options)
        try:
            async for line in read_lines(sys.stdin.fileno()):
                key, value = split_line(line, separator)
                delivery = await producer.send(topic, value, key, partition=partition)
                delivery.add_done_callback(
                    lambda done: failed.append(error) if (error := done.exception()) else None
                )
                sent += 1
        finally:  # after a Ctrl-C too
            with suppress(SparklogError):  # every failure is in ``failed``
                await producer.close()
    return sent, failed


def split_line(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


async def read_lines(descriptor: int) -> AsyncIterator[bytes]:
    """Lines as soon as they are there, without their ends."""
    rest = b""
    while data := await _read(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _read(descriptor: int) -> bytes:
    """What a descriptor has to give, in a thread that nobody waits for: no executor, whose threads
    are joined at the end, so that a Ctrl-C would wait for the next line."""
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
