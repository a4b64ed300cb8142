"""Sliced work: work in slices, so that an event loop serves other events in between.

Owns: the type of sliced work, the unit of its cost, and running all slices at once.  Must not know
event loops, connections, or any particular work.

Cost is counted from numbers of items and never measured.  So the same request is divided in the
same way on every machine and in the simulation.  One unit stands for about one microsecond of CPU
time.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeGuard, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
GroupT = TypeVar("GroupT")
MadeT = TypeVar("MadeT")

#: Yields the units spent since the last yield, and returns a result.
Slices = Generator[int, None, ResultT]

#: Units after which sliced work yields; the work between two yields cannot be divided.
SLICE_UNITS: Final = 500
#: Items of a message that are decoded or encoded at once; messages with more take slices.
ITEMS_AT_ONCE: Final = 500
#: Units of a group of items, such as a topic, in addition to the units of its items.
_GROUP_UNITS: Final = 3


def run_through(slices: Slices[ResultT]) -> ResultT:
    """Run all slices at once and return the result."""
    try:
        while True:
            next(slices)
    except StopIteration as end:
        value: ResultT = end.value
        return value


def in_slices(
    function: Callable[[ItemT], ResultT], items: Iterable[ItemT], units: int
) -> Slices[list[ResultT]]:
    """Apply ``function`` to every item, at a cost of ``units`` per item."""
    results: list[ResultT] = []
    add = results.append
    spent = 0
    for item in items:
        add(function(item))
        spent += units
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    if spent:
        yield spent
    return results


def in_groups(
    groups: Iterable[GroupT],
    items_of: Callable[[GroupT], Iterable[ItemT]],
    function: Callable[[GroupT, ItemT], ResultT],
    make: Callable[[GroupT, tuple[ResultT, ...]], MadeT],
    units: int,
) -> Slices[tuple[MadeT, ...]]:
    """Apply ``function`` to all items, at ``units`` each, and ``make`` to all groups."""
    made: list[MadeT] = []
    spent = 0
    for group in groups:
        spent += _GROUP_UNITS
        results: list[ResultT] = []
        for item in items_of(group):
            results.append(function(group, item))
            spent += units
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        made.append(make(group, tuple(results)))
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    if spent:
        yield spent
    return tuple(made)


def are_slices(value: Any) -> TypeGuard[Slices[Any]]:
    """Whether a value is sliced work."""
    return type(value) is _GENERATOR


def _nothing() -> Slices[None]:
    yield 0


_GENERATOR: Final = type(_nothing())
