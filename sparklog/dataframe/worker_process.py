"""What Spark's Python processes spare themselves from task to task.

Owns: the one setting of such a process.  Must not know what its tasks do.

Spark collects garbage after every task and every step of a plan, and so looks at all that was ever
imported: 35 ms of CPU each time, more than a small task takes.  What is there when the first task
begins stays for as long as the process lives.
"""

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_settled = False


def settle_process() -> None:
    """Have no collection look at what was imported so far; only in a process of Spark's daemon."""
    global _settled
    if _settled or not _is_of_the_daemon():
        return
    _settled = True
    gc.freeze()


def _is_of_the_daemon() -> bool:
    """Whether Spark has made this process for its tasks: no user's objects are in it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON
