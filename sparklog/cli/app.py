"""The table of commands, and errors as exit codes."""

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
    log_dirs,
    produce,
    reassign,
    serve,
    topics,
)
from sparklog.cli.output import fail
from sparklog.errors import ConnectError, SparklogError

EXIT_FAILED = 1
EXIT_NOT_REACHED = 3

app = typer.Typer(
    name="sparklog",
    help="A partitioned log inside a Spark application, which any Kafka client can talk to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve.serve)
app.command()(demo.demo)
app.add_typer(topics.app, name="topics")
app.command()(brokers.brokers)
app.command()(configs.configs)
app.command()(elect_leaders.elect_leaders)
app.add_typer(reassign.app, name="reassign")
app.command()(log_dirs.log_dirs)
app.command()(produce.produce)
app.command()(consume.consume)
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
    """Run one command; its exit code.  Wrong usage is told by typer itself."""
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_FAILED
    except ConnectError as error:
        return fail(str(error), EXIT_NOT_REACHED)
    except SparklogError as error:
        return fail(str(error), EXIT_FAILED)
    except BrokenPipeError:  # the reader of our output has gone, as ``| head`` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
