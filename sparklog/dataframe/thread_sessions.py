"""The active Spark session of Python's threads, so that each thread can write to the data source.

Owns: the session of threads without one, in the JVM.  Must not know the writes.

Spark looks for a Python writer only in the session that is active in the calling thread
(``DataSource.lookupDataSource``).  A read sets the active session first; a write does not.  So a
write fails with DATA_SOURCE_NOT_FOUND in every thread except the thread that made the session.
Each thread of Python has a thread of the JVM, which inherits its session from the thread that
accepts connections.  The accepting thread is given Spark's default session, to which Spark falls
back everywhere else.
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
    """Give later threads that connect to this JVM a session; False if that is not possible.

    Threads that have a connection already keep their session: see ``activate``.
    """
    try:
        context = spark.sparkContext
    except Exception as error:  # Spark Connect sends the session with every request
        log.debug("threads need no session: %s", error)
        return False
    try:
        gateway = context._gateway
        if gateway not in _installed:
            listener = new_instance(context, THREAD_SESSIONS[0], compilation_unit(THREAD_SESSIONS))
            gateway.java_gateway_server.addListener(listener)
            _installed.add(gateway)
        _connect_once(context._jvm)
    except Exception as error:  # another version of Spark may lack any of this
        log.warning("write to topics from the main thread, or by cluster.write: %s", error)
        return False
    return True


def activate(spark: Any) -> None:
    """Make ``spark`` the active session of the calling thread, as ``createDataFrame`` does."""
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # None in Spark Connect
        spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session)


def _connect_once(jvm: Any) -> None:
    """Make one connection, so that the session reaches the thread of the next connection.

    The reason: Py4J calls the listener after it has started the thread of a connection.
    """
    first = threading.Thread(target=jvm.java.lang.System.nanoTime, daemon=True)
    first.start()
    first.join()
