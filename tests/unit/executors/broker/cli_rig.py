"""The command line against a control plane and brokers that run on a loop in another thread."""

import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from sparklog.cli.app import run
from sparklog.client.event_loop_thread import EventLoopThread
from tests.unit.executors.broker.broker_rig import Rig

T = TypeVar("T")


class CommandLine:
    """``do`` runs something on the rig's loop; ``json`` and ``text`` run a command."""

    def __init__(self, rig: Rig, loop: EventLoopThread, capsys: pytest.CaptureFixture[str]) -> None:
        self.rig = rig
        self._loop = loop
        self._capsys = capsys

    def do(self, work: Callable[[Rig], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(work(self.rig))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        self._capsys.readouterr()
        code = run([*arguments, "-b", f"127.0.0.1:{self.rig.control.port}"])
        return (code, *self._capsys.readouterr())

    def json(self, *arguments: str) -> Any:
        code, out, errors = self.run(*arguments, "--json")
        assert code == 0, errors
        return json.loads(out)

    def text(self, *arguments: str) -> list[str]:
        """The lines of a command that succeeds."""
        code, out, errors = self.run(*arguments)
        assert code == 0, errors
        return [line.rstrip() for line in out.splitlines()]


@contextmanager
def command_line(
    brokers: int, capsys: pytest.CaptureFixture[str], **settings: str
) -> Iterator[CommandLine]:
    """A cluster of so many brokers."""
    loop = EventLoopThread("rig")
    opened = Rig.open(settings)
    rig = loop.run(opened.__aenter__())
    try:
        line = CommandLine(rig, loop, capsys)
        for broker_id in range(1, brokers + 1):
            line.do(lambda rig, number=broker_id: rig.start_broker(number))
        yield line
    finally:
        loop.run(opened.__aexit__(None, None, None))
        loop.close()
