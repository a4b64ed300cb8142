"""What Spark's Python processes spare themselves from task to task, and users in their errors.

Owns: the settings of such a process.  Must not know what its tasks do.

Spark collects garbage after every task and every step of a plan, and so looks at all that was ever
imported: 20 to 35 ms of CPU each time, more than a small task takes.  When modules have come since
the last time, what is there as a task begins is set aside for as long as the process lives.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import SparklogError

#: Has PySpark report the exception that ends a process of its own without a traceback.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_DAEMON: Final = "pyspark.daemon"
#: How many modules there were when it was done last: tasks import more, and Spark behind them.
_modules = 0


def settle_process() -> None:
    """Have no collection look at what was imported so far; only in a process of Spark's daemon.

    For the beginning of a task, when Spark has just collected what the one before left.
    """
    global _modules
    if _modules == len(sys.modules) or not _is_of_the_daemon():
        return
    _modules = len(sys.modules)
    gc.freeze()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have Spark show an error of sparklog as its message, without a traceback of our modules.

    Such errors name the thing and the remedy.  An exception ends the process, so that no later
    error is affected.  Does nothing outside of a process that Spark made for its tasks and plans.
    """
    try:
        yield
    except SparklogError:
        if _is_of_pyspark():
            os.environ[_HIDE_TRACEBACK] = "true"
        raise


def _is_of_pyspark() -> bool:
    """Whether one of PySpark's own modules is the main module of this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _is_of_the_daemon() -> bool:
    """Whether Spark has made this process for its tasks: no user's objects are in it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON
