"""``sparklog serve``: a cluster in the foreground, until a signal.

Owns: the command's options.  Must not know how a cluster works.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from sparklog.cli.foreground import (
    EngineName,
    EngineOption,
    HostOption,
    PortOption,
    SettingsOption,
    StopRequested,
    VerboseOption,
    log_to_stderr,
    run_until_signal,
    signals_as_exceptions,
    spark_session,
    stdout_to_ourselves,
)
from sparklog.cli.output import parse_assignments
from sparklog.cli.storage_options import StorageOptionsOption, parse_storage_options


def serve(
    data_dir: Annotated[
        list[Path],
        typer.Option(
            "--data-dir",
            help="Folder for logs and journal; further ones, on other disks, share the logs.",
        ),
    ],
    brokers: Annotated[int, typer.Option(min=1, max=1000, help="Brokers to run.")] = 3,
    spares: Annotated[
        int, typer.Option(min=0, max=1000, help="Slots held for brokers that lose theirs.")
    ] = 0,
    engine: EngineOption = EngineName.SPARK,
    master: Annotated[
        str | None, typer.Option(help="Spark master.", show_default="local[brokers + spares + 2]")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 9092,
    journal_dir: Annotated[
        str | None,
        typer.Option(
            help="Where the journal is kept; s3://BUCKET/FOLDER too.", show_default="in --data-dir"
        ),
    ] = None,
    remote_dir: Annotated[
        str | None,
        typer.Option(
            help="Where segments of tiered topics are copied to: s3://BUCKET/FOLDER, or a folder "
            "that all brokers share.",
            show_default="no topic is tiered",
        ),
    ] = None,
    storage_options: StorageOptionsOption = None,
    settings: SettingsOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a cluster until SIGTERM or Ctrl-C.

    Prints exactly one line on stdout, "ready bootstrap=HOST:PORT", when clients can connect.
    """
    log_to_stderr(verbose=verbose)
    options: dict[str, Any] = {
        "brokers": brokers,
        "spares": spares,
        "data_dir": data_dir,
        "journal_dir": journal_dir,
        "remote_dir": remote_dir,
        "host": host,
        "port": port,
        "settings": parse_assignments(settings or [], "--set"),
        "storage_options": parse_storage_options(storage_options),
    }
    try:
        with stdout_to_ourselves() as stdout, signals_as_exceptions():
            if engine is EngineName.PROCESS:
                _serve_processes(options, stdout)
            else:
                _serve_spark(master, brokers + spares, options, stdout)
    except StopRequested:
        return


def _serve_processes(options: dict[str, Any], stdout: int) -> None:
    from sparklog.cluster import start_processes

    run_until_signal(start_processes(**options), stdout)


def _serve_spark(master: str | None, brokers: int, options: dict[str, Any], stdout: int) -> None:
    from sparklog.cluster import start

    with spark_session(master, brokers, "sparklog serve") as spark:
        run_until_signal(start(spark, **options), stdout)
