"""Rows and requests inside the JVM.

Owns: the Java classes that pack, unpack and send records, how they are compiled and how they come
into Spark's plans.  Must not know how a read or a write is divided into tasks.
"""

from sparklog.dataframe.jvm.jvm_class import new_instance
from sparklog.dataframe.jvm.own_scans import install as install_own_scans
from sparklog.dataframe.jvm.packed_reads import install as install_packed_reads
from sparklog.dataframe.jvm.packed_writes import install as install_packed_writes
from sparklog.dataframe.jvm.piece_outlet import BY_KEY
from sparklog.dataframe.jvm.record_unpacker import BOUNDS, GIVE_BATCHES, GIVE_ROWS

__all__ = [
    "BOUNDS",
    "BY_KEY",
    "GIVE_BATCHES",
    "GIVE_ROWS",
    "install_own_scans",
    "install_packed_reads",
    "install_packed_writes",
    "new_instance",
]
