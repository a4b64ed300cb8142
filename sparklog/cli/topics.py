"""``sparklog topics``: list, create, describe and delete topics."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    parse_assignments,
    parse_bootstrap,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.client.cluster_view import TopicView

Result = TypeVar("Result")

TIMEOUT_SECONDS = 30.0

app = typer.Typer(help="List, create, describe and delete topics.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command("list")
def list_topics(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List topics."""
    topics = with_admin(bootstrap, lambda admin: admin.list_topics(internal=internal))
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": _replication_factor(topic),
        }
        for topic in topics.values()
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("topic", "partitions", "replication_factor"), rows)
    else:
        typer.echo("There are no topics.")


@app.command()
def create(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, show_default="the cluster's")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, show_default="the cluster's")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic and wait until it can be used."""
    configs = parse_assignments(config or [], "--config")

    async def work(admin: "Admin") -> "TopicView":
        await admin.create_topic(
            name,
            -1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            configs=configs,
        )
        return (await admin.describe_topics([name]))[name]

    topic = with_admin(bootstrap, work)
    if as_json:
        print_json({"topic": name, "partitions": len(topic.partitions)})
    else:
        typer.echo(f"Created topic {name} with {_count(len(topic.partitions), 'partition')}.")


@app.command()
def describe(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Show a topic's partitions, their leaders and offsets, and its own settings."""
    document = with_admin(bootstrap, lambda admin: _describe(admin, name))
    if as_json:
        print_json(document)
        return
    settings = ", ".join(f"{key}={value}" for key, value in document["configs"].items())
    typer.echo(f"Topic {name}, id {document['topic_id']}, settings: {settings or 'all default'}")
    columns = ("partition", "leader", "leader_epoch", "replicas", "isr", "earliest", "latest")
    rows = [
        {**row, "replicas": _joined(row["replicas"]), "isr": _joined(row["isr"])}
        for row in document["partitions"]
    ]
    print_table(columns, rows)


@app.command()
def delete(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Delete a topic and its records."""
    with_admin(bootstrap, lambda admin: admin.delete_topics([name]))
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        typer.echo(f"Deleted topic {name}.")


def with_admin(bootstrap: str, work: "Callable[[Admin], Awaitable[Result]]") -> Result:
    import asyncio

    from sparklog.client.admin import Admin
    from sparklog.client.cluster_client import ClusterClient

    async def run() -> Result:
        async with ClusterClient(parse_bootstrap(bootstrap)) as cluster:
            return await work(Admin(cluster, timeout_s=TIMEOUT_SECONDS))

    return asyncio.run(run())


async def _describe(admin: "Admin", name: str) -> dict[str, Any]:
    from sparklog.types import ConfigSource, OffsetSpec, TopicPartition

    topic = (await admin.describe_topics([name]))[name]
    configs = await admin.describe_topic_configs(name)
    led = [TopicPartition(name, p.partition) for p in topic.partitions.values() if p.leader >= 0]
    earliest = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    latest = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))

    def offset(found: dict[TopicPartition, Any], partition: int) -> int | None:
        answer = found.get(TopicPartition(name, partition))
        return None if answer is None else answer.offset

    return {
        "topic": name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "configs": {
            c.name: c.value
            for c in configs.values()
            if c.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": [
            {
                "partition": number,
                "leader": None if partition.leader < 0 else partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "earliest": offset(earliest, number),
                "latest": offset(latest, number),
            }
            for number, partition in sorted(topic.partitions.items())
        ],
    }


def _replication_factor(topic: "TopicView") -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
