"""``sparklog consume``: records to stdout.

Owns: the command's options and output, and where reading begins and ends.  Must not know how
records are fetched.
"""

import json
import sys
from base64 import b64encode
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import DEFAULT_BOOTSTRAP, BootstrapOption, parse_bootstrap
from sparklog.types import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.consumer import ConsumedRecord, Consumer
    from sparklog.types import TopicPartition


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the earliest record.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option("--offset", "-o", min=0, max=MAX_INT64, help="Start at this offset."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, max=MAX_INT32, help="May be repeated.", show_default="all"
        ),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Stop after N records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at what is the end now.")
    ] = False,
    skip_undecodable: Annotated[
        bool,
        typer.Option(
            "--skip-undecodable",
            help="Leave out records that cannot be read (damaged or malformed batches), with a "
            "warning for each batch. Default: end with an error.",
        ),
    ] = False,
    output: Annotated[
        Format, typer.Option("--format", "-f", help="Values as lines, or one JSON per record.")
    ] = Format.TEXT,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Text: show keys before values.")
    ] = None,
) -> None:
    """Print records, new ones only unless told otherwise, until Ctrl-C."""
    import asyncio
    from contextlib import suppress

    if from_beginning and offset is not None:
        raise typer.BadParameter("it excludes --from-beginning", param_hint="--offset")
    separator = None if key_separator is None else key_separator.encode()
    printer = _Printer(output, separator)
    if skip_undecodable:
        import logging

        logging.basicConfig(level=logging.WARNING, format="warning: %(message)s")
    start = -2 if from_beginning else offset
    with suppress(KeyboardInterrupt):
        asyncio.run(
            _consume(
                bootstrap, topic, partition, start, maximum, until_end, skip_undecodable, printer
            )
        )


class _Printer:
    def __init__(self, output: Format, separator: bytes | None) -> None:
        self._output = output
        self._separator = separator

    def print(self, records: "list[ConsumedRecord]") -> None:
        render = self._json if self._output is Format.JSON else self._text
        sys.stdout.buffer.write(b"".join(map(render, records)))
        sys.stdout.buffer.flush()

    def _text(self, record: "ConsumedRecord") -> bytes:
        value = record.value or b""
        if self._separator is None:
            return value + b"\n"
        return (record.key or b"") + self._separator + value + b"\n"

    @staticmethod
    def _json(record: "ConsumedRecord") -> bytes:
        document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": record.timestamp_type.name.lower(),
            "key": as_json_value(record.key),
            "value": as_json_value(record.value),
            "headers": [[name, as_json_value(value)] for name, value in record.headers],
        }
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def as_json_value(data: bytes | None) -> Any:
    """Bytes for JSON: UTF-8 as text, other bytes as ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


async def _consume(
    bootstrap: str,
    topic: str,
    partitions: list[int] | None,
    start: int | None,
    maximum: int | None,
    until_end: bool,
    skip_undecodable: bool,
    printer: _Printer,
) -> None:
    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.consumer import Consumer, ConsumerOptions
    from sparklog.types import OffsetSpec

    async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
        chosen = await _partitions(cluster, topic, partitions)
        ends = await _ends(cluster, chosen) if until_end else None
        # An offset must exist only if the user named it.
        is_exact = start is not None and start >= 0
        if is_exact and ends is not None:
            _check_start(start, ends)
        options = ConsumerOptions(
            on_out_of_range=None if is_exact else OffsetSpec.EARLIEST,
            skip_undecodable=skip_undecodable,
        )
        async with Consumer(cluster, options) as consumer:
            begin = int(OffsetSpec.LATEST) if start is None else start
            await consumer.assign(dict.fromkeys(chosen, begin))
            try:
                await _print_records(consumer, maximum, ends, printer)
            finally:
                _tell_skipped(consumer)


async def _print_records(
    consumer: "Consumer",
    maximum: int | None,
    ends: "dict[TopicPartition, int] | None",
    printer: _Printer,
) -> None:
    left = maximum
    while left != 0:
        if ends is not None and all(consumer.position(tp) >= end for tp, end in ends.items()):
            return
        records = await consumer.poll(0.5, max_records=min(left or 1000, 1000))
        if ends is not None:
            records = [r for r in records if r.offset < _end_of(r, ends)]
        printer.print(records)
        left = None if left is None else left - len(records)


def _tell_skipped(consumer: "Consumer") -> None:
    skipped = consumer.skipped
    if skipped.batches:
        typer.echo(
            f"skipped {skipped.offsets} offsets of {skipped.batches} batches that cannot be read",
            err=True,
        )


async def _partitions(
    cluster: "ClusterClient", topic: str, wanted: list[int] | None
) -> "list[TopicPartition]":
    from sparklog.client.deadline import Deadline
    from sparklog.errors import ErrorCode, KafkaError
    from sparklog.types import TopicPartition

    view = await cluster.topic(topic, Deadline(30.0))
    for number in wanted or []:
        if number not in view.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has {len(view.partitions)} partitions and no partition {number}",
            )
    return [TopicPartition(topic, number) for number in sorted(set(wanted or view.partitions))]


async def _ends(
    cluster: "ClusterClient", partitions: "list[TopicPartition]"
) -> "dict[TopicPartition, int]":
    from sparklog.client.admin import Admin
    from sparklog.types import OffsetSpec

    wanted = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
    found = await Admin(cluster).list_offsets(wanted)
    return {tp: answer.offset for tp, answer in found.items()}


def _check_start(start: int | None, ends: "dict[TopicPartition, int]") -> None:
    """Raises KafkaError for an offset behind the end, whether or not the command waits there."""
    from sparklog.errors import ErrorCode, KafkaError

    for tp, end in ends.items():
        if start is not None and start > end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} ends at offset {end}, before offset {start}"
            )


def _end_of(record: "ConsumedRecord", ends: "dict[TopicPartition, int]") -> int:
    from sparklog.types import TopicPartition

    return ends[TopicPartition(record.topic, record.partition)]
