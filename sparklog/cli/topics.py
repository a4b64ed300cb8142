"""``sparklog topics``: the list of topics, their creation, description and deletion.

Owns: the commands' options and output.  Must not know how the cluster is asked.
"""

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
    print_rows,
    print_table,
)
from sparklog.types import MAX_INT16, MAX_INT32

if TYPE_CHECKING:
    from sparklog.client.admin import Admin, LogDirDescription
    from sparklog.client.cluster_view import TopicView
    from sparklog.client.replica_admin import Reassignment, ReplicasDescription
    from sparklog.types import TopicPartition

Result = TypeVar("Result")

TIMEOUT_SECONDS = 30.0
#: Time limit in seconds for details; the details of silent nodes are left out.
DETAIL_SECONDS = 3.0
_PARTITION_COLUMNS = (
    *("partition", "leader", "leader_epoch", "replicas", "isr", "eligible", "offline"),
    *("state", "earliest", "latest"),
)
#: Of a tiered topic: where the files of the leader begin, the last record in the remote_dir, and
#: bytes of the leader's files, in the remote_dir, and of sealed segments that are to be copied.
_TIER_OFFSETS = ("earliest_local", "latest_tiered")
_TIER_BYTES = ("local_bytes", "remote_bytes", "copy_lag_bytes")

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
    print_rows(
        ("topic", "partitions", "replication_factor"), rows, as_json, none="There are no topics."
    )


@app.command()
def create(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=MAX_INT32, show_default="the cluster's"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, max=MAX_INT16, show_default="the cluster's"
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    tiered: Annotated[
        bool, typer.Option("--tiered", help="Copy sealed segments to the cluster's remote_dir.")
    ] = False,
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
            tiered=tiered or None,
        )
        await admin.await_serving(name)
        return (await admin.describe_topics([name]))[name]

    topic = with_admin(bootstrap, work)
    if as_json:
        print_json({"topic": name, "partitions": len(topic.partitions)})
    else:
        typer.echo(f"Created topic {name} with {_count(len(topic.partitions), 'partition')}.")


