"""``sparklog configs``: the settings of topics and brokers, the values in force, and changes.

Owns: the commands' options and output.  Must not know how settings take effect.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    fail,
    parse_assignments,
    print_json,
    print_table,
)
from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS, Setting
from sparklog.types import MAX_INT32

if TYPE_CHECKING:
    from sparklog.client.admin import Admin, ConfigEntry

#: Names of the places that a value in force comes from, by Kafka's ``ConfigSource``.
SOURCES = {
    1: "topic",
    2: "broker, while running",
    3: "all brokers, while running",
    4: "broker, at start",
    5: "default",
}


app = typer.Typer(
    help="List settings, show the values in force, and change them.", no_args_is_help=True
)
WordArgument = Annotated[
    str, typer.Argument(help="Only settings with this in their name.", show_default=False)
]


@app.command("list")
def list_settings(word: WordArgument = "", as_json: JsonOption = False) -> None:
    """List the settings of topics and brokers: types, defaults, ranges and what they do."""
    columns = ["of", "name", "type", "default", "changes", "expected", "doc"]
    _show(columns, _known(word), word, as_json)


@app.command()
def describe(
    word: WordArgument = "",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="May be repeated.", show_default="all topics"),
    ] = None,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            min=0, max=MAX_INT32, help="Of a node; may be repeated.", show_default="all nodes"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the values in force in a cluster, and where they come from.

    With --topic or --broker, only those of these topics and nodes.
    """
    columns = ["of", "name", "value", "from", "changes"]
    _show(columns, _in_force(bootstrap, word, topic or [], broker or []), word, as_json)


@app.command()
def alter(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Alter settings of this topic.")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_INT32, help="Alter settings of this broker, while it runs."),
    ] = None,
    all_brokers: Annotated[
        bool, typer.Option("--all-brokers", help="Alter settings of all brokers.")
    ] = False,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            "--delete",
            "-d",
            metavar="NAME",
            help="Go back to the next value in the order of docs/settings.md; may be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the cluster check the changes, and make none.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a topic, of a broker or of all brokers, at once and without a restart.

    All changes of one command are made, or none of them.
    """
    targets = [topic is not None, broker is not None, all_brokers]
    if sum(targets) != 1:
        raise typer.BadParameter("give one of --topic, --broker and --all-brokers")
    changes = _changes(assign or [], delete or [])
    resource = f"topic {topic}" if topic is not None else f"broker {broker}"
    resource = "all brokers" if all_brokers else resource
    _alter(bootstrap, topic, broker, changes, dry_run)
    if as_json:
        print_json({"of": resource, "changes": changes, "dry_run": dry_run})
        return
    shown = (
        f"{name}={value}" if value is not None else f"no {name}" for name, value in changes.items()
    )
    verb = "Would alter" if dry_run else "Altered"
    typer.echo(f"{verb} {resource}: {', '.join(shown)}.")


def _changes(assigned: list[str], deleted: list[str]) -> dict[str, str | None]:
    """New values by name; None deletes a setting.  Raises typer.BadParameter."""
    changes: dict[str, str | None] = dict(parse_assignments(assigned, "--set"))
    if len(changes) < len(assigned):
        raise typer.BadParameter("it names a setting twice", param_hint="--set")
    for name in deleted:
        if not name.strip() or "=" in name:
            raise typer.BadParameter(f"{name!r} is no name", param_hint="--delete")
        if name in changes:
            text = f"{name!r} is also set, or deleted twice"
            raise typer.BadParameter(text, param_hint="--delete")
        changes[name] = None
    if not changes:
        raise typer.BadParameter("give --set NAME=VALUE or --delete NAME")
    return changes


def _alter(
    bootstrap: str,
    topic: str | None,
    broker: int | None,
    changes: dict[str, str | None],
    dry_run: bool,
) -> None:
    from sparklog.cli.topics import with_admin
    from sparklog.errors import ErrorCode, KafkaError

    async def work(admin: "Admin") -> None:
        if topic is not None:
            await admin.alter_topic_configs(topic, changes, validate_only=dry_run)
        else:
            await admin.alter_broker_configs(broker, changes, validate_only=dry_run)

    try:
        with_admin(bootstrap, work)
    except KafkaError as error:
        hint = _hint(changes, of_topic=topic is not None)
        if error.code != ErrorCode.INVALID_CONFIG or not hint:
            raise
        raise KafkaError(error.code, f"{error}; {hint}") from error


def _hint(changes: Iterable[str], *, of_topic: bool) -> str:
    """A question about the first name that looks like a slip; empty without one."""
    known = (
        [setting.name for setting in TOPIC_SETTINGS] if of_topic else list(BROKER_SETTING_BY_NAME)
    )
    for name in changes:
        close = get_close_matches(name, known, 1)
        if name not in known and close:
            return f"did you mean {close[0]}?"
    return ""


def _show(columns: list[str], rows: list[dict[str, Any]], word: str, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    elif rows:
        print_table(columns, rows)
    else:
        raise typer.Exit(fail(f"no setting has {word!r} in its name", 1))


def _known(word: str) -> list[dict[str, Any]]:
    return [
        _row(kind, setting)
        for kind, settings in (
            ("topic", TOPIC_SETTINGS),
            ("broker", [BROKER_SETTING_BY_NAME[name] for name in sorted(BROKER_SETTING_BY_NAME)]),
        )
        for setting in settings
        if word.lower() in setting.name
    ]


def _row(kind: str, setting: Setting) -> dict[str, Any]:
    return {
        "of": kind,
        "name": setting.name,
        "type": setting.kind.lower(),
        "default": None if setting.default is None else setting.render(setting.default),
        "changes": "while running" if setting.dynamic else "at start",
        "expected": setting.expected,
        "doc": setting.doc,
    }


def _in_force(
    bootstrap: str, word: str, topics: list[str], brokers: list[int]
) -> list[dict[str, Any]]:
    from sparklog.cli.topics import with_admin

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        every = not topics and not brokers
        names = sorted(await admin.list_topics()) if every else topics
        nodes = brokers
        if every:
            nodes = [node.node_id for node in (await admin.describe_cluster()).nodes]
        rows: list[dict[str, Any]] = []
        for name in dict.fromkeys(names):
            rows += _values(f"topic {name}", await admin.describe_topic_configs(name))
        for node_id in dict.fromkeys(nodes):
            rows += _values(f"broker {node_id}", await admin.describe_broker_configs(node_id))
        return rows

    return [row for row in with_admin(bootstrap, work) if word.lower() in row["name"]]


def _values(resource: str, entries: "dict[str, ConfigEntry]") -> list[dict[str, Any]]:
    return [
        {
            "of": resource,
            "name": entry.name,
            "value": entry.value,
            "from": SOURCES.get(entry.source, str(entry.source)),
            "changes": "at start" if entry.read_only else "while running",
        }
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
    ]
