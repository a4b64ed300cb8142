"""What the code under test logs, as part of a world's trace.

Owns: the handler that is on sparklog's and asyncio's loggers while a world runs.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from actors import current_node

LOGGERS = ("sparklog", "asyncio")


class Noting(Protocol):
    def note(self, text: str) -> None: ...


class _Handler(logging.Handler):
    def __init__(self, world: Noting) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        node = current_node()
        error = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        who = node.name if node is not None else "world"
        self._world.note(f"{who} {record.levelname}: {record.getMessage()}{error}")


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
