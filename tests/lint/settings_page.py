"""docs/settings.md, from the tables of settings and limits.

``python -m tests.lint.settings_page`` writes the page, and a test beside it fails when that is due.
"""

from collections.abc import Iterable
from pathlib import Path

from sparklog.cli.limits import LIMITS
from sparklog.config import (
    BROKER_SETTING_BY_NAME,
    FOREIGN_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_INTRODUCTION = """\
# Settings

This page is made from the tables in `sparklog/config` by `python -m tests.lint.settings_page`. The
command `sparklog configs list` prints the same.

Names are Kafka's. A cluster takes broker settings at its start: `sparklog.start(...,
settings={...})` or `sparklog serve --set NAME=VALUE`. Settings that change *while running* can be
altered at any time, for one broker or (with an empty name) for all brokers, by
`sparklog configs alter`, `kafka-configs.sh`, IncrementalAlterConfigs or AlterConfigs. The journal
keeps the change, which takes effect at once.
Topic settings are given at a topic's creation and can be altered at any time.

The value in force for a topic is the first of these that exists: the topic's own value, the value
set at run time for the broker, the value set at run time for all brokers, the value at the broker's
start, Kafka's default. If a default has several names, the first given name counts.
"""


def due() -> str:
    """The document as the tables make it."""
    brokers = [BROKER_SETTING_BY_NAME[name] for name in sorted(BROKER_SETTING_BY_NAME)]
    return "\n".join(
        (
            _INTRODUCTION,
            "## Topics\n",
            *_settings(TOPIC_SETTINGS, topics=True),
            "\n## Brokers\n",
            *_settings(brokers, topics=False),
            "\n## Limits that are no settings\n",
            "| what | limit | beyond it |\n|---|---|---|",
            *(f"| {each.name} | {each.value:,} {each.unit} | {each.beyond} |" for each in LIMITS),
            "\n## Settings of Kafka that mean nothing here\n",
            "A broker's start accepts *ignored* settings with a warning, and refuses the others.",
            "A name may end in `*`.\n",
            "| names | | why |\n|---|---|---|",
            *(
                f"| {', '.join(f'`{name}`' for name in foreign.names)} "
                f"| {'ignored' if foreign.ignored else 'refused'} | {foreign.reason} |"
                for foreign in FOREIGN_SETTINGS
            ),
            "",
        )
    )


def _settings(settings: Iterable[Setting], *, topics: bool) -> list[str]:
    third = "broker-wide default" if topics else "changes"
    lines = [f"| name | expected | default | {third} | what it does |", "|---|---|---|---|---|"]
    for setting in settings:
        default = "" if setting.default is None else f"`{setting.render(setting.default)}`"
        names = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
        changes = "while running" if setting.dynamic else "at start"
        lines.append(
            f"| `{setting.name}` | {setting.expected} | {default} "
            f"| {names if topics else changes} | {setting.doc} |"
        )
    return lines


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(due())
