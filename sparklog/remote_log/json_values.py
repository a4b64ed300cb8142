"""Checks of the values in a JSON document.

Owns: what a number and a text must be.  Must not know what they mean.
"""

from typing import Any


def number_of(value: Any, lowest: int = 0) -> int:
    """The number.  Raises ValueError for anything else, also for one below ``lowest``."""
    if type(value) is not int or value < lowest:
        raise ValueError(f"{value!r} is not a number of at least {lowest}")
    return value


def text_of(value: Any) -> str:
    """The text.  Raises ValueError for anything else, also for an empty one."""
    if type(value) is not str or not value:
        raise ValueError(f"{value!r} is not a name")
    return value


def texts_of(value: Any) -> tuple[str, ...]:
    """The texts of a list.  Raises ValueError for anything else."""
    if type(value) is not list:
        raise ValueError(f"{value!r} is not a list of names")
    return tuple(map(text_of, value))
