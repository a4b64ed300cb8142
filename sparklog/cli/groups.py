"""``sparklog groups``: consumer groups, their members, committed offsets and lag.

Owns: the commands' options and output.  Must not know how coordinators are asked.
"""

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
    print_table,
)
from sparklog.cli.topics import with_admin
from sparklog.plurals import counted
from sparklog.types import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sparklog.cli.offset_resets import OffsetReset
    from sparklog.client.admin import Admin
    from sparklog.client.group_admin import GroupDescription, GroupOffset
    from sparklog.types import TopicPartition

_LIST_COLUMNS = ("group", "state", "type", "protocol", "coordinator")
_OFFSET_COLUMNS = (
    *("topic", "partition", "committed", "log_end", "lag"),
    *("member", "client", "host"),
)
_RESET_COLUMNS = ("topic", "partition", "committed", "new_offset", "log_end", "lag")

app = typer.Typer(
    help="List, describe and delete consumer groups, and set their offsets.", no_args_is_help=True
)
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="May be repeated.")
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        max=MAX_INT32,
        help="Of each --topic. May be repeated.",
        show_default="all",
    ),
]


@app.command("list")
def list_groups(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only groups in this state, such as Stable or Empty. May be repeated."),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type, such as Classic. May be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List groups, and the broker that coordinates each of them."""
    groups = with_admin(
        bootstrap, lambda admin: admin.list_groups(states=state or (), types=group_type or ())
    )
    rows = [
        {
            "group": each.group_id,
            "state": each.state,
            "type": each.type,
            "protocol": each.protocol_type,
            "coordinator": each.coordinator,
        }
        for each in groups.values()
    ]
    print_rows(_LIST_COLUMNS, rows, as_json, none="There are no groups.")


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", show_default="all groups")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Show how far groups have read, how far that is behind the end (lag), and who reads.

    Offsets without a member are those of partitions that no member has at the moment.
    """
    documents = with_admin(bootstrap, lambda admin: _describe(admin, names))
    if as_json:
        print_json(documents)
        return
    for document in documents:
        members = counted(len(document["members"]), "member")
        assignor = f", {document['assignor']}" if document["assignor"] else ""
        lag = "" if document["lag"] is None else f", lag {document['lag']:,}"
        coordinator = f"coordinator {document['coordinator']}"
        typer.echo(
            f"Group {document['group']}, {document['state']}, {coordinator}, "
            f"{members}{assignor}{lag}"
        )
        if document["offsets"]:
            print_table(_OFFSET_COLUMNS, document["offsets"])
        for member in document["members"]:
            if not member["partitions"]:
                typer.echo(f"Member {member['member']} at {member['host']} has no partitions.")
    if not documents:
        typer.echo("There are no groups.")


@app.command("reset-offsets")
def reset_offsets(
    group: GroupArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, max=MAX_INT64, metavar="N", help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record at or after a time in ISO 8601, in UTC unless it has an "
            "offset: 2026-01-31T13:00:00.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            min=-MAX_INT64,
            max=MAX_INT64,
            metavar="N",
            help="By a number of offsets, back if it is negative.",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute/--dry-run", help="Set the offsets, or only show the new ones."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Set the committed offsets of a group without members.

    Without --topic, all partitions for which the group has committed an offset. Offsets outside
    of a partition become its first or last offset.
    """
    from sparklog.cli.offset_resets import OffsetReset, parse_datetime

    reset = OffsetReset(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_timestamp_ms=None if to_datetime is None else parse_datetime(to_datetime),
        shift_by=shift_by,
    )
    if reset.given != 1:
        ways = "--to-earliest, --to-latest, --to-offset, --to-datetime or --shift-by"
        raise typer.BadParameter(f"give one of {ways}", param_hint="reset-offsets")
    _check_topics(topic, partition)
    rows = with_admin(
        bootstrap, lambda admin: _reset(admin, group, topic, partition, reset, execute)
    )
    if as_json:
        print_json(rows)
        return
    if not rows:
        typer.echo(f"The group {group} has no committed offsets; --topic names other partitions.")
        return
    print_table(_RESET_COLUMNS, rows)
    done = f"Set {counted(len(rows), 'offset')}." if execute else "Nothing is set yet: --execute."
    typer.echo(done)


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Delete groups without members, and their committed offsets."""
    results = with_admin(bootstrap, lambda admin: _delete(admin, names))
    if as_json:
        print_json([{"group": name, "error": error} for name, error in results.items()])
    for name, error in results.items():
        if error is not None:
            fail(error, EXIT_FAILED)
        elif not as_json:
            typer.echo(f"Deleted group {name}.")
    if any(results.values()):
        raise typer.Exit(EXIT_FAILED)


@app.command("delete-offsets")
def delete_offsets(
    group: GroupArgument,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", metavar="TOPIC", help="May be repeated.")
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    partition: PartitionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete committed offsets of topics that no member of the group reads."""

    async def work(admin: "Admin") -> "list[TopicPartition]":
        await admin.describe_groups([group])
        chosen = await _partitions(admin, topic, partition)
        committed = [tp for tp in await admin.group_offsets(group) if tp in chosen]
        await admin.delete_group_offsets(group, committed)
        return committed

    deleted = with_admin(bootstrap, work)
    if as_json:
        print_json([{"topic": tp.topic, "partition": tp.partition} for tp in deleted])
    else:
        typer.echo(f"Deleted {counted(len(deleted), 'offset')} of group {group}.")


async def _describe(admin: "Admin", names: list[str] | None) -> list[dict[str, Any]]:
    wanted = names or list(await admin.list_groups())
    groups = await admin.describe_groups(wanted, skip_unknown=not names)
    offsets = await admin.offsets_of_groups({name: each.owners for name, each in groups.items()})
    return [_group_document(group, offsets[name]) for name, group in groups.items()]


def _group_document(
    group: "GroupDescription", offsets: "dict[TopicPartition, GroupOffset]"
) -> dict[str, Any]:
    owners = group.owners
    lags = [each.lag for each in offsets.values() if each.lag is not None]
    rows = []
    for tp, each in offsets.items():
        owner = owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": each.committed,
                "log_end": each.log_end,
                "lag": each.lag,
                "member": None if owner is None else owner.member_id,
                "client": None if owner is None else owner.client_id,
                "host": None if owner is None else owner.client_host,
            }
        )
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": sum(lags) if lags else None,
        "members": [
            {
                "member": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [str(tp) for tp in sorted(member.assignment)],
            }
            for member in group.members
        ],
        "offsets": rows,
    }


