"""What commands print: tables for people, one JSON document for machines, errors on stderr.

Owns: the shared options of client commands and both kinds of output.  Must not know commands.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="SPARKLOG_BOOTSTRAP_SERVERS",
        help="A node of the cluster, or several with commas between them.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def fail(message: str, code: int) -> int:
    """Tell an error on stderr; the exit code."""
    sys.stderr.write(f"sparklog: {message}\n")
    return code


def print_json(document: Any) -> None:
    """One JSON document on stdout, on one line."""
    sys.stdout.write(json.dumps(document) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A table on stdout, as wide as its content when nobody is looking at it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 500)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numbers = {name for name in columns if rows and isinstance(rows[0][name], int | float)}
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value)


def parse_bootstrap(text: str) -> str:
    """Check ``HOST:PORT,...``.  Raises typer.BadParameter."""
    from sparklog.types import Endpoint

    try:
        endpoints = [Endpoint.parse(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from None
    if not endpoints:
        raise typer.BadParameter("it is empty", param_hint="--bootstrap")
    return text


def parse_assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping.  Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found
