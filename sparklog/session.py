"""Spark sessions with room for brokers, for the command line, the demo and small scripts.

Owns: the settings that such a session needs (``session_settings`` is pure).  Must not know what
runs in the session.
"""

import os
import sys
from typing import Any

#: Task slots beside the brokers: one slot that queries always have, and one more.
QUERY_SLOTS = 2
LOOPBACK = "127.0.0.1"


def default_master(brokers: int) -> str:
    """Return a local Spark master with task slots for the brokers and for queries."""
    return f"local[{brokers + QUERY_SLOTS}]"


def session_settings(master: str, app_name: str = "sparklog") -> dict[str, str]:
    """Return the settings of a session that can run brokers, by Spark's names."""
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.dynamicAllocation.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return settings


def create_session(master: str | None = None, brokers: int = 3, app_name: str = "sparklog") -> Any:
    """Create a Spark session that can run brokers, or return the active session.

    Spark's workers run with this Python.

    Args:
        master: The Spark master.  Default: a local master with room for ``brokers`` and queries.
        brokers: Number of brokers and spares that are to run in the session.
        app_name: Name of the Spark application.

    Returns:
        The ``SparkSession``.

    Raises:
        StartError: Java is missing or too old.
    """
    from sparklog.driver.launcher import require_java

    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in session_settings(master or default_master(brokers), app_name).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
