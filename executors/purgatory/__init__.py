"""Delayed operations of a broker.

Owns: operations that wait for a condition or for their deadline, the timer and its timing wheel.
Must not know how an operation completes.
"""

from sparklog.executors.purgatory.purgatory import Owner, Purgatory
from sparklog.executors.purgatory.timer import Timer, Timers

__all__ = [
    "Owner",
    "Purgatory",
    "Timer",
    "Timers",
]
