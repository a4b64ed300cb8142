"""Work that is part looking at state and part blocking: a generator of the blocking parts.

Owns: the shape, and running one through at once.  Must not know the work.  Whoever has an event
loop runs the parts in worker threads instead.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

#: Yields calls that block and touch nothing but files, is sent their results (or thrown their
#: exceptions), and returns a ``T``.  What it looks at may have changed meanwhile.
Steps = Generator[Callable[[], Any], Any, T]


def run_through(steps: Steps[T]) -> T:
    """Every part here and now."""
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
