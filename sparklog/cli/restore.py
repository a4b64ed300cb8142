"""``sparklog restore``: a cluster whose disks are gone, from its journal and its remote_dir.

Owns: the command's options and its report.  Must not know what is restored, or how.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.foreground import (
    EngineName,
    StopRequested,
    arm_signals,
    log_to_stderr,
    run_until_signal,
    signals_as_exceptions,
    stdout_to_ourselves,
)
from sparklog.cli.output import JsonOption, parse_assignments

if TYPE_CHECKING:
    from sparklog.restoring import Restored, RestoredTopic


def restore(
    data_dir: Annotated[
        list[Path],
        typer.Option("--data-dir", help="Folder for the new logs; further ones share them."),
    ],
    journal_dir: Annotated[
        str, typer.Option(help="Where the cluster's journal is; s3://BUCKET/FOLDER too.")
    ],
    remote_dir: Annotated[str, typer.Option(help="Where the segments of its tiered topics are.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Let topics that are not tiered begin empty.")
    ] = False,
    brokers: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Brokers to run.", show_default="as many as before"),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Run brokers in Spark, or as plain processes.")
    ] = EngineName.SPARK,
    master: Annotated[
        str | None, typer.Option(help="Spark master.", show_default="local[brokers + 2]")
    ] = None,
    host: Annotated[str, typer.Option(help="Where the cluster listens.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of node 0; 0 for any free one.")
    ] = 9092,
    storage_options: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            metavar="NAME=VALUE",
            help="Opens the buckets, such as endpoint_url=URL; may be repeated. Secrets are better "
            "off in AWS_... variables.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A broker setting; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, to stderr.")] = False,
) -> None:
    """Start a cluster whose disks are all gone, and run it until SIGTERM or Ctrl-C.

    Tiered topics come back with what is in --remote-dir. Other topics keep their names and settings
    and begin empty, if --accept-loss says so. Prints what has come back, a line for each topic, and
    then "ready bootstrap=HOST:PORT". Later starts are those of `sparklog serve`.
    """
    log_to_stderr(verbose=verbose)
    from sparklog.restoring import plan_restore

    options: dict[str, Any] = {
        "settings": parse_assignments(settings or [], "--set"),
        "storage_options": parse_assignments(storage_options or [], "--storage-option"),
    }
    plan = plan_restore(
        journal_dir, options["storage_options"], options["settings"], accept_loss=accept_loss
    )
    options |= {
        "brokers": max(brokers or 1, plan.brokers),
        "data_dir": data_dir,
        "journal_dir": journal_dir,
        "remote_dir": remote_dir,
        "accept_loss": accept_loss,
        "host": host,
        "port": port,
    }
    try:
        with stdout_to_ourselves() as stdout, signals_as_exceptions():
            if engine is EngineName.PROCESS:
                _restore_processes(options, stdout, as_json)
            else:
                _restore_in_spark(master, options, stdout, as_json)
    except StopRequested:
        return


def _restore_processes(options: dict[str, Any], stdout: int, as_json: bool) -> None:
    from sparklog.restoring import restore_processes

    _run(restore_processes(**options), stdout, as_json)


def _restore_in_spark(
    master: str | None, options: dict[str, Any], stdout: int, as_json: bool
) -> None:
    from sparklog.restoring import restore as restore_in_spark
    from sparklog.session import create_session

    spark = create_session(master, options["brokers"], "sparklog restore")
    try:
        arm_signals()  # PySpark has put its own SIGINT handler in place
        _run(restore_in_spark(spark, **options), stdout, as_json)
    finally:
        spark.stop()


def _run(restored: "Restored", stdout: int, as_json: bool) -> None:
    describe = _document if as_json else _line
    for topic in restored.topics:
        os.write(stdout, f"{describe(topic)}\n".encode())
    run_until_signal(restored.cluster, stdout)


def _document(topic: "RestoredTopic") -> str:
    return json.dumps(
        {
            "topic": topic.topic,
            "partitions": topic.partitions,
            "tiered": topic.tiered,
            "offsets": topic.offsets,
            "emptied": topic.emptied,
            "waiting": topic.waiting,
            "lost": topic.lost,
        }
    )


def _line(topic: "RestoredTopic") -> str:
    line = f"restored topic={topic.topic} partitions={topic.partitions} offsets={topic.offsets}"
    if topic.emptied:
        line += f" empty={topic.emptied}"
    if topic.waiting:
        line += f" waiting={topic.waiting}"
    return f"{line} lost={topic.lost!r}"
