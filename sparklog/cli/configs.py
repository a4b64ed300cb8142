"""``sparklog configs``: the settings that topics and brokers understand."""

from typing import Annotated, Any

import typer

from sparklog.cli.output import JsonOption, fail, print_json, print_table
from sparklog.config import BROKER_SETTING_BY_NAME, TOPIC_SETTINGS, Setting


def configs(
    word: Annotated[
        str, typer.Argument(help="Only settings with this in their name.", show_default=False)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show the settings of topics and brokers: types, defaults, ranges and what they do."""
    rows = [
        _row(kind, setting)
        for kind, settings in (
            ("topic", TOPIC_SETTINGS),
            ("broker", [BROKER_SETTING_BY_NAME[name] for name in sorted(BROKER_SETTING_BY_NAME)]),
        )
        for setting in settings
        if word.lower() in setting.name
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("of", "name", "type", "default", "changes", "expected", "doc"), rows)
    else:
        raise typer.Exit(fail(f"no setting has {word!r} in its name", 1))


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