async def _reset(
    admin: "Admin",
    name: str,
    topics: list[str] | None,
    numbers: list[int] | None,
    reset: "OffsetReset",
    execute: bool,
) -> list[dict[str, Any]]:
    from sparklog.cli.offset_resets import new_offsets
    from sparklog.errors import ErrorCode, KafkaError

    group = (await admin.describe_groups([name]))[name]
    if group.members:
        members = counted(len(group.members), "member")
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"the group {name!r} is {group.state} with {members}; stop them first",
        )
    chosen = await _partitions(admin, topics, numbers) if topics else ()
    present = await admin.group_offsets(name, chosen)
    if topics:
        present = {tp: present[tp] for tp in sorted(chosen)}
    new = await new_offsets(admin, reset, present)
    if execute:
        await admin.alter_group_offsets(name, new)
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": present[tp].committed,
            "new_offset": offset,
            "log_end": present[tp].log_end,
            "lag": _lag(present[tp].log_end, offset),
        }
        for tp, offset in new.items()
    ]


def _lag(log_end: int | None, offset: int) -> int | None:
    """The lag with the new offset."""
    return None if log_end is None else max(log_end - offset, 0)


async def _delete(admin: "Admin", names: list[str]) -> dict[str, str | None]:
    """The refusal of each group; None: deleted."""
    from sparklog.errors import KafkaError

    results: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        try:
            await admin.delete_groups([name])
        except KafkaError as error:
            results[name] = str(error)
        else:
            results[name] = None
    return results


def _check_topics(topics: list[str] | None, numbers: list[int] | None) -> None:
    if numbers and not topics:
        raise typer.BadParameter("it needs --topic", param_hint="--partition")


async def _partitions(
    admin: "Admin", topics: "Iterable[str]", numbers: "Collection[int] | None"
) -> "set[TopicPartition]":
    """The partitions of topics.  Raises KafkaError for an unknown topic or partition."""
    from sparklog.errors import ErrorCode, KafkaError
    from sparklog.types import TopicPartition

    found = set()
    for topic in (await admin.describe_topics(list(topics))).values():
        for number in numbers or topic.partitions:
            if number not in topic.partitions:
                count = counted(len(topic.partitions), "partition")
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic.name} has {count} and no partition {number}",
                )
            found.add(TopicPartition(topic.name, number))
    return found
