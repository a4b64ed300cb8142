"""Active Spark sessions for all Python threads, so that each can write to ``format("sparklog")``.

Owns: the active Spark session of threads without one, in the JVM.  Must not know what is written.

Spark looks for a writer made in Python in the session that is active in the calling thread, and
only there (``DataSource.lookupDataSource``).  Unlike a read, a write sets no session first.  In any
thread but the one that made the session, it fails with DATA_SOURCE_NOT_FOUND.  Each Python thread
has a thread in the JVM, which inherits its session from the thread that accepts connections.  So
the accepting thread gets Spark's default session, Spark's fallback everywhere else.
"""

import logging
import threading
from typing import Any
from weakref import WeakSet

from sparklog.dataframe.jvm import new_instance

log = logging.getLogger(__name__)

_CLASS = "SparklogThreadSessions"
#: Listener that the accepting thread calls for every connection.
_JAVA = r"""
import org.apache.spark.sql.SparkSession;

public class CLASS extends py4j.DefaultGatewayServerListener {
  public void connectionStarted(py4j.Py4JServerConnection connection) {
    scala.Option session = SparkSession.getDefaultSession();
    if (session.isDefined()) SparkSession.setActiveSession((SparkSession) session.get());
    else SparkSession.clearActiveSession();
  }
}
"""
#: Gateways that have the listener: one per JVM, which outlives Spark contexts.
_installed: "WeakSet[Any]" = WeakSet()


def install(spark: Any) -> bool:
    """Give later threads that connect to this JVM a session; False if that is not possible.

    Threads with a connection keep the session that they have; see ``activate``.
    """
    try:
        context = spark.sparkContext
    except Exception as error:  # Spark Connect sends the session with every request
        log.debug("threads need no session: %s", error)
        return False
    try:
        gateway = context._gateway
        if gateway not in _installed:
            listener = new_instance(context, _CLASS, _JAVA.replace("CLASS", _CLASS))
            gateway.java_gateway_server.addListener(listener)
            _installed.add(gateway)
        _connect_once(context._jvm)
    except Exception as error:  # another version of Spark may lack any of this
        log.warning("write to topics from the main thread, or by cluster.write: %s", error)
        return False
    return True


def activate(spark: Any) -> None:
    """Make the session active in the calling thread, as ``spark.createDataFrame`` does."""
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # None in Spark Connect
        spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session)


def _connect_once(jvm: Any) -> None:
    """Connect once: the listener runs after a connection's thread starts, so the next inherits."""
    first = threading.Thread(target=jvm.java.lang.System.nanoTime, daemon=True)
    first.start()
    first.join()
