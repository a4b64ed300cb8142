"""``sparklog restore``: a cluster whose disks are gone, from its journal and its remote_dir.

Owns: the command's options and its report.  Must not know what is restored, or how.
"""

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from sparklog.cli.output import JsonOption, parse_assignments
from sparklog.cli.storage_options import StorageOptionsOption, parse_storage_options

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
    engine: EngineOption = EngineName.SPARK,
    master: Annotated[
        str | None, typer.Option(help="Spark master.", show_default="local[brokers + 2]")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 9092,
    storage_options: StorageOptionsOption = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Start a cluster whose disks are all gone, and run it until SIGTERM or Ctrl-C.

    Tiered topics come back with what is in --remote-dir. Other topics keep their names and settings
    and begin empty, if --accept-loss says so. Prints what has come back, a line for each topic, and
    then "ready bootstrap=HOST:PORT". Later starts are those of `sparklog serve`.
    """
    log_to_stderr(verbose=verbose)
    from sparklog.cluster import start_in_spark, start_on_this_machine
    from sparklog.restoring import plan_restore, restore_planned

    options: dict[str, Any] = {
        "settings": parse_assignments(settings or [], "--set"),
        "storage_options": parse_storage_options(storage_options),
    }
    plan = plan_restore(
        journal_dir, options["storage_options"], options["settings"], accept_loss=accept_loss
    )
    options |= {
        "brokers": plan.brokers_to_start(brokers),
        "data_dir": data_dir,
        "journal_dir": journal_dir,
        "remote_dir": remote_dir,
        "host": host,
        "port": port,
    }
    try:
        with stdout_to_ourselves() as stdout, signals_as_exceptions():
            if engine is EngineName.PROCESS:
                _run(restore_planned(plan, start_on_this_machine, **options), stdout, as_json)
            else:
                with spark_session(master, options["brokers"], "sparklog restore") as spark:
                    start = partial(start_in_spark, spark)
                    _run(restore_planned(plan, start, **options), stdout, as_json)
    except StopRequested:
        return


def _run(restored: "Restored", stdout: int, as_json: bool) -> None:
    describe = _document if as_json else _line
    for topic in restored.topics:
        os.write(stdout, f"{describe(topic)}\n".encode())
    for topic_id in restored.unknown_topics:
        kept = (
            json.dumps({"unknown_topic_id": str(topic_id)}) if as_json else f"unknown {topic_id=!s}"
        )
        os.write(stdout, f"{kept}\n".encode())
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
