"""Work in steps: a generator that reads state itself and yields its blocking parts.

Owns: the type of such a generator, the mark of a long part, and a runner for callers without an
event loop.  Must not know the work.  Callers with an event loop run the blocking parts in worker
threads.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

#: A generator that yields calls which block and use nothing but files.  Each call's result is sent
#: back, or its exception thrown.  The generator returns a ``T``.  The log may change during a call.
Steps = Generator[Callable[[], Any], Any, T]


@dataclass(frozen=True, slots=True)
class LongPart:
    """A blocking part that may take many times longer than others, and more memory."""

    call: Callable[[], Any]

    def __call__(self) -> Any:
        return self.call()


def run_through(steps: Steps[T]) -> T:
    """Run all blocking parts in this thread."""
    try:
        part = next(steps)
        while True:
            try:
                result = part()
            except Exception as error:
                part = steps.throw(error)
            else:
                part = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
