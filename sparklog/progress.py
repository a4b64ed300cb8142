"""Progress bars: on stderr in a terminal, as HTML in a notebook.

Owns: how progress looks.  Must not know what makes it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from sparklog.client.replica_moves import MoveProgress
from sparklog.plurals import counted

if TYPE_CHECKING:
    from rich.console import Console

#: Is told what is done, what there is in all, and the same in words.
ShowProgress = Callable[[float, float, str], None]


def progress_bar(title: str) -> AbstractContextManager[ShowProgress]:
    """A bar that stays on the screen at the end.

    Without a terminal and without a notebook the last state is printed.
    """
    from rich.console import Console

    console = Console(stderr=True)
    return _notebook_bar(title) if console.is_jupyter else _terminal_bar(title, console)


@contextmanager
def _terminal_bar(title: str, console: "Console") -> Iterator[ShowProgress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *(TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f} %")),
        *(TextColumn("{task.fields[words]}"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None, words="")

        def show(done: float, total: float, words: str) -> None:
            progress.update(task, completed=done, total=total, words=words)

        yield show


@contextmanager
def _notebook_bar(title: str) -> Iterator[ShowProgress]:
    """One HTML output that is updated; rich would need ipywidgets, and warn where it is missing."""
    ipython = import_module("IPython.display")
    shown = _bar_html(title, None, "")
    handle = ipython.display(ipython.HTML(shown), display_id=True)

    def show(done: float, total: float, words: str) -> None:
        nonlocal shown
        now = _bar_html(title, done / total if total else 1.0, words)
        if now != shown and handle is not None:  # None: this IPython has no kernel
            shown = now
            handle.update(ipython.HTML(now))

    yield show


def _bar_html(title: str, fraction: float | None, words: str) -> str:
    """A bar by the fraction that is done; None: it is not known."""
    if fraction is None:
        return f"{escape(title)} <progress></progress>"
    percent = round(100 * min(max(fraction, 0.0), 1.0))
    bar = f'<progress max="100" value="{percent}"></progress>'
    return f"{escape(title)} {bar} {percent} % {escape(words)}"


def show_moves(show: ShowProgress) -> Callable[[MoveProgress], None]:
    """Moves of replicas as progress: of bytes where there are some, else of partitions."""

    def show_one(seen: MoveProgress) -> None:
        done = seen.partitions_total - seen.partitions_left
        words = f"{done}/{counted(seen.partitions_total, 'partition')}"
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
