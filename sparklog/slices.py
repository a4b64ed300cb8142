"""Work that is done in slices, so that an event loop serves others in between.

Owns: the shape of such work, the unit in which its cost is counted, and running it through at once.
Must not know event loops, connections, or any particular work.

Cost is counted from numbers of items, never measured: the same request is divided in the same way
on every machine and in the simulation.  One unit stands for about one microsecond of CPU time.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeGuard, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
GroupT = TypeVar("GroupT")
MadeT = TypeVar("MadeT")

#: Yields what was spent since the last yield, in units, and returns a result.
Slices = Generator[int, None, ResultT]

#: Units after which sliced work yields; what it does between two yields cannot be divided.
SLICE_UNITS: Final = 500
#: Items of a message that are decoded or encoded at once; more are handled in slices.
ITEMS_AT_ONCE: Final = 500
#: Units of a group of items, a topic for example, beside those of its items.
_GROUP_UNITS: Final = 3


def run_through(slices: Slices[ResultT]) -> ResultT:
    """All slices here and now; the result."""
    try:
        while True:
            next(slices)
    except StopIteration as end:
        value: ResultT = end.value
        return value


def in_slices(
    function: Callable[[ItemT], ResultT], items: Iterable[ItemT], units: int
) -> Slices[list[ResultT]]:
    """``function`` of every item, each of which costs ``units``."""
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
    """What ``make`` makes of every group and of ``function`` of its items, which cost ``units``."""
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
