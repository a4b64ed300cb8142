"""Rows and requests inside the JVM.

Owns: the Java classes that pack, unpack and send records (``java/``), their compilation, and their
use in Spark's plans.  Must not know how a read or a write is divided into tasks.
"""

from sparklog.dataframe.jvm.constants import BOUNDS, BY_KEY, GIVE_BATCHES, GIVE_ROWS
from sparklog.dataframe.jvm.java_sources import THREAD_SESSIONS, compilation_unit
from sparklog.dataframe.jvm.own_scans import install as install_own_scans
from sparklog.dataframe.jvm.packed_reads import install as install_packed_reads
from sparklog.dataframe.jvm.packed_writes import install as install_packed_writes
from sparklog.dataframe.jvm.session_extension import new_instance

__all__ = [
    "BOUNDS",
    "BY_KEY",
    "GIVE_BATCHES",
    "GIVE_ROWS",
    "THREAD_SESSIONS",
    "compilation_unit",
    "install_own_scans",
    "install_packed_reads",
    "install_packed_writes",
    "new_instance",
]