@app.command()
def describe(
    name: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", show_default="all topics")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated", help="Only partitions that lack a leader or a replica in sync."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show partitions: who leads, which replicas are in sync, from where to where records are.

    With a topic's name also the settings in force for it, and where they come from.

    Of a tiered topic also where the files of the leader begin (earliest_local), the last record in
    the remote_dir (latest_tiered), the bytes of both, and those of sealed segments that are still
    to be copied (copy_lag_bytes).  Of a topic that leaves the remote_dir, or has left it, the same
    without latest_tiered: remote_bytes are what is left there.

    In sync (isr): has every acknowledged record.  Eligible: has left the isr since, and has them
    all the same.
    """
    documents = with_admin(bootstrap, lambda admin: _describe(admin, name, under_replicated))
    if as_json:
        print_json(documents if name is None else documents[0])
        return
    for document in documents:
        settings = ", ".join(f"{key}={value}" for key, value in document["configs"].items())
        id_and_settings = f"id {document['topic_id']}, settings: {settings or 'all default'}"
        typer.echo(f"Topic {document['topic']}, {id_and_settings}")
        tiered = any(each in row for row in document["partitions"] for each in _TIER_OFFSETS)
        more = (*_TIER_OFFSETS, *_TIER_BYTES) if tiered else ()
        print_table((*_PARTITION_COLUMNS, *more), document["partitions"])
        if name is not None:
            typer.echo()
            print_table(("setting", "value", "from"), _setting_rows(document["effective_configs"]))
    if not documents:
        typer.echo("There are none.")


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


async def _describe(
    admin: "Admin", name: str | None, under_replicated: bool
) -> list[dict[str, Any]]:
    import asyncio
    from contextlib import suppress

    from sparklog.errors import ConnectError, KafkaError
    from sparklog.types import NO_NODE, OffsetSpec

    topics = await (admin.list_topics() if name is None else admin.describe_topics([name]))
    found = await admin.replicas.describe(list(topics)) if topics else {}
    moving: dict[TopicPartition, Reassignment] = {}
    with suppress(ConnectError, KafkaError):  # brokers alone know the rest, too
        moving = await admin.replicas.reassignments(timeout_s=DETAIL_SECONDS)
    if under_replicated:
        found = {tp: each for tp, each in found.items() if each.under_replicated or each.leader < 0}
    led = [tp for tp, each in found.items() if each.leader != NO_NODE]
    asked = (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    earliest, latest = await asyncio.gather(
        *(admin.find_offsets(dict.fromkeys(led, s), timeout_s=DETAIL_SECONDS) for s in asked)
    )
    rows: dict[str, list[dict[str, Any]]] = {}
    for tp, replicas in found.items():
        row = _partition_row(tp.partition, replicas, moving.get(tp))
        for column, offsets in (("earliest", earliest), ("latest", latest)):
            row[column] = offsets[tp].offset if tp in offsets else None
        rows.setdefault(tp.topic, []).append(row)
    shown = [topics[each] for each in rows] if name is None else [topics[name]]
    return [await _topic_document(admin, topic, rows.get(topic.name, [])) for topic in shown]


async def _topic_document(
    admin: "Admin", topic: "TopicView", rows: list[dict[str, Any]]
) -> dict[str, Any]:
    from sparklog.cli.configs import SOURCES
    from sparklog.types import ConfigSource

    configs = await admin.describe_topic_configs(topic.name)
    # A topic that leaves the remote_dir, or has left it, has the second setting.
    remote = (configs.get(f"remote.{name}") for name in ("storage.enable", "log.delete.on.disable"))
    if any(setting is not None and setting.value == "true" for setting in remote):
        await _add_tiers(admin, topic.name, rows)
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "configs": {
            c.name: c.value
            for c in configs.values()
            if c.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "effective_configs": {
            c.name: {"value": c.value, "from": SOURCES.get(c.source, str(c.source))}
            for c in sorted(configs.values(), key=lambda c: c.name)
        },
        "partitions": rows,
    }


async def _add_tiers(admin: "Admin", name: str, rows: list[dict[str, Any]]) -> None:
    """Add where the files of the leaders begin, how far the remote_dir reaches, and both sizes."""
    from contextlib import suppress

    from sparklog.client.admin import PartitionSizes
    from sparklog.errors import ConnectError, KafkaError
    from sparklog.types import OffsetSpec, TopicPartition

    led = [TopicPartition(name, row["partition"]) for row in rows if row["leader"] is not None]
    asked = (OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED)
    for column, timestamp in zip(_TIER_OFFSETS, asked, strict=True):
        found = await admin.find_offsets(dict.fromkeys(led, timestamp), timeout_s=DETAIL_SECONDS)
        for row in rows:
            offset = found.get(TopicPartition(name, row["partition"]))
            row[column] = None if offset is None or offset.offset < 0 else offset.offset
    nodes: dict[int, list[LogDirDescription]] = {}
    with suppress(ConnectError, KafkaError):
        nodes = await admin.describe_log_dirs(timeout_s=DETAIL_SECONDS)
    for row in rows:
        tp = TopicPartition(name, row["partition"])
        sizes = PartitionSizes.find(nodes.get(row["leader"], ()), tp)
        known = sizes if sizes.remote_bytes is not None else PartitionSizes()
        row |= zip(_TIER_BYTES, known, strict=True)


def _setting_rows(effective: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"setting": setting, **each} for setting, each in effective.items()]


def _partition_row(
    partition: int, replicas: "ReplicasDescription", moving: "Reassignment | None"
) -> dict[str, Any]:
    return {
        "partition": partition,
        "leader": None if replicas.leader < 0 else replicas.leader,
        "leader_epoch": replicas.leader_epoch,
        "replicas": list(replicas.replicas),
        "isr": list(replicas.isr),
        "eligible": list(replicas.eligible),
        "offline": list(replicas.offline),
        "adding": list(moving.adding) if moving else [],
        "removing": list(moving.removing) if moving else [],
        "state": _state(replicas, moving),
    }


def _state(replicas: "ReplicasDescription", moving: "Reassignment | None") -> str:
    if replicas.leader < 0 or replicas.leader in replicas.offline:
        return "offline"
    if moving is not None:
        return "moving"
    return "under-replicated" if replicas.under_replicated else "ok"


def _replication_factor(topic: "TopicView") -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
