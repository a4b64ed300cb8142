"""A cluster in the foreground of a command, until a signal.

Owns: the options that such commands share, the ready line on stdout, signals, and where other
output goes.  Must not know how a cluster is started.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparklog.cli.output import fail

if TYPE_CHECKING:
    from sparklog.cluster import Cluster

LOOK_SECONDS = 0.5


class EngineName(StrEnum):
    SPARK = "spark"
    PROCESS = "process"


EngineOption = Annotated[
    EngineName, typer.Option(help="Run brokers in Spark, or as plain processes.")
]
HostOption = Annotated[str, typer.Option(help="Where the cluster listens.")]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of node 0; 0 for any free one.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A broker setting; may be repeated."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more, to stderr.")]


class StopRequested(BaseException):
    """A signal told the process to stop."""


def log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def run_until_signal(cluster: "Cluster", stdout: int) -> None:
    """Print the ready line to a descriptor and wait for a signal.

    The cluster is stopped in any case.
    """
    try:
        arm_signals()
        os.write(stdout, f"ready bootstrap={cluster.bootstrap_servers}\n".encode())
        while not cluster.is_stopped:
            time.sleep(LOOK_SECONDS)
        raise typer.Exit(fail("the cluster has ended by itself; see its logs", 1))
    finally:
        _ignore_signals()
        cluster.stop()


@contextmanager
def spark_session(master: str | None, brokers: int, name: str) -> Iterator[Any]:
    """Yield a new Spark session with room for so many brokers, and stop it afterwards."""
    from sparklog.session import create_session

    spark = create_session(master, brokers, name)
    try:
        arm_signals()  # PySpark has put its own SIGINT handler in place
        yield spark
    finally:
        spark.stop()


@contextmanager
def stdout_to_ourselves() -> Iterator[int]:
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
def signals_as_exceptions() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    arm_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def arm_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _raise_stop)


def _ignore_signals() -> None:
    """A second signal must not break the clean stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _raise_stop(_number: int, _frame: object) -> None:
    _ignore_signals()
    raise StopRequested
