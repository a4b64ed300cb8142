"""``sparklog elect-leaders``: elections of preferred leaders, and unclean elections.

Owns: the command's options and output.  Must not know who may lead.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    fail,
    print_rows,
)
from sparklog.cli.topics import with_admin
from sparklog.types import MAX_INT32

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparklog.client.admin import Admin
    from sparklog.types import TopicPartition


def elect_leaders(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", show_default="all topics")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, max=MAX_INT32, help="May be repeated.", show_default="all"
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where no replica is in sync, let any that lives lead: what it lacks is lost.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the first replica of each partition lead, where it is in sync."""
    if (unclean or partition) and not topics:
        option = "--unclean" if unclean else "--partition"
        raise typer.BadParameter("it needs the names of topics", param_hint=option)
    wanted = set(partition) if partition else None
    rows = with_admin(bootstrap, lambda admin: _elect(admin, topics or [], wanted, unclean))
    print_rows(
        ("topic", "partition", "leader", "result"),
        rows,
        as_json,
        none="Every partition is led by its preferred leader already.",
    )
    refused = sum(row["result"] not in ("elected", "not needed") for row in rows)
    if refused:
        raise typer.Exit(fail(f"{refused} of {len(rows)} elections were refused", 1))


async def _elect(
    admin: "Admin", topics: list[str], wanted: set[int] | None, unclean: bool
) -> list[dict[str, Any]]:
    from sparklog.errors import ErrorCode
    from sparklog.types import ElectionType

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    partitions = None
    if topics:
        described = await admin.replicas.describe(topics)
        partitions = [tp for tp in described if wanted is None or tp.partition in wanted]
        _check_partitions(topics, described, wanted or set())
    results = await admin.replicas.elect_leaders(partitions, kind)
    leaders = await admin.replicas.describe({tp.topic for tp in results}) if results else {}

    def said(error: Any) -> str:
        if error is None:
            return "elected"
        return "not needed" if error.code == ErrorCode.ELECTION_NOT_NEEDED else str(error)

    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": leaders[tp].leader if tp in leaders and leaders[tp].leader >= 0 else None,
            "result": said(error),
        }
        for tp, error in sorted(results.items())
    ]


def _check_partitions(
    topics: list[str], described: "Collection[TopicPartition]", wanted: set[int]
) -> None:
    """Raises KafkaError unless every topic has every partition that the command names."""
    from sparklog.errors import ErrorCode, KafkaError

    for topic in topics:
        numbers = {tp.partition for tp in described if tp.topic == topic}
        for missing in sorted(wanted - numbers):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has {len(numbers)} partitions and no partition {missing}",
            )
