"""The strategy that makes Spark pack the rows of a write before they reach Python.

Owns: the installation of the strategy (``java/PackedWritesStrategy.java``).  Must not know how
records are laid out, nor how they travel.

The way of a row through Arrow to Python, and its encoding there, cost more than the rest of a
write.  The strategy puts an operator under the write.  The operator's output rows are pieces: each
has the records of one batch.  An option of the write holds the schema of the original rows, so that
the source makes its usual checks.

The strategy leaves these writes alone:

- Writes that the packer cannot do exactly as Python does: writes with other columns than ``key``,
  ``value`` and ``timestamp``, or with a partitioner.
- Writes of rows from Python.  The packer changes the number of rows that the task sends to Python
at
  once (``java/Packer.java``), and threads of other operators could read the changed number.
- Writes of rows with keys that the JVM does not send (``java/PieceDestination.java``): only a
  client that asks for the topic's partitions can divide such rows.
- All writes, where the strategy cannot be installed (Spark Connect).

The packer is compiled in the driver before the first write.  If this Spark cannot compile it, the
write is planned as usual.  Where Spark generates the code that makes the rows, the packer is part
of that code (``java/FusedPackExec.java``).
"""

import logging
from typing import Any, Final

from sparklog.dataframe.jvm.constants import WITHOUT_PACKED_WRITES
from sparklog.dataframe.jvm.java_sources import (
    PACKED_ROWS,
    PACKED_WRITES,
    PACKER,
    generated_class,
    inner_classes,
)
from sparklog.dataframe.jvm.session_extension import SessionExtension

log = logging.getLogger(__name__)

_EXTENSION: Final = SessionExtension(
    PACKED_WRITES,
    inject="injectPlannerStrategy",
    without=WITHOUT_PACKED_WRITES,
    log=log,
    texts=lambda: (inner_classes(PACKER), generated_class(PACKED_ROWS)),
)


def install(spark: Any) -> bool:
    """Add the strategy to the sessions of this application; return False if that is impossible."""
    return _EXTENSION.install(spark)
