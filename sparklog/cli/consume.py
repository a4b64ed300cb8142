"""``sparklog consume``: records to stdout.

Owns: the command's options and output, and where reading begins and ends.  Must not know how
records are fetched.
"""

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import DEFAULT_BOOTSTRAP, BootstrapOption, parse_bootstrap
from sparklog.cli.record_format import FORMAT_HELP, TEXT, Render, parse_format
from sparklog.types import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.consumer import ConsumedRecord, Consumer
    from sparklog.client.groups import AsyncConsumer
    from sparklog.types import TopicPartition


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Start at the earliest record; with --group, where it has committed no offset.",
        ),
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
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group: go on where it has committed, share the "
            "partitions with its other members, commit what is printed.",
        ),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=0, metavar="N", help="Stop after N records.")
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end/--follow",
            "-e/-F",
            help="Stop at what is the end now; or go on with new records (default).",
        ),
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
        str, typer.Option("--format", "-f", metavar="FORMAT", help=FORMAT_HELP)
    ] = TEXT,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Text: show keys before values.")
    ] = None,
) -> None:
    """Print records, new ones only unless told otherwise, and follow the topic until Ctrl-C.

    A member of a group commits what was printed and leaves the group, after SIGTERM too.
    """
    if from_beginning and offset is not None:
        raise typer.BadParameter("it excludes --from-beginning", param_hint="--offset")
    for value, option in ((offset, "--offset"), (partition, "--partition")):
        if group is not None and value is not None:
            raise typer.BadParameter("it excludes --group", param_hint=option)
    if group == "":
        raise typer.BadParameter("it is empty", param_hint="--group")
    separator = None if key_separator is None else key_separator.encode()
    try:
        printer = _Printer(parse_format(output, separator))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None
    if skip_undecodable:
        import logging

        logging.basicConfig(level=logging.WARNING, format="warning: %(message)s")
    start = -2 if from_beginning else offset
    if group is not None:
        _run_until_stopped(
            _consume_with_group(
                bootstrap,
                topic,
                group,
                from_beginning,
                maximum,
                until_end,
                skip_undecodable,
                printer,
            )
        )
        return
    _run_until_stopped(
        _consume(bootstrap, topic, partition, start, maximum, until_end, skip_undecodable, printer)
    )


def _run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, or until Ctrl-C or SIGTERM cancels the work; a second one ends the process.

    ``loop.add_signal_handler`` would not do: while stdout blocks, the loop takes no signals.
    """
    import asyncio
    import signal
    from contextlib import suppress

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop(number: int, _frame: object) -> None:
            signal.signal(number, signal.SIG_DFL)
            loop.call_soon_threadsafe(task.cancel)

        signal.signal(signal.SIGTERM, stop)
        await work

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run())


class _Printer:
    def __init__(self, render: Render) -> None:
        self._render = render

    def print(self, records: "list[ConsumedRecord]") -> None:
        sys.stdout.buffer.write(b"".join(map(self._render, records)))
        sys.stdout.buffer.flush()


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


async def _consume_with_group(
    bootstrap: str,
    topic: str,
    group: str,
    from_beginning: bool,
    maximum: int | None,
    until_end: bool,
    skip_undecodable: bool,
    printer: _Printer,
) -> None:
    from sparklog.cli.consume_group import consume_with_group
    from sparklog.client.cluster_client import ClusterClient
    from sparklog.client.groups import AsyncConsumer

    async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
        partitions = await _partitions(cluster, topic, None)  # a group waits for unknown topics
        ends = await _ends(cluster, partitions) if until_end else None
        async with AsyncConsumer(
            cluster,
            group_id=group,
            auto_offset_reset="earliest" if from_beginning else "latest",
            enable_auto_commit=False,
            skip_undecodable=skip_undecodable,
        ) as consumer:
            try:
                await consume_with_group(consumer, topic, printer.print, maximum=maximum, ends=ends)
            finally:
                _tell_skipped(consumer)


async def _print_records(
    consumer: "Consumer",
    maximum: int | None,
    ends: "dict[TopicPartition, int] | None",
    printer: _Printer,
) -> None:
    from sparklog.cli.unreadable import UnreadablePartitions

    left = maximum
    unreadable = UnreadablePartitions()
    while left != 0:
        if ends is not None and all(consumer.position(tp) >= end for tp, end in ends.items()):
            return
        records = await consumer.poll(0.5, max_records=min(left or 1000, 1000))
        if ends is not None:
            records = [r for r in records if r.offset < _end_of(r, ends)]
        printer.print(records)
        unreadable.tell(consumer.unreadable)
        left = None if left is None else left - len(records)


def _tell_skipped(consumer: "Consumer | AsyncConsumer") -> None:
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
