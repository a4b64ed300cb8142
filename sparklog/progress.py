"""Progress bars: on stderr in a terminal, as HTML in a notebook.

Owns: how the progress of moves and drains looks.  Must not know who moves or drains.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

from sparklog.client.replica_moves import MoveProgress
from sparklog.plurals import counted
from sparklog.wire.protocol.private import DrainedBroker

if TYPE_CHECKING:
    from rich.console import Console

#: Shows progress: the amount that is done, the whole amount, and both in words.
ShowProgress = Callable[[float, float, str], None]


def progress_bar(title: str) -> AbstractContextManager[ShowProgress]:
    """Open a progress bar that stays on the screen at the end.

    Without a terminal and without a notebook, only the last state is printed.

    Args:
        title: The text before the bar.

    Returns:
        A context manager, which gives the function that updates the bar.
    """
    from rich.console import Console

    console = Console(stderr=True)
    return _notebook_bar(title) if console.is_jupyter else _terminal_bar(title, console)


def optional_progress_bar(title: str, wanted: bool) -> AbstractContextManager[ShowProgress]:
    """``progress_bar``, or an updating function that shows nothing when no bar is wanted."""
    return progress_bar(title) if wanted else nullcontext(lambda _done, _total, _words: None)


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
    """One HTML output that is updated.  Rich would need ipywidgets, and warn when it is missing."""
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
    """The bar for the fraction that is done; None when the fraction is not known."""
    if fraction is None:
        return f"{escape(title)} <progress></progress>"
    percent = round(100 * min(max(fraction, 0.0), 1.0))
    bar = f'<progress max="100" value="{percent}"></progress>'
    return f"{escape(title)} {bar} {percent} % {escape(words)}"


def show_moves(show: ShowProgress) -> Callable[[MoveProgress], None]:
    """Return a function that shows moves of replicas, in bytes if possible, else in partitions."""

    def show_one(seen: MoveProgress) -> None:
        done = seen.partitions_total - seen.partitions_left
        words = f"{done}/{counted(seen.partitions_total, 'partition')}"
        if seen.bytes_total:
            copied, total = seen.bytes_copied, seen.bytes_total
            show(copied, total, f"{words}, {_size_text(copied)} of {_size_text(total)}")
        else:
            show(done, seen.partitions_total, words)

    return show_one


def show_drains(show: ShowProgress) -> Callable[[Sequence[DrainedBroker]], None]:
    """Return a function that shows how many replicas have left the brokers that are drained."""
    total = 0

    def show_drained(drained: Sequence[DrainedBroker]) -> None:
        nonlocal total
        left = sum(broker.partitions_left for broker in drained)
        stuck = sum(broker.partitions_stuck for broker in drained)
        total = max(total, left)
        words = f"{total - left}/{counted(total, 'replica')}"
        show(total - left, total, f"{words}, {stuck} cannot move now" if stuck else words)

    return show_drained


def _size_text(count: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
