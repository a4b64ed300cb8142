"""``sparklog configs``: the settings of topics and brokers, and the values in force.

Owns: the command's options and output.  Must not know how settings take effect.
"""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_BOOTSTRAP,
    JsonOption,
    fail,
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


def configs(
    word: Annotated[
        str, typer.Argument(help="Only settings with this in their name.", show_default=False)
    ] = "",
    # Not read from the environment: a variable would replace the list of all settings by the values
    # in force.
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT",
            help="Show the settings in force in a cluster.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", help="In force for this topic; may be repeated.", show_default="all"
        ),
    ] = None,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MAX_INT32,
            help="In force at this node; may be repeated.",
            show_default="all",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the settings of topics and brokers: types, defaults, ranges and what they do.

    With --bootstrap, --topic or --broker: the values in force in a cluster, and where they come
    from.
    """
    if bootstrap is None and (topic or broker is not None):
        bootstrap = os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP)
    if bootstrap is None:
        columns = ["of", "name", "type", "default", "changes", "expected", "doc"]
        rows = _known(word)
    else:
        columns = ["of", "name", "value", "from", "changes"]
        rows = _in_force(bootstrap, word, topic or [], broker or [])
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
