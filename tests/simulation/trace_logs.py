"""What the code under test logs, as part of a world's trace.

Owns: the handler that is on sparklog's and asyncio's loggers while a world runs.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sparklog.errors import SparklogError
from tests.simulation.actors import current_node

LOGGERS = ("sparklog", "asyncio")


class Noting(Protocol):
    #: Errors that nobody meant, of processes that live.
    unexpected: list[str]

    def note(self, text: str) -> None: ...


class _Handler(logging.Handler):
    def __init__(self, world: Noting) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        node = current_node()
        error = record.exc_info[1] if record.exc_info else None
        who = node.name if node is not None else "world"
        text = f"{who} {record.levelname}: {record.getMessage()}"
        if error is not None:
            text += f" ({error!r})"
            dead = node is not None and node.dead
            if not dead and not isinstance(error, SparklogError):
                self._world.unexpected.append(text)
        self._world.note(text)


@contextmanager
def captured_logs(world: Noting) -> Iterator[None]:
    """Notes every record from INFO up, and keeps them from everybody else."""
    handler = _Handler(world)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
