"""Lets every Python thread write to ``format("sparklog")``.

Owns: the active Spark session of threads that have none, in the JVM.  Must not know what is
written.

Spark looks for a writer made in Python in the session that is active in the calling thread, and
only there (``DataSource.lookupDataSource``); other than a read, a write sets none first.  In any
thread but the one that made the session it fails with DATA_SOURCE_NOT_FOUND.  Each thread of Python
has one of the JVM, which inherits its session from the thread that accepts connections: that one is
given Spark's default session, which is what Spark falls back to everywhere else.
"""

import logging
import threading
from typing import Any
from weakref import WeakSet

from sparklog.dataframe.jvm import THREAD_SESSIONS, compilation_unit, new_instance

log = logging.getLogger(__name__)

#: Gateways that have the listener: one per JVM, which outlives Spark contexts.
_installed: "WeakSet[Any]" = WeakSet()


def install(spark: Any) -> bool:
    """Give threads that talk to this JVM from now on a session; False where that is not possible.

    Threads that did so before keep what they have: see ``activate``.
    """
    try:
        context = spark.sparkContext
    except Exception as error:  # Spark Connect, which knows the session of every request
        log.debug("threads need no session: %s", error)
        return False
    try:
        gateway = context._gateway
        if gateway not in _installed:
            listener = new_instance(context, THREAD_SESSIONS[0], compilation_unit(THREAD_SESSIONS))
            gateway.java_gateway_server.addListener(listener)
            _installed.add(gateway)
        _connect_once(context._jvm)
    except Exception as error:  # whatever another version of Spark lacks
        log.warning("write to topics from the main thread, or by cluster.write: %s", error)
        return False
    return True


def activate(spark: Any) -> None:
    """Make the session that of the calling thread, as ``spark.createDataFrame`` does."""
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # Spark Connect has none
        spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session)


def _connect_once(jvm: Any) -> None:
    """The listener is called behind the start of a connection's thread: the next one inherits."""
    first = threading.Thread(target=jvm.java.lang.System.nanoTime, daemon=True)
    first.start()
    first.join()
