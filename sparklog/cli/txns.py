"""``sparklog txns``: transactional ids, their transactions, and what hangs.

Owns: the commands' options and output.  Must not know how coordinators and leaders are asked.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    EXIT_FAILED,
    BootstrapOption,
    JsonOption,
    fail,
    print_json,
    print_rows,
)
from sparklog.cli.topics import with_admin
from sparklog.types import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.transaction_admin import HangingTransaction, TransactionDescription

_LIST_COLUMNS = ("transactional_id", "state", "producer_id", "coordinator")
_DESCRIBE_COLUMNS = (
    *("transactional_id", "state", "producer_id", "epoch", "timeout_ms"),
    *("started", "coordinator", "partitions"),
)
_HANGING_COLUMNS = (
    *("topic", "partition", "producer_id", "epoch", "coordinator_epoch"),
    *("start_offset", "last_write"),
)

app = typer.Typer(
    help="List and describe transactions, find those that hang, and abort them.",
    no_args_is_help=True,
)
IdsArgument = Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID...")]


@app.command("list")
def list_transactions(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only in this state, such as Ongoing or Empty. May be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(
            min=0, max=MAX_INT64, metavar="N", help="Only of this producer. May be repeated."
        ),
    ] = None,
    longer_than: Annotated[
        int | None,
        typer.Option(
            min=0, max=MAX_INT64, metavar="MS", help="Only open for longer than so many ms."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that match this regular expression."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List transactional ids, and the node that coordinates each of them."""
    found = with_admin(
        bootstrap,
        lambda admin: admin.list_transactions(
            states=state or (),
            producer_ids=producer_id or (),
            longer_than_ms=longer_than,
            pattern=pattern,
        ),
    )
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in found.values()
    ]
    print_rows(_LIST_COLUMNS, rows, as_json, none="There are no such transactional ids.")


@app.command()
def describe(
    names: IdsArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Show the state, the producer and the open partitions of transactional ids."""
    found = with_admin(bootstrap, lambda admin: admin.describe_transactions(names))
    rows = [_described(each) for each in found.values()]
    print_rows(_DESCRIBE_COLUMNS, rows, as_json)


@app.command("find-hanging")
def find_hanging(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="May be repeated.", show_default="all topics"
        ),
    ] = None,
    max_timeout: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_INT64,
            metavar="MS",
            help="The cluster's transaction.max.timeout.ms: no younger transaction hangs.",
        ),
    ] = 15 * 60_000,
    as_json: JsonOption = False,
) -> None:
    """Find transactions that are open in a partition although no coordinator will end them.

    A reader of committed records never gets beyond such a transaction.
    """
    found = with_admin(
        bootstrap,
        lambda admin: admin.find_hanging_transactions(topic or (), max_timeout_ms=max_timeout),
    )
    rows = [_hanging(each) for each in found]
    print_rows(_HANGING_COLUMNS, rows, as_json, none="No transaction hangs.")


@app.command()
def abort(
    names: IdsArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Abort the open transactions of these ids, and fence their producers.

    A producer that goes on is refused (PRODUCER_FENCED) and has to be started again.
    """
    results = with_admin(bootstrap, lambda admin: _abort(admin, names))
    if as_json:
        print_json([{"transactional_id": name, "error": error} for name, error in results.items()])
    for name, error in results.items():
        if error is not None:
            fail(error, EXIT_FAILED)
        elif not as_json:
            typer.echo(f"Aborted the transaction of {name}.")
    if any(results.values()):
        raise typer.Exit(EXIT_FAILED)


@app.command("abort-hanging")
def abort_hanging(
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, max=MAX_INT32)],
    start_offset: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_INT64, metavar="N", help="The start offset that find-hanging shows."
        ),
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Write an abort marker for a transaction that hangs in a partition.

    Only for what find-hanging shows: an open transaction of a living producer loses its records in
    this partition, and keeps those in others.
    """
    found = with_admin(
        bootstrap, lambda admin: _abort_hanging(admin, topic, partition, start_offset)
    )
    if as_json:
        print_json(_hanging(found))
    else:
        producer = found.producer.producer_id
        typer.echo(f"Aborted the transaction of producer {producer} in {found.topic_partition}.")


async def _abort_hanging(
    admin: "Admin", topic: str, partition: int, start_offset: int
) -> "HangingTransaction":
    from sparklog.client.transaction_admin import HangingTransaction
    from sparklog.errors import ErrorCode, KafkaError
    from sparklog.types import TopicPartition

    tp = TopicPartition(topic, partition)
    for producer in (await admin.describe_producers([tp]))[tp]:
        if producer.transaction_start_offset == start_offset:
            found = HangingTransaction(topic_partition=tp, producer=producer)
            await admin.abort_hanging_transaction(found)
            return found
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"no transaction of {tp} is open from offset {start_offset} on"
    )


async def _abort(admin: "Admin", names: list[str]) -> dict[str, str | None]:
    """The refusal of each transactional id; None: its transaction is aborted."""
    from sparklog.errors import KafkaError

    results: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        try:
            await admin.abort_transaction(name)
        except KafkaError as error:
            results[name] = str(error)
        else:
            results[name] = None
    return results


def _described(found: "TransactionDescription") -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if found.start_ms is None else _time(found.start_ms),
        "coordinator": found.coordinator,
        "partitions": [str(tp) for tp in sorted(found.partitions)],
    }


def _hanging(found: "HangingTransaction") -> dict[str, Any]:
    producer = found.producer
    return {
        "topic": found.topic_partition.topic,
        "partition": found.topic_partition.partition,
        "producer_id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "start_offset": producer.transaction_start_offset,
        "last_write": _time(producer.last_timestamp),
    }


def _time(milliseconds: int) -> str:
    """A time of day in ISO 8601 and UTC; the number itself where a calendar has no such time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
