"""``sparklog serve``: a cluster in the foreground, until a signal.

Owns: the command's options, its one line on stdout, and signals.  Must not know how a cluster
works.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import fail, parse_assignments

if TYPE_CHECKING:
    from sparklog.cluster import Cluster

LOOK_SECONDS = 0.5


class EngineName(StrEnum):
    SPARK = "spark"
    PROCESS = "process"


class _StopRequested(BaseException):
    """A signal told the process to stop."""


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
    engine: Annotated[
        EngineName, typer.Option(help="Run brokers in Spark, or as plain processes.")
    ] = EngineName.SPARK,
    master: Annotated[
        str | None, typer.Option(help="Spark master.", show_default="local[brokers + spares + 2]")
    ] = None,
    host: Annotated[str, typer.Option(help="Where the cluster listens.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of node 0; 0 for any free one.")
    ] = 9092,
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
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more, to stderr.")] = False,
) -> None:
    """Run a cluster until SIGTERM or Ctrl-C.

    Prints exactly one line on stdout, "ready bootstrap=HOST:PORT", when clients can connect.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    options: dict[str, Any] = {
        "brokers": brokers,
        "spares": spares,
        "data_dir": data_dir,
        "journal_dir": journal_dir,
        "remote_dir": remote_dir,
        "host": host,
        "port": port,
        "settings": parse_assignments(settings or [], "--set"),
        "storage_options": parse_assignments(storage_options or [], "--storage-option"),
    }
    try:
        with _stdout_to_ourselves() as stdout, _signals_as_exceptions():
            if engine is EngineName.PROCESS:
                _serve_processes(options, stdout)
            else:
                _serve_spark(master, brokers + spares, options, stdout)
    except _StopRequested:
        return


def _serve_processes(options: dict[str, Any], stdout: int) -> None:
    from sparklog.cluster import start_processes

    _run(start_processes(**options), stdout)


def _serve_spark(master: str | None, brokers: int, options: dict[str, Any], stdout: int) -> None:
    from sparklog.cluster import start
    from sparklog.session import create_session

    spark = create_session(master, brokers, "sparklog serve")
    try:
        _arm_signals()  # PySpark has put its own SIGINT handler in place
        _run(start(spark, **options), stdout)
    finally:
        spark.stop()


def _run(cluster: "Cluster", stdout: int) -> None:
    """Print the ready line and wait for a signal.  The cluster is stopped in any case."""
    try:
        _arm_signals()
        os.write(stdout, f"ready bootstrap={cluster.bootstrap_servers}\n".encode())
        while not cluster.is_stopped:
            time.sleep(LOOK_SECONDS)
        raise typer.Exit(fail("the cluster has ended by itself; see its logs", 1))
    finally:
        _ignore_signals()
        cluster.stop()


@contextmanager
def _stdout_to_ourselves() -> Iterator[int]:
    """Yield a descriptor of stdout for the ready line.

    Meanwhile the output of the JVM, and all other output, goes to stderr.
    """
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield own
    finally:
        os.dup2(own, 1)
        os.close(own)


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    _arm_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _arm_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _raise_stop)


def _ignore_signals() -> None:
    """A second signal must not break the clean stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _raise_stop(_number: int, _frame: object) -> None:
    _ignore_signals()
    raise _StopRequested
