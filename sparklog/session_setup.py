"""The setup of a Spark session for a cluster: its data source finds the cluster by itself.

Owns: the session's settings, the rules added to its plans, and the announcement of the cluster to
the processes in which Spark plans Python sources.  Must not know how a cluster is started.
"""

import logging
from contextlib import suppress
from typing import Any

from sparklog.dataframe import thread_sessions
from sparklog.dataframe.discovery import ANNOUNCED_PROPERTY, announce, withdraw
from sparklog.dataframe.jvm import install_own_scans, install_packed_reads, install_packed_writes

log = logging.getLogger(__name__)

BOOTSTRAP_CONF = "spark.sparklog.bootstrap.servers"
PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


def set_up_session(spark: Any, bootstrap_servers: str) -> None:
    """Make ``format("sparklog")`` of this session use the cluster, with filters pushed down.

    Every thread of the driver can write afterwards.
    """
    spark.conf.set(BOOTSTRAP_CONF, bootstrap_servers)
    spark.conf.set(PUSHDOWN_CONF, "true")
    install_own_scans(spark)
    install_packed_reads(spark)
    install_packed_writes(spark)
    thread_sessions.install(spark)
    thread_sessions.activate(spark)
    pid = _jvm_pid(spark)
    if pid is not None:
        try:
            announce(pid, bootstrap_servers)
            _properties(spark).setProperty(ANNOUNCED_PROPERTY, bootstrap_servers)
        except OSError as error:
            log.warning(
                "format('sparklog') needs the option kafka.bootstrap.servers=%s here: %s",
                bootstrap_servers,
                error,
            )


def reset_session(spark: Any, bootstrap_servers: str) -> None:
    """Withdraw the cluster's announcement, and its address from the session's settings.

    Does nothing without a session (``spark`` is None), and for a session that has ended.
    """
    if spark is None:
        return
    with suppress(Exception):  # the session may be gone
        pid = _jvm_pid(spark)
        if pid is not None:
            withdraw(pid, bootstrap_servers)
            _properties(spark).remove(ANNOUNCED_PROPERTY, bootstrap_servers)
        if spark.conf.get(BOOTSTRAP_CONF, None) == bootstrap_servers:
            spark.conf.unset(BOOTSTRAP_CONF)


def _jvm_pid(spark: Any) -> int | None:
    """The id of the process that plans this session's queries; None over Spark Connect."""
    try:
        return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    except Exception:
        return None


def _properties(spark: Any) -> Any:
    return spark.sparkContext._jvm.java.lang.System.getProperties()
