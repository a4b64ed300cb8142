"""The table of commands, and exit codes for errors.

Owns: the application of typer.  Must not know what a command does.
"""

import os
import sys

import typer

from sparklog.cli import (
    brokers,
    configs,
    consume,
    demo,
    dump,
    elect_leaders,
    groups,
    journal,
    log_dirs,
    produce,
    reassign,
    restore,
    serve,
    status,
    topics,
    txns,
)
from sparklog.cli.output import EXIT_CODES, EXIT_FAILED, EXIT_USAGE, exit_code, fail
from sparklog.errors import SparklogError

app = typer.Typer(
    name="sparklog",
    help="A partitioned log inside a Spark application, which any Kafka client can talk to.",
    epilog="Exit codes: " + "; ".join(f"{code}: {what}" for code, what in EXIT_CODES.items()),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve.serve)
app.command()(restore.restore)
app.command()(demo.demo)
app.add_typer(topics.app, name="topics")
app.command()(brokers.brokers)
app.command()(status.status)
app.add_typer(configs.app, name="configs")
app.command()(elect_leaders.elect_leaders)
app.add_typer(reassign.app, name="reassign")
app.command()(log_dirs.log_dirs)
app.add_typer(journal.app, name="journal")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(txns.app, name="txns")
app.command()(dump.dump)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from sparklog import __version__

        typer.echo(f"sparklog {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code (``EXIT_CODES``).

    Typer itself reports wrong usage.
    """
    for argument in arguments:
        if not _is_text(argument):
            return fail(f"the argument {argument!r} is not text in UTF-8", EXIT_USAGE)
    try:
        app(arguments, prog_name="sparklog")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except SparklogError as error:
        return fail(str(error), exit_code(error))
    except BrokenPipeError:  # the reader of our output has gone, as ``| head`` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a file that cannot be read or written
        return fail(str(error), EXIT_FAILED)
    return 0


def _is_text(argument: str) -> bool:
    """Whether an argument's bytes were UTF-8.  Other bytes arrive as lone surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True
