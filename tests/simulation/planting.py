"""Deliberate bugs: their table, and how long one is in place.

Owns: the bugs by name.  Must not know what they do.  A patch names what it replaces, so one that
has nothing to replace any more fails.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

#: One attribute of one object, and what stands there meanwhile.
Patch = tuple[Any, str, Any]
Bug = Callable[[], list[Patch]]

BUGS: dict[str, Bug] = {}
#: Bugs that the seeds are not known to show.
UNHUNTED: dict[str, Bug] = {}


def bug(make: Bug) -> Bug:
    """Put a bug into the table, under its function's name."""
    BUGS[make.__name__] = make
    return make


def unhunted(make: Bug) -> Bug:
    """A bug that the seeds are not known to show; it can be planted, and is not in ``BUGS``."""
    UNHUNTED[make.__name__] = make
    return make


def patches_of(name: str) -> list[Patch]:
    """What a bug replaces."""
    return (BUGS.get(name) or UNHUNTED[name])()


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The bug is in the code meanwhile; None: there is none."""
    with ExitStack() as stack:
        for target, attribute, substitute in patches_of(name) if name is not None else ():
            stack.enter_context(patch.object(target, attribute, substitute))
        yield
