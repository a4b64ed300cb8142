"""The strategy that has the JVM make rows, from record batches that a Python task only checks.

Owns: the installation of the strategy (``java/PackedReadsStrategy.java``).  Must not know how a
scan reads, or the content of a batch.

Rows from Python are decoded twice: Python turns records into columns, and Spark turns columns into
rows.  Where possible, the strategy puts a decoding operator above the scan
(``java/UnpackedRows.java``), and makes every partition of the scan return record batches instead of
rows.  The JVM switches a partition by a text in the pickled partition (``GIVE_ROWS``), so only the
operator ever gets batches.

The strategy takes a scan if all of this holds:

- The scan is marked as one of its own (``own_scans``).
- All columns are columns of a topic and may hold nulls, as they do unless a schema says otherwise.
- The headers are not among the columns.
- One of the columns has bytes; that column carries the batches.
- The read does not skip undecodable batches (``failOnCorruptBatch=false``).  Python makes the rows
  of such reads, so that a single decoder decides which batches are undecodable.

Filters are pushed into the scan as always, before all this.  Where the strategy does not take a
scan, or cannot be installed (Spark Connect), Python makes the rows.

The strategy and its operator exist only in the driver's JVM.  Executors get the text of the decoder
in a class of Spark, and compile it like Spark's generated code.
"""

import logging
from typing import Any, Final

from sparklog.dataframe.jvm.constants import WITHOUT_PACKED_READS
from sparklog.dataframe.jvm.java_sources import PACKED_READS, UNPACKED_ROWS, generated_class
from sparklog.dataframe.jvm.session_extension import SessionExtension

log = logging.getLogger(__name__)

_EXTENSION: Final = SessionExtension(
    PACKED_READS,
    inject="injectPlannerStrategy",
    without=WITHOUT_PACKED_READS,
    log=log,
    texts=lambda: (generated_class(UNPACKED_ROWS),),
)


def install(spark: Any) -> bool:
    """Add the strategy to the sessions of this application; return False if that is impossible."""
    return _EXTENSION.install(spark)
