"""Settings of Spark's Python processes: cheaper garbage collection, and errors without tracebacks.

Owns: these settings.  Must not know what tasks do.

Spark collects garbage after every task and every step of a plan.  Each collection visits every
imported object: 20 to 35 ms of CPU time, more than a small task takes.  If modules were imported
since the last freeze, all objects at the begin of a task are frozen (``gc.freeze``) for the rest of
the process.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparklog.errors import SparklogError

#: Environment variable that makes PySpark report a final exception without a traceback.
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_DAEMON: Final = "pyspark.daemon"
#: Number of modules at the last freeze: tasks import more, and Spark does after them.
_modules = 0


def freeze_imported_objects() -> None:
    """Exclude imported objects from garbage collection; only in a process of Spark's daemon.

    Call this at the begin of a task, just after Spark has collected the garbage of the last task.
    """
    global _modules
    if _modules == len(sys.modules) or not _is_of_the_daemon():
        return
    _modules = len(sys.modules)
    gc.freeze()


@contextmanager
def plain_errors() -> Iterator[None]:
    """Make Spark show an error of sparklog as its message, without a traceback of our modules.

    Such errors name the subject and the remedy.  The exception ends the process, so no later error
    is affected.  No effect outside of a process that Spark made for its tasks and plans.
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
    """Whether Spark's daemon made this process for tasks; then it holds no user objects."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON
