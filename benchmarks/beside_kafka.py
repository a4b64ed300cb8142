"""``python -m benchmarks.beside_kafka``: Apache Kafka and sparklog in turns, in one run.

Needs Java, and Maven once, to fetch Kafka and Spark's package for it.  ``--only PART`` may be
repeated; it measures these parts alone, and the results of other parts stay.  Results are written
after each part, so that an interrupted run leaves them.  Every process is ended by its id, on
errors and Ctrl-C too.  Exits with 1 when a part failed or, with ``--check``, when a ratio is worse
than the recorded one.
"""

import argparse
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.harness import describe_machine
from benchmarks.kafka_nodes import describe_peers
from benchmarks.measurement import Measured, Part, Run, load, save
from benchmarks.plots import PlotsUnavailableError, draw
from benchmarks.record import RESULTS, check
from benchmarks.scale import Scale
from benchmarks.tables import HEADINGS, cells, section

_LOADS = ("rounds", "messages", "latency_seconds")
_COSTS = ("rounds", "cost_messages")
_TIERED = ("rounds", "tiered_messages", "latency_seconds")
#: Module and function of each part, and the fields of the scale that the part uses.
PARTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "one-broker": ("kafka_clients", "one_broker", _LOADS),
    "three-brokers": ("kafka_clients", "three_brokers", _LOADS),
    "failover": ("failover", "beside_kafka", ("kills",)),
    "partitions": ("kafka_cost", "partitions", _COSTS),
    "brokers": ("kafka_cost", "brokers", _COSTS),
    "compaction": ("compaction", "beside_kafka", ("long_rounds", "log_records")),
    "small-requests": ("small_requests", "small_requests", ("rounds",)),
    "groups": ("groups", "beside_kafka", ("rounds", "messages")),
    "transactions": ("transactions", "beside_kafka", ("rounds", "messages")),
    "tiering-folder": ("kafka_tiering", "in_a_folder", _TIERED),
    "tiering-bucket": ("kafka_tiering", "in_a_bucket", _TIERED),
    "reads": ("kafka_dataframes", "reads", ("rounds", "rows")),
    "writes": ("kafka_dataframes", "writes", ("rounds", "rows")),
}
_END_SECONDS_MAX = 10.0
_AS_IT_IS: dict[str, Any] = {"soft_wrap": True, "markup": False, "highlight": False}


def main() -> int:
    given = _arguments()
    scale = Scale(**{name: getattr(given, name) for name in Scale.__slots__})
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console()
    wanted = given.only or tuple(PARTS)
    run = load(given.out) if given.only else {}
    command = shlex.join(["python", "-m", "benchmarks.beside_kafka", *sys.argv[1:]])
    try:
        failed = _measure(wanted, scale, command, given.out, run, console)
    except KeyboardInterrupt:
        console.print(f"interrupted; {given.out} holds what was measured")
        return 130
    finally:
        _end_children()
    plots = given.out.with_name("plots")
    try:
        draw(run, plots)
    except PlotsUnavailableError as error:
        console.print(error)
    console.print(section({name: run[name] for name in wanted if name in run}, plots), **_AS_IT_IS)
    if failed:
        console.print(f"failed: {', '.join(failed)}")
        return 1
    return 1 if given.check and not check(run) else 0


def measure(name: str, scale: Scale, command: str, console: Console) -> Part:
    """Measure one of ``PARTS``."""
    module, function, fields = PARTS[name]
    began = time.monotonic()
    # Imported here, because DataFrames bring Spark along.
    work: Callable[[Console, Scale], list[Measured]] = getattr(
        import_module(f"benchmarks.{module}"), function
    )
    found = tuple(work(console, scale))
    return Part(
        machine=f"{describe_machine()}; {describe_peers()}",
        command=command,
        scale=scale.words(*fields),
        seconds=time.monotonic() - began,
        measured=found,
    )


def show(name: str, part: Part, console: Console) -> None:
    table = Table(title=f"{name}, {part.seconds:.0f} s")
    for heading in HEADINGS:
        table.add_column(heading)
    for each in part.measured:
        table.add_row(*cells(each))
    console.print(table)


def _measure(
    wanted: Sequence[str], scale: Scale, command: str, out: Path, run: Run, console: Console
) -> list[str]:
    """Fill ``run``; return the names of failed parts, of which ``run`` keeps the old results."""
    failed = []
    for name in wanted:
        try:
            run[name] = measure(name, scale, command, console)
        except Exception as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            traceback.print_exc()
            failed.append(name)
            continue
        show(name, run[name], console)
        save(run, out)
    return failed


def _arguments() -> argparse.Namespace:
    usual = Scale()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_kafka")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="measure this part")
    parser.add_argument("--rows", type=int, default=usual.rows)
    parser.add_argument("--messages", type=int, default=usual.messages, help="of 100 bytes")
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--kills", type=int, default=usual.kills)
    parser.add_argument("--latency-seconds", type=float, default=usual.latency_seconds)
    parser.add_argument("--out", type=Path, default=RESULTS, help="results (JSON), plots beside it")
    parser.add_argument("--check", action="store_true", help="compare with the recorded ratios")
    return parser.parse_args()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Turn a signal into an interruption, so that this process ends its servers too."""
    raise KeyboardInterrupt


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether an error came from the clean-up after an interruption."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _end_children() -> None:
    """End the children that an interruption left, for example Spark's JVM.

    Otherwise each part ends its own processes.
    """
    left = psutil.Process().children(recursive=True)
    for process in left:
        process.terminate()
    _, alive = psutil.wait_procs(left, timeout=_END_SECONDS_MAX)
    for process in alive:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
