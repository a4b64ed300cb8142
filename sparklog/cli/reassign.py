"""``sparklog reassign``: plans for replicas, their execution, progress and cancellation.

Owns: the commands' options and output.  Must not know how a plan is made or carried out.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    fail,
    print_json,
    print_rows,
)
from sparklog.cli.plan_file import read_plan, write_plan
from sparklog.cli.topics import with_admin
from sparklog.types import MAX_INT16, MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparklog.client.admin import Admin
    from sparklog.client.replica_plan import Assignment
    from sparklog.types import TopicPartition

app = typer.Typer(
    help="Move replicas between brokers. A plan is the JSON of Kafka's kafka-reassign-partitions.",
    no_args_is_help=True,
)
PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A file with a plan; - is the standard input.")
]


@app.command()
def plan(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", show_default="all topics")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    brokers: Annotated[
        str | None,
        typer.Option(metavar="ID,ID,...", help="Who may have replicas.", show_default="all alive"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, max=MAX_INT16, show_default="as it is"),
    ] = None,
) -> None:
    """Print a plan that spreads replicas and leaders evenly and moves as little as it can."""
    ids = None if brokers is None else _parse_ids(brokers)

    async def work(admin: "Admin") -> "tuple[Assignment, int, int]":
        from sparklog.client.replica_moves import plan_even, present_replicas
        from sparklog.client.replica_plan import moved_replicas

        present = await present_replicas(admin, topics or [])
        made = await plan_even(admin, present, ids, replication_factor)
        moved = moved_replicas(present, made)
        return made, len(moved), sum(map(len, moved.values()))

    made, partitions, replicas = with_admin(bootstrap, work)
    print(write_plan(made))
    sys.stderr.write(
        f"It changes {len(made)} partitions and copies {replicas} replicas of {partitions}.\n"
    )


@app.command()
def run(
    plan: PlanArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    undo: Annotated[
        Path | None, typer.Option(help="Write a plan there that restores what is now.")
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_INT64,
            metavar="BYTES_PER_SECOND",
            help="What a broker may send, and fetch, for it; taken away at the end.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it is done.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Carry out a plan and show how far it is.

    Ctrl-C ends the showing alone, and leaves a throttle in place: see "status" and "unthrottle".
    """
    wanted = _read(plan)

    async def work(admin: "Admin") -> dict[str, Any]:
        from sparklog.client import replica_throttle
        from sparklog.client.replica_moves import present_replicas

        before = await present_replicas(admin, {tp.topic for tp in wanted})
        if undo is not None:
            undo.write_text(write_plan({tp: before[tp] for tp in wanted if tp in before}) + "\n")
        if throttle is not None:
            await replica_throttle.throttle(admin, before, wanted, throttle)
        refusals = await admin.replicas.reassign(dict(wanted))
        begun = {tp for tp, refusal in refusals.items() if refusal is None}
        for tp, refusal in refusals.items():
            if refusal is not None:
                sys.stderr.write(f"sparklog: {tp}: {refusal}\n")
        if wait:
            await _watch(admin, begun)
        if wait and throttle is not None:
            await replica_throttle.unthrottle(admin, {tp.topic for tp in wanted})
        moving = await admin.replicas.reassignments()
        reached = await present_replicas(admin, {tp.topic for tp in wanted})
        return {
            "begun": len(begun),
            "refused": len(refusals) - len(begun),
            "done": sum(tp not in moving and reached.get(tp) == wanted[tp] for tp in begun),
        }

    result = with_admin(bootstrap, work)
    if as_json:
        print_json(result)
    elif wait:
        typer.echo(f"{result['done']} of {len(wanted)} partitions have the replicas of the plan.")
    else:
        typer.echo(f"{result['begun']} of {len(wanted)} partitions have begun to move.")
    if result["refused"] or (wait and result["done"] < len(wanted)):
        raise typer.Exit(fail("the plan was not carried out as a whole", 1))


@app.command()
def status(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay until all is done.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the partitions that are moving."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        moving = await admin.replicas.reassignments()
        if watch:
            await _watch(admin, moving.keys())
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
            }
            for tp, each in moving.items()
            if not watch
        ]

    rows = with_admin(bootstrap, work)
    columns = ("topic", "partition", "replicas", "adding", "removing")
    print_rows(columns, rows, as_json, none="No partition is moving.")


@app.command()
def cancel(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", show_default="all topics")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Take back what is moving: partitions keep the replicas that they had."""

    async def work(admin: "Admin") -> dict[str, int]:
        moving = [
            tp for tp in await admin.replicas.reassignments() if not topics or tp.topic in topics
        ]
        refusals = await admin.replicas.reassign(dict.fromkeys(moving)) if moving else {}
        refused = [error for error in refusals.values() if error is not None]
        for error in refused[:1]:
            raise error
        return {"cancelled": len(moving)}

    result = with_admin(bootstrap, work)
    if as_json:
        print_json(result)
    else:
        typer.echo(f"Took back {result['cancelled']} moves.")


@app.command()
def unthrottle(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", show_default="all topics")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Take away the throttles that moves were begun with."""

    async def work(admin: "Admin") -> None:
        from sparklog.client import replica_throttle

        names = topics or list(await admin.list_topics(internal=True))
        await replica_throttle.unthrottle(admin, names)

    with_admin(bootstrap, work)
    typer.echo("Replicas are copied without a limit.")


async def _watch(admin: "Admin", partitions: "Collection[TopicPartition]") -> None:
    """Show progress until the moves have ended.  Ctrl-C ends only the watching."""
    from sparklog.client.replica_moves import await_moves
    from sparklog.progress import progress_bar, show_moves

    with progress_bar("moving replicas") as show:
        await await_moves(admin, partitions, show_moves(show))


def _read(path: str) -> "dict[TopicPartition, tuple[int, ...]]":
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise typer.BadParameter(str(error), param_hint="PLAN") from None
    return read_plan(data)


def _parse_ids(text: str) -> set[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise typer.BadParameter(f"{text!r} is not ID,ID,...", param_hint="--brokers")
    return {int(part) for part in parts}
