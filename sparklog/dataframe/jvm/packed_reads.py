"""The strategy that has the JVM make rows, from record batches that a Python task only checks.

Owns: the installation of the strategy (``java/PackedReadsStrategy.java``).  Must not know what a
scan reads, or what is in a batch.

Rows that Python makes cost twice: Python takes records apart by the column, and Spark takes the
columns apart by the row.  Where the strategy can, it puts an operator above the scan, which decodes
(``java/UnpackedRows.java``), and tells every partition of the scan to give batches instead of rows.
A partition says what it gives in a text that the JVM finds in the pickled partition, so only the
operator is given batches.

The strategy takes a scan if all of this holds:

- The scan is marked as one of its own (``own_scans``).
- All columns are columns of a topic and may hold nulls, as they do unless a schema says otherwise.
- The headers are not among the columns.
- One of the columns has bytes: that column carries the batches.
- The read does not leave out what cannot be decoded (``failOnCorruptBatch=false``).  Such reads are
  Python's, so that a single decoder decides which batches these are.

Filters are pushed into the scan as always, before all this.  Where the strategy does not take a
scan, or cannot be installed (Spark Connect), Python makes the rows.

The strategy and its operator live in the driver's JVM alone: executors get the text of the decoder,
in a class of Spark's, and compile it as they compile what Spark generates.
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
    """Add the strategy to the sessions of this application; False where that is not possible."""
    return _EXTENSION.install(spark)
