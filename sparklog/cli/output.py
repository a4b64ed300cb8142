"""The output of commands: tables for people, one JSON document for machines, errors on stderr.

Owns: the shared options of client commands and both kinds of output.  Must not know commands.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

BOOTSTRAP_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVERS"
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="A node of the cluster, or several with commas between them.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_REACHED = 3
#: The meaning of every command's exit codes.  The page docs/cli.md has this table too.
EXIT_CODES = {
    0: "done",
    EXIT_FAILED: "refused or failed: the cluster refused it, a file is damaged, a part failed",
    EXIT_USAGE: "wrong usage: an option or argument that is unknown, missing or out of range",
    EXIT_NOT_REACHED: "no node of the cluster could be reached",
}


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error."""
    from sparklog.errors import ConnectError

    return EXIT_NOT_REACHED if isinstance(error, ConnectError) else EXIT_FAILED


def fail(message: str, code: int) -> int:
    """Print an error on stderr, and return the exit code ``code``."""
    sys.stderr.write(f"sparklog: {message}\n")
    return code


def print_json(document: Any) -> None:
    """Print one JSON document on stdout, on one line."""
    sys.stdout.write(json.dumps(document) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table on stdout, as wide as its content when stdout is no terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 500)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numbers = {name for name in columns if rows and isinstance(rows[0][name], int | float)}
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in columns))  # Text: without markup
    console.print(table)


def print_rows(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], as_json: bool, none: str = ""
) -> None:
    """Print rows as JSON or as a table; ``none`` stands for a table without rows."""
    if as_json:
        print_json(rows)
    elif none and not rows:
        typer.echo(none)
    else:
        print_table(columns, rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value)


def parse_bootstrap(text: str) -> str:
    """Check and return ``HOST:PORT,...``.  Raises typer.BadParameter."""
    from sparklog.types import Endpoint

    try:
        endpoints = [Endpoint.parse(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from None
    if not endpoints:
        raise typer.BadParameter("it is empty", param_hint="--bootstrap")
    return text


def parse_assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` texts as a mapping.  Raises typer.BadParameter."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[name.strip()] = value.strip()
    return found
