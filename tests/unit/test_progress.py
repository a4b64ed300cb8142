"""Progress bars where there is a terminal, a notebook, or neither."""

import builtins
import sys
import warnings
from types import ModuleType
from typing import Any

import pytest

from sparklog.client.replica_moves import MoveProgress
from sparklog.progress import progress_bar, show_drains, show_moves
from sparklog.wire.protocol.private import DrainedBroker


class ZMQInteractiveShell:
    """The name by which a notebook's kernel is known."""


class Notebook:
    """What a notebook shows: the latest HTML of every output."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.updates = 0

    def display(self, markup: str, *, display_id: bool) -> Any:
        assert display_id
        self.outputs.append(markup)
        return self

    def update(self, markup: str) -> None:
        self.outputs[-1] = markup
        self.updates += 1


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A kernel with IPython and without ipywidgets."""
    notebook = Notebook()
    module = ModuleType("IPython.display")
    vars(module).update(display=notebook.display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    return notebook


def test_a_notebook_gets_one_bar_without_widgets_or_warnings(
    notebook: Notebook, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with progress_bar("moving <replicas>") as show:
            assert notebook.outputs == ["moving &lt;replicas&gt; <progress></progress>"]
            show(1, 4, "1/4 partitions")
            show(1, 4, "1/4 partitions")
            assert notebook.outputs == [
                'moving &lt;replicas&gt; <progress max="100" value="25"></progress> '
                "25 % 1/4 partitions"
            ]
            show(0, 0, "nothing to do")
    assert notebook.outputs[-1].endswith('value="100"></progress> 100 % nothing to do')
    assert (len(notebook.outputs), notebook.updates) == (1, 2)
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_the_last_state_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar("moving replicas") as show:
        show(1, 2, "1/2 partitions")
        show(2, 2, "2/2 partitions")
    told = capfd.readouterr()
    assert told.out == ""
    assert "100 % 2/2 partitions" in told.err
    assert "1/2" not in told.err


def test_one_partition_is_not_many() -> None:
    seen: list[tuple[float, float, str]] = []

    def show(done: float, total: float, words: str) -> None:
        seen.append((done, total, words))

    for total in (1, 2):
        show_moves(show)(
            MoveProgress(partitions_total=total, partitions_left=0, bytes_total=0, bytes_copied=0)
        )
    assert seen == [(1, 1, "1/1 partition"), (2, 2, "2/2 partitions")]


def test_a_drain_counts_from_the_most_replicas_that_were_seen() -> None:
    seen: list[tuple[float, float, str]] = []

    def show(done: float, total: float, words: str) -> None:
        seen.append((done, total, words))

    show_drained = show_drains(show)
    for left, stuck in ((3, 0), (2, 1), (0, 0)):
        show_drained(
            [
                DrainedBroker(broker_id=1, partitions_left=left, partitions_stuck=stuck),
                DrainedBroker(broker_id=2, partitions_left=1 if left else 0),
            ]
        )
    assert seen == [
        (0, 4, "0/4 replicas"),
        (1, 4, "1/4 replicas, 1 cannot move now"),
        (4, 4, "4/4 replicas"),
    ]
