"""Progress bars on stderr, for the command line and for notebooks.

Owns: how progress looks.  Must not know what makes it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparklog.client.replica_moves import MoveProgress

#: Is told what is done, what there is in all, and the same in words.
ShowProgress = Callable[[float, float, str], None]


@contextmanager
def progress_bar(title: str) -> Iterator[ShowProgress]:
    """A bar that stays on the screen at the end; without a terminal its last state is printed."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *(TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f} %")),
        *(TextColumn("{task.fields[words]}"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None, words="")

        def show(done: float, total: float, words: str) -> None:
            progress.update(task, completed=done, total=total, words=words)

        yield show


def show_moves(show: ShowProgress) -> Callable[[MoveProgress], None]:
    """Moves of replicas as progress: of bytes where there are some, else of partitions."""

    def show_one(seen: MoveProgress) -> None:
        done = seen.partitions_total - seen.partitions_left
        words = f"{done}/{seen.partitions_total} partitions"
        if seen.bytes_total:
            copied, total = seen.bytes_copied, seen.bytes_total
            show(copied, total, f"{words}, {_size(copied)} of {_size(total)}")
        else:
            show(done, seen.partitions_total, words)

    return show_one


def _size(count: float) -> str:
    """Bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
